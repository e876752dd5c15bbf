// What is wrong now, first; then how much happens, what runs and what comes.
import { html } from "../lib/html.js";
import { attempt, get, post, name } from "../lib/api.js";
import { now } from "../lib/clock.js";
import { overview, overviewError, refresh } from "../lib/health.js";
import { aboutRuns, anything, useLoad } from "../lib/load.js";
import { href, part, setQuery } from "../lib/router.js";
import { can } from "../lib/session.js";
import { duration, parse } from "../lib/time.js";
import { toast } from "../lib/toast.js";
import { tone } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { ask } from "../parts/dialog.js";
import { Empty, Failed } from "../parts/empty.js";
import { Icon } from "../parts/icons.js";
import { Card, Page } from "../parts/page.js";
import { Progress, jobLink, runLink, scheduleLink } from "../parts/run-bits.js";
import { Bar } from "../parts/strip.js";
import { Took, When } from "../parts/when.js";

const SPANS = { hour: [60, 60], day: [1440, 96], week: [10080, 84] };
const SHOWN = 8;

export default function Overview({ query }) {
  const told = overview.value;
  if (!told) {
    return html`<${Page} title="Overview">${overviewError.value
      ? html`<${Failed} error=${overviewError.value} again=${refresh} />` : html`<${Empty} title="Loading…" />`}<//>`;
  }
  return html`<${Page} title="Overview">
    <div class="grid">
      <${Wrong} told=${told} />
      <${Figures} told=${told} />
      <${Throughput} query=${query} />
      <div class="grid two"><${Running} /><${Coming} /></div>
    </div>
  <//>`;
}

function Wrong({ told }) {
  const wrong = told.problems.filter((one) => one.severity !== "note");
  const notes = told.problems.filter((one) => one.severity === "note");
  const state = wrong.some((one) => one.severity === "error") ? "error" : wrong.length ? "warning" : "succeeded";
  const title = wrong.length === 0 ? "Nothing is wrong" : wrong.length === 1 ? "One thing is wrong" : `${wrong.length} things are wrong`;
  return html`<section class="verdict ${tone(state)}" aria-label="What is wrong now">
    <header><${Icon} name=${wrong.length ? "alert" : "succeeded"} /><h2>${title}</h2>
      ${wrong.length === 0 && html`<span class="muted">${well(told)}</span>`}</header>
    ${told.problems.length > 0 && html`<ul>${[...wrong, ...notes].map((one) => html`<${Problem} key=${one.kind + one.name + one.message} problem=${one} />`)}</ul>`}
  </section>`;
}

const well = (told) => {
  const { schedules = 0, paused = 0 } = told.schedules;
  return `${schedules.toLocaleString("en")} schedules, ${paused ? paused.toLocaleString("en") : "none"} of them paused; dispatch is ${told.dispatch}`;
};

function Problem({ problem }) {
  const { kind, severity, noun, name: thing, message, since } = problem;
  return html`<li class=${tone(severity)} data-kind=${kind}>
    <span class="badge ${tone(severity)}">${kind}</span>
    <span class="message">${message}</span>
    ${since && html`<small class="muted">since <${When} at=${since} /></small>`}
    <span class="row">${place(kind, noun, thing)}${can("operator") && html`<${Mend} problem=${problem} />`}</span>
  </li>`;
}

// Where to look.
function place(kind, noun, thing) {
  if (kind === "dead") return html`<a href=${href("/runs", { job: thing, state: "dead" })}>dead runs</a>`;
  if (kind === "waiting") return html`<a href=${href("/runs", { job: thing, state: "queued" })}>queued runs</a>`;
  if (kind === "stuck") return html`<a href=${href("/runs", { state: "running" })}>running runs</a>`;
  if (noun === "schedule" && thing) return html`<a href=${href(`/schedules/${part(thing)}`)}>schedule</a>`;
  if (noun === "job" && thing) return html`<a href=${href(`/jobs/${part(thing)}`)}>job</a>`;
  if (noun === "worker") return html`<a href=${href("/workers")}>workers</a>`;
  return null;
}

// What can be done about it at once.
function Mend({ problem: { kind, noun, name: thing } }) {
  const act = async (question, doing, words) => {
    const told = await ask(question);
    if (told && (await attempt(() => doing(told))) !== undefined) { toast(words); refresh(); }
  };
  if (kind === "dispatch") {
    return html`<button onClick=${() => act({ title: "Resume dispatch", text: "Runs are claimed again, in all processes.", verb: "Resume" }, () => post("/dispatch/resume"), "Dispatch is on.")}>Resume dispatch…</button>`;
  }
  if (kind === "paused" && noun === "schedule") {
    return html`<button onClick=${() => act({ title: `Resume ${thing}`, verb: "Resume", reason: "optional" }, (told) => post(`/schedules/${name(thing)}/resume`, told), `Schedule ${thing} fires again.`)}>Resume…</button>`;
  }
  return null;
}

function Figures({ told }) {
  const activity = useLoad((signal) => get("/activity", { minutes: 60, buckets: 1 }, { signal }), [], { on: aboutRuns, every: 10 });
  const { runs, counted_to: most } = told;
  const count = (value) => (value >= most ? `${most.toLocaleString("en")}+` : (value ?? 0).toLocaleString("en"));
  const slots = activity.data?.slots;
  const lag = activity.data?.fire_lag;
  const figure = (label, value, { query = null, more = null, state = null } = {}) => html`<div class="figure ${state ? tone(state) : ""}">
    <span class="label">${label}</span>
    ${query ? html`<a class="value" href=${href("/runs", query)}>${value}</a>` : html`<span class="value">${value}</span>`}
    <small class="muted">${more}</small></div>`;
  return html`<section class="figures" aria-label="Figures">
    ${figure("Running", count(runs.running), { query: { state: "running" }, state: runs.running ? "running" : null,
      more: slots && html`<span>${slots.running} of ${slots.slots} slots${slots.stuck ? `, ${slots.stuck} stuck` : ""}</span>` })}
    ${figure("Queued", count(runs.queued), { query: { state: "queued" }, more: `${count(runs.held)} held by a slot` })}
    ${figure("Waiting", count(runs.waiting), { query: { state: "waiting" }, more: runs.paused ? `${count(runs.paused)} paused` : "due later" })}
    ${figure("Succeeded", count(runs.succeeded), { query: { state: "succeeded" }, more: "in 24 hours" })}
    ${figure("Dead", count(runs.dead), { query: { state: "dead" }, state: runs.dead ? "dead" : null, more: "in 24 hours" })}
    ${figure("Fire lag", lag?.p95 == null ? "–" : duration(lag.p95 * 1000), {
      more: lag?.of ? `95 % of the last ${lag.of}; longest ${duration(lag.longest * 1000)}` : "no schedule has fired yet" })}
    ${figure("Slots in use", slots ? `${slots.slots ? Math.round((slots.running / slots.slots) * 100) : 0} %` : "–", {
      more: slots && html`<${Bar} share=${slots.slots ? slots.running / slots.slots : 0} label="Slots in use" />` })}
  </section>`;
}

function Throughput({ query }) {
  const span = SPANS[query.span] ? query.span : "hour";
  const [minutes, buckets] = SPANS[span];
  const { data, error } = useLoad((signal) => get("/activity", { minutes, buckets }, { signal }), [span], { on: aboutRuns, every: 30 });
  const choose = html`<div class="chips tight"><div class="set" role="group" aria-label="How far back">${Object.keys(SPANS).map((one) => html`<button key=${one}
    aria-pressed=${String(one === span)} onClick=${() => setQuery({ span: one === "hour" ? null : one }, { replace: true })}>${one}</button>`)}</div></div>`;
  if (!data) return html`<${Card} title="Runs that ended" actions=${choose}>${error ? html`<${Failed} error=${error} />` : html`<div class="chart"></div>`}<//>`;
  const begin = parse(data.since_at) / 1000;
  const xs = data.ended.succeeded.map((_, at) => begin + at * data.seconds);
  const total = (state) => data.ended[state].reduce((sum, value) => sum + value, 0);
  const ended = total("succeeded") + total("dead") + total("cancelled");
  return html`<${Card} title="Runs that ended" actions=${choose}>
    <${Chart} label="Runs that ended, by outcome" stacked height=${170} data=${[xs, data.ended.succeeded, data.ended.cancelled, data.ended.dead]}
      series=${[{ label: "succeeded", tone: "ok", kind: "bars" }, { label: "cancelled", tone: "off", kind: "bars" }, { label: "dead", tone: "bad", kind: "bars" }]} />
    <p class="muted small">${ended.toLocaleString("en")} ended in this ${span}, ${total("dead").toLocaleString("en")} of them dead: ${each(data.seconds)} a bar, every run counted.</p>
  <//>`;
}

const each = (seconds) => (seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

function Running() {
  const { data, error } = useLoad((signal) => get("/runs", { state: "running", limit: SHOWN }, { signal }), [], { on: (event) => aboutRuns(event) });
  const rows = data?.items ?? [];
  return html`<${Card} title="Running now" flush actions=${html`<a href=${href("/runs", { state: "running" })}>all</a>`}>
    ${!data ? (error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`) : rows.length === 0
      ? html`<${Empty} title="Nothing runs in this moment">The next run is beside this, or start one: <code>rota run JOB</code><//>`
      : html`<ul class="lines">${rows.map((run) => html`<li key=${run.id}>
          <span class="clip">${jobLink(run.job)}</span><${Progress} progress=${run.progress} />
          <span class="muted"><${Took} from=${run.started_at ?? run.claimed_at} running /></span>${runLink(run.id)}</li>`)}</ul>`}
  <//>`;
}

function Coming() {
  const { data, error } = useLoad((signal) => {
    const at = now.peek();
    return get("/timeline", { since: new Date(at).toISOString(), until: new Date(at + 24 * 3600_000).toISOString() }, { signal });
  }, [], { on: anything, every: 20 });
  const seen = new Set();
  const rows = (data?.coming ?? []).filter((one) => parse(one.at) > now.value - 5000 && !seen.has(one.schedule) && seen.add(one.schedule)).slice(0, SHOWN);
  return html`<${Card} title="Coming next" flush actions=${html`<a href=${href("/timeline")}>timeline</a>`}>
    ${!data ? (error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`) : rows.length === 0
      ? html`<${Empty} title="Nothing comes within a day">Make a schedule: <code>rota schedule NAME --job JOB --cron "0 3 * * *"</code><//>`
      : html`<ul class="lines">${rows.map((one) => html`<li key=${one.schedule}>
          <span class="clip">${scheduleLink(one.schedule)}</span>
          <span class="muted nowrap">${one.seconds == null ? "" : `takes about ${duration(one.seconds * 1000)}`}</span>
          <b class="number"><${When} at=${one.at} as="countdown" /></b></li>`)}</ul>`}
  <//>`;
}
