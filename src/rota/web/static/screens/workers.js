// The processes that work: what each runs now, how full it is, and whether it is there at all.
import { html } from "../lib/html.js";
import { get } from "../lib/api.js";
import { overview } from "../lib/health.js";
import { aboutActions, aboutRuns, useLoad } from "../lib/load.js";
import { href } from "../lib/router.js";
import { Empty, Failed, Notice } from "../parts/empty.js";
import { Card, Facts, Page } from "../parts/page.js";
import { Progress, jobLink, runLink } from "../parts/run-bits.js";
import { Bar } from "../parts/strip.js";
import { Table } from "../parts/table.js";
import { Took, When } from "../parts/when.js";

const MOST_RUNS = 500;
const MOST_WORKERS = 500;
const MOST_LOCKS = 500;
const JOBS_SHOWN = 30;

export default function Workers() {
  const workers = useLoad((signal) => get("/workers", { limit: MOST_WORKERS }, { signal }), [], { on: aboutRuns, every: 5 });
  const running = useLoad((signal) => get("/runs", { state: "running", limit: MOST_RUNS }, { signal }), [], { on: aboutRuns });
  const told = workers.data?.items;
  if (!told) return html`<${Page} title="Workers">${workers.error ? html`<${Failed} error=${workers.error} again=${workers.reload} />` : html`<${Empty} title="Loading…" />`}<//>`;
  const runs = new Map();
  for (const run of running.data?.items ?? []) runs.set(run.worker_id, [...(runs.get(run.worker_id) ?? []), run]);
  const live = told.filter((one) => one.alive);
  const slots = live.reduce((sum, one) => sum + Math.max(one.slots, one.busy), 0);
  const busy = live.reduce((sum, one) => sum + one.busy, 0);
  return html`<${Page} title="Workers" badge=${told.length > 0 && html`<span class="muted small">${live.length} alive, ${busy} of ${slots} slots in use</span>`}>
    <div class="grid">
      ${live.length === 0 && told.length > 0 && html`<${Notice} tone="bad">No worker is alive, so nothing runs. Start one: <code>rota up</code><//>`}
      ${overview.value && overview.value.dispatch !== "on" && html`<${Notice} tone="bad">Workers take nothing: dispatch is ${overview.value.dispatch}. <a href=${href("/queues")}>Queues</a> has the switch.<//>`}
      ${told.length === 0
        ? html`<${Card}><${Empty} title="No worker has been here">Start one: <code>rota up</code>, or <code>rota up --only worker</code> beside others.<//><//>`
        : html`<div class="grid two">${[...live, ...told.filter((one) => !one.alive)].map((one) => html`<${Worker} key=${one.id} worker=${one} runs=${runs.get(one.id) ?? []} />`)}</div>`}
      ${workers.data.next != null && html`<p class="muted small">The first ${MOST_WORKERS} are shown; the others: <code>rota workers --after ${workers.data.next}</code></p>`}
      ${running.data?.next != null && html`<p class="muted small">The newest ${MOST_RUNS} running runs are shown; <a href=${href("/runs", { state: "running" })}>all of them</a>.</p>`}
      <${Locks} />
    </div>
  <//>`;
}

function Worker({ worker, runs }) {
  const { alive, busy, slots, stuck } = worker;
  const ahead = worker.running - busy;
  const state = !alive ? "lost" : worker.stopping ? "stopping" : "alive";
  const title = html`<span class="row"><span class="badge is-${{ alive: "ok", stopping: "warn", lost: "bad" }[state]}" data-state=${state}>${state}</span><span class="mono">${worker.id}</span></span>`;
  return html`<${Card} label="Worker ${worker.id}" flush title=${title} actions=${html`<small class="muted">seen <${When} at=${worker.seen_at} /></small>`}>
    <div class="body worker">
      ${!alive && html`<${Notice} tone="bad">Not seen for more than half a minute. Its runs are taken over by others when their lease ends. If it should be there: look at its log on ${worker.host}, and start it again with <code>rota up</code>.<//>`}
      ${stuck > 0 && html`<${Notice}>${stuck} of its slots are stuck: a handler went on after its end was asked for, and its slot comes back when it returns or the process is started again.<//>`}
      ${state === "stopping" && html`<${Notice}>It was asked to stop: it ends the ${busy} run${busy === 1 ? "" : "s"} that it has, and takes no more.<//>`}
      ${state !== "stopping" && html`<div class="slots"><${Bar} share=${slots ? (busy + stuck) / slots : 0} label="Slots in use" /><span class="number nowrap">${busy} of ${slots} slots${stuck ? `, ${stuck} stuck` : ""}${ahead > 0 ? `, ${ahead.toLocaleString("en")} claimed ahead` : ""}</span></div>`}
      ${runs.length > 0
        ? html`<ul class="lines inner" aria-label="What it runs now">${runs.map((run) => html`<li key=${run.id}>
            <span class="clip">${jobLink(run.job)}</span><${Progress} progress=${run.progress} />
            <span class="muted nowrap">for <${Took} from=${run.started_at ?? run.claimed_at} running /></span>
            <small class="muted nowrap">since <${When} at=${run.started_at ?? run.claimed_at} as="stamp" /></small>${runLink(run.id)}</li>`)}</ul>`
        : state === "alive" && html`<p class="muted small">Runs nothing now${worker.running ? "; what it has begins in a moment" : ": no due run of its jobs and queues waits"}.</p>`}
      <${Facts} rows=${[
        ["Host", `${worker.host}, process ${worker.pid}`],
        ["Queues", worker.queues.length ? worker.queues.map((one) => html`<a key=${one} class="word" href=${href("/runs", { queue: one })}>${one}</a>`) : "all"],
        ["Version", html`Rota ${worker.version} <span class="muted">time zones ${worker.tzdata}</span>`],
        ["Folder", worker.origin],
        ["Started", html`<${When} at=${worker.started_at} />`],
        ["Jobs", html`<${Known} jobs=${worker.jobs} />`],
      ]} />
    </div>
  <//>`;
}

function Known({ jobs }) {
  if (jobs.length === 0) return html`<span>none: it can run nothing. Give it an app, or a folder of jobs.</span>`;
  return html`<details><summary>${jobs.length.toLocaleString("en")} known</summary>
    <div class="words">${jobs.slice(0, JOBS_SHOWN).map((job) => html`<span key=${job}>${jobLink(job)}</span>`)}
    ${jobs.length > JOBS_SHOWN && html`<span class="muted">and ${(jobs.length - JOBS_SHOWN).toLocaleString("en")} more</span>`}</div></details>`;
}

function Locks() {
  const { data, error } = useLoad((signal) => get("/locks", { limit: MOST_LOCKS }, { signal }), [], { on: (event) => aboutRuns(event) || aboutActions(event), every: 10 });
  return html`<${Card} title="Locks that somebody holds" flush>
    <${Table} label="Locks" rows=${data?.items} error=${error} keyOf=${(one) => one.name} columns=${[
      { label: "Lock", lead: true, cell: (one) => html`<span class="mono">${one.name}</span>` },
      { label: "Held by", cell: (one) => html`<span class="mono">${one.owner ?? "–"}</span>` },
      { label: "Token", right: true, cell: (one) => one.token },
      { label: "Until", cell: (one) => html`<${When} at=${one.until} as="countdown" />` },
    ]} empty=${html`<${Empty} title="No lock is held">A program takes one with <code>app.lock("name")</code>.<//>`} />
    ${data?.next != null && html`<p class="muted small">The first ${MOST_LOCKS} are shown; the others: <code>rota locks --after ${data.next}</code></p>`}
  <//>`;
}
