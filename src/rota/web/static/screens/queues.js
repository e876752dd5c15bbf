// What waits in each queue, how fast it goes, and whether anything is taken from it.
import { html } from "../lib/html.js";
import { attempt, get, name, post } from "../lib/api.js";
import { overview, refresh } from "../lib/health.js";
import { aboutActions, aboutRuns, useLoad } from "../lib/load.js";
import { href } from "../lib/router.js";
import { can } from "../lib/session.js";
import { toast } from "../lib/toast.js";
import { ask } from "../parts/dialog.js";
import { Empty } from "../parts/empty.js";
import { Icon } from "../parts/icons.js";
import { Card, Page } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";

const MOST_QUEUES = 500;
const STATES = ["queued", "running", "held", "waiting", "paused"];
const MEANING = {
  queued: "due, and waits for a free slot", running: "a worker has it", held: "waits for a run before it, or for a free place of its concurrency key",
  waiting: "due later, or again after a failure", paused: "held back by somebody",
};

export default function Queues() {
  const { data, error, reload } = useLoad(
    (signal) => get("/queues", { limit: MOST_QUEUES }, { signal }), [],
    { on: (event) => aboutRuns(event) || aboutActions(event), every: 10 },
  );
  const act = async (question, path, words) => {
    const told = await ask(question);
    if (!told) return;
    const done = await attempt(() => post(path, words ? told : {}));
    if (done) { toast(`${done.done[0].toUpperCase()}${done.done.slice(1)}.`); reload(); refresh(); }
  };
  const pause = (queue) => act({ title: `Pause queue ${queue.name}`, text: "No worker takes runs from it until it is resumed. Runs that run now go on to their end.", verb: "Pause", reason: "optional" }, `/queues/${name(queue.name)}/pause`, true);
  const resume = (queue) => act({ title: `Resume queue ${queue.name}`, text: `${depth(queue, "queued")} queued runs may be taken at once.`, verb: "Resume" }, `/queues/${name(queue.name)}/resume`, false);
  const dispatch = overview.value?.dispatch ?? "on";
  const stop = () => act({ title: "Pause all dispatch", text: "No process begins a run, of any queue, until dispatch is resumed. Schedules go on making runs, and what runs ends.", verb: "Pause everything", danger: true, reason: "optional" }, "/dispatch/pause", true);
  return html`<${Page} title="Queues" actions=${can("operator") && dispatch === "on" && html`<button class="danger" onClick=${stop}>Pause all dispatch…</button>`}>
    <div class="grid">
      ${dispatch !== "on" && html`<section class="verdict is-bad" aria-label="Dispatch is off" role="status">
        <header><${Icon} name="paused" /><h2>Nothing is taken from any queue</h2>
          <span>Dispatch is ${dispatch}.</span>
          ${can("operator") && html`<button class="primary" onClick=${() => act({ title: "Resume dispatch", text: "Runs are claimed again, in all processes.", verb: "Resume" }, "/dispatch/resume", false)}>Resume dispatch…</button>`}
        </header></section>`}
      <${Card} flush label="Queues">
        <${Table} label="Queues" rows=${data?.items} error=${error} keyOf=${(one) => one.name} columns=${[
          { label: "Queue", lead: true, cell: (one) => html`<a class="named" href=${href("/runs", { queue: one.name })}>${one.name}</a>` },
          { label: "State", cell: (one) => html`<${State} queue=${one} />` },
          ...STATES.map((state) => ({ label: state, right: true, cell: (one) => count(one, state) })),
          { label: "Oldest queued", cell: (one) => html`<${When} at=${one.oldest_at} none="none" />` },
          { label: "Ended", right: true, cell: (one) => html`<span class="nowrap number" title="Runs that ended a minute, over the last five, or over the latest 3,000 runs of all queues">${rate(one.ended_per_minute)} <span class="muted">/ min</span></span>` },
          { label: "", fit: true, cell: (one) => can("operator") && (one.paused
            ? html`<button onClick=${() => resume(one)} aria-label="Resume queue ${one.name}">Resume…</button>`
            : html`<button onClick=${() => pause(one)} aria-label="Pause queue ${one.name}">Pause…</button>`) },
        ]} empty=${html`<${Empty} title="No queue yet">The first job or run makes one: <code>rota enqueue JOB</code><//>`} />
      <//>
      ${data?.next != null && html`<p class="muted small">The first ${MOST_QUEUES} are shown; the others: <code>rota queues --after ${data.next}</code></p>`}
      <${Why} />
      <p class="muted small">${STATES.map((state) => `${state}: ${MEANING[state]}`).join("; ")}.</p>
    </div>
  <//>`;
}

function State({ queue }) {
  if (!queue.paused) return html`<span class="badge is-ok" data-state="open">open</span>`;
  return html`<div class="state-cell"><span class="badge is-halt" data-state="paused"><${Icon} name="paused" />paused</span>
    <small class="muted">by ${queue.paused_by} <${When} at=${queue.paused_at} /></small>
    ${queue.reason && html`<span class="reason">${queue.reason}</span>`}</div>`;
}

const rate = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });

// Where the count was cut short there are so many at least.
const depth = (queue, state) => `${queue.depths[state].toLocaleString("en")}${queue.capped.includes(state) ? "+" : ""}`;

function count(queue, state) {
  const told = depth(queue, state);
  if (told === "0") return html`<span class="muted">0</span>`;
  return html`<a class="number" href=${href("/runs", { queue: queue.name, state })}>${told}</a>`;
}

// Why queued runs do not start, as the overview knows it.
function Why() {
  const waiting = overview.value?.problems.filter((one) => one.kind === "waiting") ?? [];
  if (waiting.length === 0) return null;
  return html`<${Card} title="Why runs wait" flush><ul class="lines">${waiting.map((one) => html`<li key=${one.name + one.message}>
    <span class="grow">${one.message}</span>${one.since && html`<small class="muted nowrap">oldest due <${When} at=${one.since} /></small>`}</li>`)}</ul><//>`;
}
