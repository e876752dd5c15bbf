// Dead runs, those of one job and one error together: look at a group, then do one thing to all of it.
import { html } from "../lib/html.js";
import { get, name } from "../lib/api.js";
import { refresh } from "../lib/health.js";
import { aboutActions, aboutRuns, useLoad } from "../lib/load.js";
import { href, setQuery } from "../lib/router.js";
import { can } from "../lib/session.js";
import { Chip, Search } from "../parts/chips.js";
import { ask } from "../parts/dialog.js";
import { Empty, Failed } from "../parts/empty.js";
import { Work, doMany, work } from "../parts/many.js";
import { Card, Page } from "../parts/page.js";
import { jobLink, runLink } from "../parts/run-bits.js";
import { Pager, Table } from "../parts/table.js";
import { When } from "../parts/when.js";

const SHOWN = 100;
const runsOf = (groups) => groups.reduce((sum, one) => sum + one.runs, 0);
const counted = (count) => `${count.toLocaleString("en")} dead ${count === 1 ? "run" : "runs"}`;

export default function Dead({ query }) {
  const { data, error, reload } = useLoad(
    (signal) => get("/dead", {}, { signal }), [],
    { on: (event) => aboutRuns(event) || aboutActions(event), every: 30 },
  );
  const words = (query.q ?? "").toLowerCase();
  const groups = data?.groups.filter((one) => (!query.job || one.job === query.job)
    && (!words || one.error.toLowerCase().includes(words) || one.job.toLowerCase().includes(words)));
  const filtered = Boolean(words || query.job);
  const act = async (verb, some) => {
    const count = runsOf(some);
    const what = some.length === 1 ? `${counted(count)} of ${some[0].job}` : `${counted(count)} in ${some.length} groups`;
    const more = data.more && "More may have died than were looked at: all that belong to the group are taken.";
    const told = await ask(verb === "redo"
      ? { title: `Redo ${what}`, text: ["They start over, with the arguments they had.", more].filter(Boolean).join(" "), verb: "Redo all", reason: "optional", fields: [{ name: "latest", label: "With the files as they are now", type: "checkbox", hint: "SQL jobs keep the files they began with; tick this after you have mended them." }] }
      : { title: `Delete ${what}`, text: ["They and their logs are gone for ever.", more].filter(Boolean).join(" "), verb: "Delete all", danger: true, reason: "optional" });
    if (!told) return;
    const filters = some.map((one) => ({ state: "dead", group: one.group, ...(verb === "redo" && told.latest && { latest: true }) }));
    await doMany(verb, filters, { title: `${verb === "redo" ? "Redo" : "Delete"} ${what}`, total: data.more ? null : count, reason: told.reason });
    reload();
    refresh();
  };
  const busy = work.value !== null && !work.value.over;
  const buttons = (some, label) => html`<button disabled=${busy} aria-label="Redo all ${label}" onClick=${() => act("redo", some)}>Redo all…</button>
    <button class="danger" disabled=${busy} aria-label="Delete all ${label}" onClick=${() => act("delete", some)}>Delete all…</button>`;
  const chosen = data?.groups.find((one) => one.group === query.group);
  return html`<${Page} title="Dead letters" badge=${data && html`<span class="muted small">${counted(runsOf(data.groups))}${data.more ? " or more" : ""} in ${data.groups.length} ${data.groups.length === 1 ? "group" : "groups"}</span>`}
      actions=${can("operator") && groups?.length > 0 && html`<span class="row"><span class="muted small">${filtered ? "What is shown" : "Everything"}:</span>${buttons(groups, filtered ? "that are shown" : "that are dead")}</span>`}>
    <div class="chips">
      <${Search} query=${query} label="Search errors" placeholder="Error or job" />
      <${Chip} name="job" query=${query} />
    </div>
    <div class="grid">
      <${Work} />
      ${data?.more && html`<p class="muted small">The newest ${data.looked_at.toLocaleString("en")} dead runs are grouped; the older ones come into sight when these are done.</p>`}
      <${Card} flush label="Groups of dead runs">
        <${Table} label="Groups of dead runs" rows=${groups?.slice(0, SHOWN)} error=${error} keyOf=${(one) => one.group} rowClass=${(one) => (one.group === query.group ? "chosen" : null)} columns=${[
          { label: "Error", lead: true, cell: (one) => html`<button class="link dead-error" aria-expanded=${String(one.group === query.group)} title=${one.error}
            onClick=${() => setQuery({ group: one.group === query.group ? null : one.group })}>${one.error || "without a word"}</button>` },
          { label: "Job", cell: (one) => html`<span class="named">${jobLink(one.job)}</span>` },
          { label: "Runs", right: true, cell: (one) => html`<b class="number">${one.runs.toLocaleString("en")}</b>` },
          { label: "First", cell: (one) => html`<${When} at=${one.first_at} />` },
          { label: "Last", cell: (one) => html`<span><${When} at=${one.last_at} /> ${runLink(one.last_run)}</span>` },
          { label: "", fit: true, cell: (one) => can("operator") && html`<span class="row tight">${buttons([one], `${counted(one.runs)} of ${one.job}`)}</span>` },
        ]} empty=${html`<${Nothing} filtered=${filtered} />`} />
        ${groups?.length > SHOWN && html`<p class="muted small body">The largest ${SHOWN} of ${groups.length.toLocaleString("en")} groups are shown; search for the others.</p>`}
      <//>
      ${query.group && html`<${Group} key=${query.group} group=${chosen} id=${query.group} query=${query} />`}
    </div>
  <//>`;
}

function Group({ group, id, query }) {
  const { data, error } = useLoad(
    (signal) => get(`/dead/${name(id)}`, { before: query.before, limit: 25 }, { signal }),
    [id, query.before], { on: (event) => aboutRuns(event) || aboutActions(event) },
  );
  const title = group ? `Runs of ${group.job} that died of this` : "Runs of this group";
  return html`<${Card} title=${title} flush actions=${html`<button class="plain" onClick=${() => setQuery({ group: null })}>Close</button>`}>
    ${!data ? (error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`) : html`
      <${Table} label=${title} rows=${data.items} keyOf=${(run) => run.id} columns=${[
        { label: "Run", lead: true, cell: (run) => runLink(run.id) },
        { label: "Died", cell: (run) => html`<${When} at=${run.finished_at} />` },
        { label: "Error", cell: (run) => html`<pre class="error-text" tabindex="0">${run.error}</pre>` },
      ]} empty=${html`<${Empty} title="No run of this group is left">They were redone or deleted. <a href=${href("/dead")}>All groups</a><//>`} />
      <${Pager} page=${data} query=${query} />`}
  <//>`;
}

function Nothing({ filtered }) {
  if (filtered) return html`<${Empty} title="No dead run fits these filters"><button onClick=${() => setQuery({ q: null, job: null })}>Show all</button><//>`;
  return html`<${Empty} title="Nothing is dead">A run that is out of attempts comes here, with its error; until then there is nothing to do.<//>`;
}
