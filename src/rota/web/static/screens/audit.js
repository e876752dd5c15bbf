// Who did what, from where, and what it changed.
import { html } from "../lib/html.js";
import { get } from "../lib/api.js";
import { aboutActions, useLoad } from "../lib/load.js";
import { href, part, setQuery } from "../lib/router.js";
import { Chip, Search } from "../parts/chips.js";
import { Diff } from "../parts/diff.js";
import { Empty } from "../parts/empty.js";
import { Card, Page } from "../parts/page.js";
import { runLink } from "../parts/run-bits.js";
import { Pager, Table } from "../parts/table.js";
import { When } from "../parts/when.js";

const FILTERS = ["q", "by", "action"];
const ACTIONS = [
  "enqueue", "trigger", "cancel_run", "redo_run", "pause_run", "resume_run", "delete_run", "create_schedule", "alter_schedule", "pause_schedule",
  "resume_schedule", "disable_schedule", "drop_schedule", "pause_queue", "resume_queue", "pause_dispatch", "resume_dispatch", "put_job", "drop_job",
  "create_token", "revoke_token", "delete_file", "adopt", "prune", "bench",
];
const RUN_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-/;

export default function Audit({ query }) {
  const { data, error } = useLoad(
    (signal) => get("/audit", { q: query.q, by: query.by, action: query.action, before: query.before, limit: 50 }, { signal }),
    [query.q, query.by, query.action, query.before],
    { on: aboutActions },
  );
  return html`<${Page} title="Audit">
    <div class="chips">
      <${Search} query=${query} label="Search the audit" placeholder="Thing or reason" />
      <label><span class="muted">Action</span><select value=${query.action ?? ""} onChange=${(event) => setQuery({ action: event.target.value || null })}>
        <option value="">all</option>
        ${[...new Set([...ACTIONS, ...(data?.items ?? []).map((row) => row.action), ...(query.action ? [query.action] : [])])].map((one) => html`<option key=${one} value=${one}>${words(one)}</option>`)}
      </select></label>
      <${Chip} name="by" query=${query} label="who" /><${Chip} name="action" query=${query} />
    </div>
    <${Card} flush label="Audit">
      <${Table} label="Audit" rows=${data?.items} error=${error} keyOf=${(row) => row.id} columns=${[
        { label: "When", fit: true, cell: (row) => html`<div><${When} at=${row.at} as="stamp" /><br /><small class="muted"><${When} at=${row.at} /></small></div>` },
        { label: "Who", cell: (row) => html`<div><button class="link" title="Only what this one did" onClick=${() => setQuery({ by: row.by })}>${row.by}</button><br /><small class="muted">${row.via}</small></div>` },
        { label: "What", lead: true, cell: (row) => html`<div class="what"><button class="link" title="Only actions of this kind" onClick=${() => setQuery({ action: row.action })}>${words(row.action)}</button>${" "}<${Thing} row=${row} />
          ${row.reason && html`<div class="reason">${row.reason}</div>`}</div>` },
        { label: "Change", cell: (row) => (RUN_ID.test(row.after) ? html`<span><span class="muted">run</span> ${runLink(row.after)}</span>` : html`<${Diff} before=${row.before} after=${row.after} />`) },
      ]} empty=${html`<${Nothing} query=${query} />`} />
      <${Pager} page=${data} query=${query} />
    <//>
  <//>`;
}

const words = (action) => action.replaceAll("_", " ");

// The thing, and the way to it if there is one.
function Thing({ row: { action, thing } }) {
  if (RUN_ID.test(thing)) return runLink(thing);
  if (action.endsWith("_queue")) return html`<a href=${href("/queues")}>${thing}</a>`;
  if (action.endsWith("_schedule") && action !== "drop_schedule") return html`<a href=${href(`/schedules/${part(thing)}`)}>${thing}</a>`;
  if (action.endsWith("_job") || action === "enqueue") return html`<a href=${href(`/jobs/${part(thing)}`)}>${thing}</a>`;
  return html`<b>${thing}</b>`;
}

function Nothing({ query }) {
  if (query.before) return html`<${Empty} title="Nothing is older than this"><button onClick=${() => setQuery({ before: null })}>To the newest</button><//>`;
  if (FILTERS.some((name) => query[name])) {
    return html`<${Empty} title="Nobody did anything that fits these filters">
      <button onClick=${() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])))}>Show all</button><//>`;
  }
  return html`<${Empty} title="Nobody has changed anything yet">Every pause, run, redo and change will be here, with who, why, before and after. Try one: <code>rota pause SCHEDULE --reason "…"</code><//>`;
}
