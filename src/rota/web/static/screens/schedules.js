// Every schedule: in words, when it fires next, and what became of its last occurrences.
import { html, useState } from "../lib/html.js";
import { attempt, get, name, post } from "../lib/api.js";
import { anything, useLoad } from "../lib/load.js";
import { href, part, setQuery } from "../lib/router.js";
import { can } from "../lib/session.js";
import { toast } from "../lib/toast.js";
import { Badge } from "../parts/badge.js";
import { Chip, Choice, Search } from "../parts/chips.js";
import { ask } from "../parts/dialog.js";
import { Empty } from "../parts/empty.js";
import { Card, Page } from "../parts/page.js";
import { jobLink } from "../parts/run-bits.js";
import { Strip } from "../parts/strip.js";
import { Pager, Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { createSchedule } from "../parts/schedule-form.js";

const LIMIT = 50;
const STATUSES = ["ACTIVE", "PAUSED", "BROKEN", "DISABLED", "FINISHED"].map((value) => ({ value, label: value.toLowerCase() }));

export default function Schedules({ query }) {
  const { q, status, job, sort, after } = query;
  const { data, error, reload } = useLoad(
    (signal) => get("/schedules", { q, status, job, sort, after, recent: 30, limit: LIMIT }, { signal }),
    [q, status, job, sort, after], { on: anything, every: 20 },
  );
  const [selected, setSelected] = useState(new Set());
  const rows = data?.items;
  const operator = can("operator");
  const choose = (key, yes) => setSelected((before) => {
    const next = new Set(before);
    if (yes) next.add(key); else next.delete(key);
    return next;
  });
  const all = (yes) => setSelected(new Set(yes ? rows.map((row) => row.name) : []));
  const columns = [
    { label: "Schedule", lead: true, sort: "name", cell: (one) => html`<a href=${href(`/schedules/${part(one.name)}`)}>${one.name}</a>${one.job !== one.name && html`<div class="muted small">${jobLink(one.job)}</div>`}` },
    { label: "Status", fit: true, cell: (one) => html`<${Status} one=${one} />` },
    { label: "When", cell: (one) => html`<span title=${`${one.kind} ${one.expr} ${one.timezone}`}>${one.words}</span>` },
    { label: "Next", fit: true, sort: "next", cell: (one) => html`<${Next} one=${one} />` },
    { label: "Last 30", fit: true, cell: (one) => html`<${Strip} outcomes=${one.recent} label=${`Last outcomes of ${one.name}`} />` },
    { label: "Last", fit: true, sort: "last", cell: (one) => html`<${When} at=${one.last_fired_at} of=${one} none="never" />` },
    ...(operator ? [{ label: "", fit: true, cell: (one) => html`<${Switch} one=${one} done=${reload} />` }] : []),
  ];
  const filtered = q || status || job;
  const empty = filtered
    ? html`<${Empty} title="No schedule matches"><button onClick=${() => setQuery({ q: null, status: null, job: null })}>Take the filters off</button><//>`
    : html`<${Empty} title="There is no schedule yet">Put <code>schedule = "0 3 * * *"</code> into a job of <code>jobs.d</code>, or: <code>rota schedule NAME --job JOB --cron "0 3 * * *"</code><//>`;
  return html`<${Page} title="Schedules" actions=${operator && html`<button onClick=${() => createSchedule(reload)}>New schedule…</button>`}>
    <div class="chips">
      <${Search} query=${query} label="Search schedules and jobs" />
      <${Choice} name="status" query=${query} options=${STATUSES} label="Status" />
      <${Chip} name="job" query=${query} />
    </div>
    ${operator && selected.size > 0 && html`<${Bulk} names=${[...selected]} done=${() => { setSelected(new Set()); reload(); }} />`}
    ${operator && selected.size === 0 && filtered && rows?.length > 0 && html`<${BulkAll} query=${query} done=${reload} />`}
    <${Card} flush label="Schedules">
      <${Table} label="Schedules" columns=${columns} rows=${rows} error=${error} keyOf=${(one) => one.name} empty=${empty}
        sorted=${{ by: sort ?? "name", down: sort === "last" }} onSort=${(by) => setQuery({ sort: by === "name" ? null : by })}
        selected=${operator ? selected : null} onSelect=${choose} onAll=${all} />
      <${Pager} page=${data} query=${query} name="after" first="First" />
    <//>
  <//>`;
}

export function Status({ one }) {
  const why = one.status === "PAUSED" ? `by ${one.paused_by ?? "?"}${one.paused_reason ? `: ${one.paused_reason}` : ""}` : one.status === "BROKEN" ? one.error : one.status === "DISABLED" ? ("enabled" in one.edits ? "disabled here, not in its code or file" : "enabled = false in its definition") : null;
  return html`<${Badge} state=${one.status} title=${why} />${one.running > 0 && html` <${Badge} state="running" />`}
    ${why && html`<div class="muted small why" title=${why}>${why}</div>`}`;
}

function Next({ one }) {
  if (one.waits_for_run) return html`<span class="muted">after its run ends</span>`;
  if (one.status !== "ACTIVE") return html`<span class="muted">${one.status === "FINISHED" ? "never again" : `not while ${one.status.toLowerCase()}`}</span>`;
  return html`<b><${When} at=${one.next_fire_at} of=${one} as="countdown" /></b>`;
}

export async function pause(one) {
  const told = await ask({ title: `Pause ${one.name}`, text: "It makes no more runs until somebody resumes it. Runs that are made already go on.", verb: "Pause", reason: "optional" });
  if (!told) return false;
  const done = await attempt(() => post(`/schedules/${name(one.name)}/pause`, told));
  if (done) toast(`Schedule ${one.name} is paused.`);
  return Boolean(done);
}

export async function resume(one) {
  const told = await ask({
    title: `Resume ${one.name}`, verb: "Resume", reason: "optional",
    fields: [{ name: "catch_up", label: "What was missed meanwhile", options: [{ value: "none", label: "is not made up for" }, { value: "one", label: "is made up for by one run" }, { value: "all", label: "is made up for, each occurrence" }], value: "none" }],
  });
  if (!told) return false;
  const done = await attempt(() => post(`/schedules/${name(one.name)}/resume`, told));
  if (done) toast(`Schedule ${one.name} fires again.`);
  return Boolean(done);
}

function Switch({ one, done }) {
  const act = async () => { if (await (one.paused ? resume(one) : pause(one))) done(); };
  return html`<button onClick=${act} aria-label=${`${one.paused ? "Resume" : "Pause"} ${one.name}`}>${one.paused ? "Resume…" : "Pause…"}</button>`;
}

// One after the other, each with its own row in the audit; what is so already is left out.
async function each(names, verb, told) {
  let count = 0;
  for (const one of names) {
    if ((await attempt(() => post(`/schedules/${name(one)}/${verb}`, told))) !== undefined) count += 1;
  }
  toast(`${count} of ${names.length} ${names.length === 1 ? "schedule" : "schedules"} ${verb === "pause" ? "paused" : "resumed"}.`);
}

function Bulk({ names, done }) {
  const act = async (verb) => {
    const told = await ask({ title: `${verb === "pause" ? "Pause" : "Resume"} ${names.length} ${names.length === 1 ? "schedule" : "schedules"}`, text: names.slice(0, 12).join(", ") + (names.length > 12 ? "…" : ""), verb: verb === "pause" ? "Pause" : "Resume", reason: "required" });
    if (!told) return;
    await each(names, verb, told);
    done();
  };
  return html`<div class="notice is-run bulk" role="region" aria-label="Selected schedules"><b>${names.length} selected</b>
    <button onClick=${() => act("pause")}>Pause…</button><button onClick=${() => act("resume")}>Resume…</button><button class="plain" onClick=${done}>Clear</button></div>`;
}

// Everything that the filters find, page by page: what is on the screen is only the first of it.
function BulkAll({ query, done }) {
  const act = async (verb) => {
    const { q, status, job } = query;
    const names = [];
    let after = "";
    const found = await attempt(async () => {
      do {
        const page = await get("/schedules", { q, status, job, after, limit: 500 });
        names.push(...page.items.filter((one) => one.paused === (verb === "resume")).map((one) => one.name));
        after = page.next;
      } while (after);
      return true;
    });
    if (!found) return;
    if (names.length === 0) { toast(`All that match are ${verb === "pause" ? "paused" : "on"} already.`); return; }
    const told = await ask({ title: `${verb === "pause" ? "Pause" : "Resume"} all ${names.length} that match`, text: names.slice(0, 12).join(", ") + (names.length > 12 ? "…" : ""), verb: verb === "pause" ? "Pause all" : "Resume all", danger: verb === "pause", reason: "required" });
    if (!told) return;
    await each(names, verb, told);
    done();
  };
  return html`<div class="row bulk"><span class="muted">All that match:</span><button onClick=${() => act("pause")}>Pause all…</button><button onClick=${() => act("resume")}>Resume all…</button></div>`;
}
