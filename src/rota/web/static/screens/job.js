// One job: its policies, what became of its runs, and a form to run it.
import { html } from "../lib/html.js";
import { get, name } from "../lib/api.js";
import { overview } from "../lib/health.js";
import { aboutActions, aboutRuns, useLoad } from "../lib/load.js";
import { href } from "../lib/router.js";
import { can } from "../lib/session.js";
import { Badge } from "../parts/badge.js";
import { Empty, Failed, Notice } from "../parts/empty.js";
import { Broken, JobState, retired, source } from "../parts/job-bits.js";
import { Card, Facts, Page } from "../parts/page.js";
import { RunState, errorLine, runLink, scheduleLink } from "../parts/run-bits.js";
import { RunForm } from "../parts/run-form.js";
import { Strip } from "../parts/strip.js";
import { Table } from "../parts/table.js";
import { Took, When } from "../parts/when.js";

const RUNS = 30;
const SHOWN = 10;
const SCHEDULES = 20;

export default function Job({ params }) {
  const job = useLoad((signal) => get(`/jobs/${name(params.name)}`, {}, { signal }), [params.name], { on: aboutActions, every: 5 });
  const runs = useLoad((signal) => get("/runs", { job: params.name, limit: RUNS }, { signal }), [params.name], { on: (event) => aboutRuns(event) && (event.data.name ?? params.name) === params.name });
  if (!job.data) {
    return html`<${Page} title=${params.name} of="jobs">${job.error?.status === 404
      ? html`<${Empty} title="There is no such job"><p>No process has registered it. Start the program that has it, or put its file into <code>jobs.d</code>.</p><a href=${href("/jobs")}>All jobs</a><//>`
      : job.error ? html`<${Failed} error=${job.error} again=${job.reload} />` : html`<${Empty} title="Loading…" />`}<//>`;
  }
  const told = job.data;
  return html`<${Page} title=${told.name} of="jobs" badge=${html`<${JobState} job=${told} />`}>
    <div class="grid">
      ${told.description && html`<p class="prose">${told.description}</p>`}
      <${Why} job=${told} />
      <div class="grid side">
        <div class="grid">
          <${Runs} job=${told} runs=${runs} />
          <${Card} title="Run it"><${Start} job=${told} made=${runs.reload} /><//>
        </div>
        <div class="grid">
          <${Card} title="Policies"><${Policies} job=${told} /><//>
          <${Schedules} job=${told} />
        </div>
      </div>
    </div>
  <//>`;
}

function Start({ job, made }) {
  if (retired(job)) return html`<p class="muted">Its files are gone: there is nothing to run. Its history stays.</p>`;
  if (job.good_at === null && job.error) return html`<p class="muted">No version of it could ever be used. Mend its file; it is read again at once.</p>`;
  if (!can("operator")) return html`<p class="muted">To run it takes the role of an operator: log in with a token that has it, or <code>rota run ${job.name}</code> where Rota runs.</p>`;
  return html`<${RunForm} key=${job.name} job=${job} made=${made} />`;
}

// What keeps it from running, or from running as it is written.
function Why({ job }) {
  const waiting = overview.value?.problems.filter((one) => one.kind === "waiting" && one.name === job.name) ?? [];
  return html`${job.error && html`<div class="notice is-${retired(job) ? "off" : "bad"}" role="status"><${Broken} job=${job} /></div>`}
    ${!job.enabled && !job.error && html`<${Notice}>It is disabled by its definition: its schedules do not fire. Set <code>enabled = true</code> there.<//>`}
    ${waiting.map((one) => html`<${Notice} key=${one.message}>${one.message}, oldest due <${When} at=${one.since} />.<//>`)}`;
}

function Runs({ job, runs }) {
  const rows = runs.data?.items;
  const ended = (rows ?? []).map((run) => ({ occurrence: run.created_at, state: run.state, run_id: run.id, reason: errorLine(run.error) }));
  return html`<${Card} title="Latest runs" flush actions=${html`<${Strip} outcomes=${ended} most=${RUNS} label="The last ${RUNS} runs" /><a href=${href("/runs", { job: job.name })}>all</a>`}>
    <${Table} label="Latest runs" rows=${rows?.slice(0, SHOWN)} error=${runs.error} keyOf=${(run) => run.id} columns=${[
      { label: "Run", lead: true, cell: (run) => runLink(run.id) },
      { label: "State", cell: (run) => html`<${RunState} run=${run} />` },
      { label: "Made", cell: (run) => html`<${When} at=${run.created_at} />` },
      { label: "Took", right: true, cell: (run) => html`<${Took} from=${run.started_at} to=${run.finished_at} running=${run.state === "running"} />` },
      { label: "By", cell: (run) => (run.schedule ? scheduleLink(run.schedule) : html`<span>${run.created_by ?? "–"}</span>`) },
      { label: "Error", cell: (run) => run.error && run.state !== "succeeded" && html`<span class="two-lines tone is-bad" title=${run.error}>${errorLine(run.error)}</span>` },
    ]} empty=${html`<${Empty} title="It has not run yet">Run it, or give it a schedule: <code>rota schedule NAME --job ${job.name} --every 1h</code><//>`} />
  <//>`;
}

function Policies({ job }) {
  const { policies } = job;
  const attempts = policies.max_attempts;
  const word = (value) => (value == null ? null : typeof value === "object" ? JSON.stringify(value) : String(value));
  const known = new Set(["max_attempts", "backoff", "delay", "max_delay", "jitter", "isolation", "concurrency_key", "concurrency_limit"]);
  const backoff = [policies.backoff, policies.delay && `from ${policies.delay}`, policies.max_delay && `to ${policies.max_delay}`, policies.jitter && `± ${policies.jitter}`];
  return html`<${Facts} rows=${[
    ["Runs as", html`<a href=${href("/jobs", { executor: job.executor })}>${job.executor}</a>`],
    ["From", source(job)],
    ["Tags", job.tags.length ? job.tags.join(", ") : null],
    ["Queue", html`<a href=${href("/jobs", { queue: job.queue })}>${job.queue}</a>`],
    ["Priority", job.priority],
    ["Timeout", job.timeout ?? "none"],
    ["Attempts", attempts === 1 ? "one, no retry" : word(attempts)],
    ["Between them", attempts === 1 ? null : backoff.filter(Boolean).map(word).join(", ")],
    ["Isolation", word(policies.isolation)],
    ["At once", policies.concurrency_key ? `${policies.concurrency_limit} with the key ${policies.concurrency_key}` : null],
    ...Object.entries(policies).filter(([key]) => !known.has(key)).map(([key, value]) => [key.replaceAll("_", " "), word(value)]),
    ["Version", html`<code>${job.version.slice(0, 8)}</code>${job.version_at && html` <span class="muted">since <${When} at=${job.version_at} /></span>`}`],
  ]} />`;
}

function Schedules({ job }) {
  const { data, error } = useLoad((signal) => get("/schedules", { job: job.name, limit: SCHEDULES }, { signal }), [job.name], { on: aboutActions, every: 30 });
  return html`<${Card} title="Schedules" flush>
    ${!data ? (error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`) : data.items.length === 0
      ? html`<${Empty} title="No schedule">It runs when it is asked to. To give it one: <code>rota schedule NAME --job ${job.name} --cron "0 3 * * *"</code><//>`
      : html`<ul class="lines">${data.items.map((one) => html`<li key=${one.name}>
          <span class="grow">${scheduleLink(one.name)}<br /><small class="muted">${one.words}</small></span>
          ${one.status === "ACTIVE" ? html`<span class="number"><${When} at=${one.next_fire_at} of=${one} as="countdown" none="after its run" /></span>`
            : html`<${Badge} state=${one.status} title=${one.paused_reason ?? one.error} />`}</li>`)}
        ${data.next !== null && html`<li><a href=${href("/schedules", { q: job.name })}>more</a></li>`}</ul>`}
  <//>`;
}
