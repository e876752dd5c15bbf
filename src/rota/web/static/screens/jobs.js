// What there is to run, where it comes from, and what is wrong with it.
import { html } from "../lib/html.js";
import { get } from "../lib/api.js";
import { aboutActions, useLoad } from "../lib/load.js";
import { href, setQuery } from "../lib/router.js";
import { Chip, Choice, Search } from "../parts/chips.js";
import { Empty } from "../parts/empty.js";
import { Broken, JobState, source } from "../parts/job-bits.js";
import { Card, Page } from "../parts/page.js";
import { jobLink, scheduleLink } from "../parts/run-bits.js";
import { Pager, Table } from "../parts/table.js";
import { When } from "../parts/when.js";

const FILTERS = ["q", "status", "queue", "executor"];

export default function Jobs({ query }) {
  const { data, error } = useLoad(
    (signal) => get("/jobs", { q: query.q, status: query.status, queue: query.queue, executor: query.executor, after: query.after, limit: 50 }, { signal }),
    [query.q, query.status, query.queue, query.executor, query.after],
    { on: aboutActions, every: 5 }, // files that change tell nobody
  );
  return html`<${Page} title="Jobs">
    <div class="chips">
      <${Search} query=${query} label="Search jobs" placeholder="Name or description" />
      <${Choice} name="status" query=${query} options=${["enabled", "disabled", "broken", "retired"]} label="State of the job" />
      <${Chip} name="queue" query=${query} /><${Chip} name="executor" query=${query} />
    </div>
    <${Card} flush label="Jobs">
      <${Table} label="Jobs" rows=${data?.items} error=${error} keyOf=${(job) => job.name} columns=${[
        { label: "Job", lead: true, cell: (job) => html`<div class="job-name"><div>${jobLink(job.name)}</div>${job.description && html`<div class="muted small two-lines">${job.description}</div>`}</div>` },
        { label: "State", cell: (job) => html`<div class="state-cell"><${JobState} job=${job} />${job.error && html`<${Broken} job=${job} brief />`}</div>` },
        { label: "Schedules", cell: (job) => html`<${Schedules} job=${job} />` },
        { label: "Queue", cell: (job) => html`<button class="link" title="Only jobs of this queue" onClick=${() => setQuery({ queue: job.queue })}>${job.queue}</button>` },
        { label: "Runs as", cell: (job) => html`<div><button class="link" title="Only jobs of this kind" onClick=${() => setQuery({ executor: job.executor })}>${job.executor}</button> <span class="muted nowrap">from ${source(job)}</span></div>` },
      ]} empty=${html`<${Nothing} query=${query} />`} />
      <${Pager} page=${data} query=${query} name="after" first="First" />
    <//>
  <//>`;
}

function Schedules({ job }) {
  const { schedules, schedule_count: count } = job;
  if (count === 0) return html`<span class="muted">none: runs when it is asked to</span>`;
  return html`<ul class="plain">${schedules.map((one) => html`<li key=${one.name}>
      <div>${scheduleLink(one.name)}</div>
      <div class="muted small">${one.words} ${one.status === "ACTIVE" ? html`<span class="nowrap">next <${When} at=${one.next_fire_at} as="countdown" none="after its run" /></span>`
        : html`<span class="badge is-off">${one.status.toLowerCase()}</span>`}</div></li>`)}
    ${count > schedules.length && html`<li><a href=${href("/schedules", { q: job.name })}>${(count - schedules.length).toLocaleString("en")} more</a></li>`}</ul>`;
}

function Nothing({ query }) {
  if (FILTERS.some((name) => query[name])) {
    return html`<${Empty} title="No job fits these filters">
      <button onClick=${() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])))}>Show all jobs</button><//>`;
  }
  return html`<${Empty} title="No job is known yet">Put a file into <code>jobs.d</code>, or start your program:
    <code>rota up module:app</code>. A job is known once a process has registered it.<//>`;
}
