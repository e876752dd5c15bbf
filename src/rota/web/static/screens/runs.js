// Runs, newest first. Filters are in the address; rows move as events tell of them.
import { html, useEffect, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { listen } from "../lib/events.js";
import { aboutActions, aboutRuns, useLoad } from "../lib/load.js";
import { go, href, part, setQuery } from "../lib/router.js";
import { can } from "../lib/session.js";
import { STATES, TERMINAL } from "../parts/badge.js";
import { bulk, title, told, verbsFor } from "../parts/bulk.js";
import { Chip, Choice } from "../parts/chips.js";
import { Empty } from "../parts/empty.js";
import { Work, work } from "../parts/many.js";
import { Card, Page } from "../parts/page.js";
import { Progress, RunState, errorLine, jobLink, runLink, scheduleLink, withEvent } from "../parts/run-bits.js";
import { Pager, Table } from "../parts/table.js";
import { Took, When } from "../parts/when.js";

const LIMIT = 50;
const FILTERS = ["state", "job", "schedule", "queue"];
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

// What the list shows; arguments and results stay with the run's own screen.
const brief = ({ args, result, backoff, ...run }) => run;

export default function Runs({ query }) {
  const filter = Object.fromEntries(FILTERS.map((one) => [one, query[one] || undefined]));
  const { data, error, reload, set } = useLoad(async (signal) => {
    const page = await get("/runs", { ...filter, before: query.before, limit: LIMIT }, { signal });
    return { ...page, items: page.items.map(brief) };
  }, [...FILTERS.map((one) => query[one]), query.before], { on: (event) => !query.before && (aboutRuns(event) && event.type !== "run.progress" || aboutActions(event)) });
  useRows(set);
  const count = useLoad((signal) => (query.state ? get("/runs/count", filter, { signal }) : null), FILTERS.map((one) => query[one]), { on: aboutRuns, every: 30 });
  const columns = [
    { label: "Run", fit: true, cell: (run) => runLink(run.id) },
    { label: "State", fit: true, cell: (run) => html`<${RunState} run=${run} />` },
    { label: "Job", lead: true, cell: (run) => html`${jobLink(run.job)}${run.schedule && run.schedule !== run.job && html`<div class="muted small">by ${scheduleLink(run.schedule)}</div>`}` },
    { label: "Due", fit: true, cell: (run) => html`<${When} at=${run.due_at} />` },
    { label: "Took", fit: true, right: true, cell: (run) => html`<${Took} from=${run.started_at} to=${run.finished_at} running=${run.state === "running"} />` },
    { label: "Attempt", fit: true, right: true, cell: (run) => (run.attempt ? `${run.attempt}${run.max_attempts > 1 ? ` of ${run.max_attempts}` : ""}` : "–") },
    { label: "What is said", grow: true, cell: (run) => html`<${Said} run=${run} />` },
  ];
  const filtered = FILTERS.some((one) => query[one]);
  const busy = work.value !== null && !work.value.over;
  const empty = filtered
    ? html`<${Empty} title="No run matches"><button onClick=${() => setQuery(Object.fromEntries(FILTERS.map((one) => [one, null])))}>Take the filters off</button><//>`
    : html`<${Empty} title="There is no run yet">A schedule makes them when it is due; or run a job now: <code>rota run JOB</code><//>`;
  return html`<${Page} title="Runs">
    <div class="chips">
      <${Choice} name="state" query=${query} options=${STATES} label="State" />
      <${JobField} query=${query} />
      <${Chip} name="job" query=${query} /><${Chip} name="schedule" query=${query} /><${Chip} name="queue" query=${query} />
    </div>
    ${can("operator") && query.state && data?.items.length > 0 && html`<div class="row bulk" role="group" aria-label="Everything that matches"><span class="muted">All that match:</span>
      ${verbsFor(query.state).map((verb) => html`<button key=${verb} class=${verb === "delete" ? "danger" : ""} disabled=${busy} onClick=${async () => { if (await bulk(verb, filter)) { reload(); count.reload(); } }}>${title(verb)} all…</button>`)}</div>`}
    <${Work} />
    <${Card} flush label="Runs">
      <${Table} label="Runs" columns=${columns} rows=${data?.items} error=${error} keyOf=${(run) => run.id} empty=${empty} />
      <${Pager} page=${data} query=${query} told=${count.data ? `${told(count.data)} ${query.state}` : null} />
    <//>
  <//>`;
}

// Events of one frame change the rows that are on the screen, in one go.
function useRows(set) {
  useEffect(() => listen((events) => {
    const latest = new Map();
    for (const event of events) if (event.data?.run_id) latest.set(event.data.run_id, event);
    if (latest.size === 0) return;
    set((data) => {
      if (!data?.items.some((run) => latest.has(run.id))) return data;
      return { ...data, items: data.items.map((run) => (latest.has(run.id) ? withEvent(run, latest.get(run.id)) : run)) };
    });
  }), []);
}

function Said({ run }) {
  if (run.state === "running") return html`<${Progress} progress=${run.progress} />`;
  if (run.error && run.state !== "succeeded") return html`<span class="error-line clip" title=${run.error}>${errorLine(run.error)}</span>`;
  if (run.reason) return html`<span class="muted">${run.reason}</span>`;
  if (run.state === "held") return html`<span class="muted">waits for ${run.overlap_key ?? run.concurrency_key}</span>`;
  if (run.state === "waiting" && run.attempt > 0) return html`<span class="muted">next attempt <${When} at=${run.due_at} as="countdown" /></span>`;
  if (TERMINAL.has(run.state) && run.missed_count > 1) return html`<span class="muted">stands for ${run.missed_count} occurrences</span>`;
  return null;
}

// A job by its name, or a run by its whole id.
function JobField({ query }) {
  const [names, setNames] = useState(null);
  const fill = async () => {
    if (names) return;
    try { setNames((await get("/jobs", { limit: 500 })).items.map((job) => job.name)); } catch { setNames([]); }
  };
  const submit = (event) => {
    event.preventDefault();
    const field = event.target.elements.job;
    const value = field.value.trim();
    if (UUID.test(value)) go(`/runs/${part(value)}`);
    else if (value) setQuery({ job: value });
    field.value = "";
  };
  return html`<form onSubmit=${submit}><input name="job" class="jobfield" type="search" data-search list="job-names" aria-label="Job, or id of a run" placeholder="Job, or id of a run  /"
      autocomplete="off" spellcheck=${false} maxlength="128" onFocus=${fill} onChange=${(event) => names?.includes(event.target.value) && event.target.form.requestSubmit()} />
    <datalist id="job-names">${(names ?? []).map((name) => html`<option key=${name} value=${name}></option>`)}</datalist></form>`;
}
