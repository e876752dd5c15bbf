// One schedule: when it fires, why it did not, how long it takes, who changed it.
import { html } from "../lib/html.js";
import { attempt, get, name, post, remove } from "../lib/api.js";
import { now } from "../lib/clock.js";
import { anything, useLoad } from "../lib/load.js";
import { go, href, part, setQuery } from "../lib/router.js";
import { can } from "../lib/session.js";
import { absolute, day, duration, hour, parse, second } from "../lib/time.js";
import { toast } from "../lib/toast.js";
import { Badge, tone } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { ask } from "../parts/dialog.js";
import { Diff } from "../parts/diff.js";
import { Empty, Failed, Notice } from "../parts/empty.js";
import { Card, Facts, Page } from "../parts/page.js";
import { jobLink, runLink } from "../parts/run-bits.js";
import { editSchedule } from "../parts/schedule-form.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { pause, resume } from "./schedules.js";

export default function Schedule({ params, query }) {
  const path = `/schedules/${name(params.name)}`;
  const concerns = (event) => event.data?.schedule_name === params.name || event.type === "action";
  const one = useLoad((signal) => get(path, {}, { signal }), [params.name], { on: concerns, every: 30 });
  const told = useLoad((signal) => get(`${path}/explain`, { count: 10 }, { signal }), [params.name], { on: concerns, every: 15 });
  if (!one.data) {
    return html`<${Page} title=${params.name} of="schedules">${one.error ? html`<${Failed} error=${one.error} again=${one.reload} />` : html`<${Empty} title="Loading…" />`}<//>`;
  }
  const reload = () => { one.reload(); told.reload(); };
  return html`<${Page} title=${params.name} of="schedules" badge=${html`<${Badge} state=${one.data.status} />`} actions=${can("operator") && html`<${Actions} one=${one.data} reload=${reload} />`}>
    <div class="grid">
      <${Reasons} one=${one.data} told=${told.data} />
      <div class="grid side">
        <${Coming} one=${one.data} told=${told.data} error=${told.error} />
        <${Definition} one=${one.data} />
      </div>
      <${Ledger} path=${path} schedule=${params.name} query=${query} concerns=${concerns} />
      <${Durations} path=${path} schedule=${params.name} concerns=${concerns} />
      <${Changes} path=${path} concerns=${concerns} />
    </div>
  <//>`;
}

function Actions({ one, reload }) {
  const run = async () => {
    const told = await ask({ title: `Run ${one.name} now`, text: "Makes a run at once; its next time stays as it is.", verb: "Run now", fields: [{ name: "force", type: "checkbox", label: "Also beside one that runs already" }] });
    const made = told && (await attempt(() => post(`/schedules/${name(one.name)}/trigger`, { force: told.force })));
    if (made) { toast("A run is made.", { link: { href: href(`/runs/${part(made.id)}`), label: "look at it" } }); reload(); }
  };
  const drop = async () => {
    const told = await ask({ title: `Drop ${one.name}`, text: "It fires no more. Its ledger, its changes and the runs it made stay.", verb: "Drop", danger: true, reason: "required" });
    if (told && (await attempt(() => remove(`/schedules/${name(one.name)}`, { reason: told.reason }))) !== undefined) { toast(`Schedule ${one.name} is dropped.`); go("/schedules"); }
  };
  const turn = async () => { if (await (one.paused ? resume(one) : pause(one))) reload(); };
  return html`<button class="primary" onClick=${run}>Run now…</button><button onClick=${turn}>${one.paused ? "Resume…" : "Pause…"}</button>
    <button onClick=${() => editSchedule(one, reload)}>Edit…</button><button class="danger" onClick=${drop}>Drop…</button>`;
}

function Reasons({ one, told }) {
  if (!told?.reasons.length) return null;
  const halted = one.status !== "ACTIVE";
  return html`<${Notice} tone=${one.status === "BROKEN" ? "bad" : halted ? "halt" : "run"}><b>${halted ? "Why it does not fire" : "What the next run meets"}</b>
    <ul class="dots">${told.reasons.map((reason) => html`<li key=${reason}>${reason}</li>`)}</ul><//>`;
}

function Coming({ one, told, error }) {
  if (!told) return html`<${Card} title="Next times">${error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`}<//>`;
  return html`<${Card} title=${html`Next times <span class="muted">${told.words}</span>`} label="Next times" flush>
    ${told.coming.length === 0 ? html`<${Empty} title=${one.waits_for_run ? "After its run ends" : "None is known"}>${one.waits_for_run ? `It fires ${one.expr} after the end of each run.` : "The reason stands above."}<//>`
      : html`<ol class="lines times">${told.coming.map((time) => html`<li key=${time.at}>
        <code class="nowrap">${local(time.at)}</code><span class="muted"><${When} at=${time.at} as="countdown" /></span>
        ${time.note && html`<span class="is-warn tone">${time.note}</span>`}</li>`)}</ol>`}
  <//>`;
}

// As its own zone has it: the API writes that offset.
const local = (text) => text.replace("T", " ").replace(/\.\d+/, "").replace("Z", " UTC");

function Definition({ one }) {
  return html`<${Card} title="Definition"><${Facts} rows=${[
    ["Job", jobLink(one.job)],
    ["When", html`<code>${one.expr}</code> (${one.kind})`],
    ["Time zone", `${one.timezone}${one.kind === "cron" ? `, ${one.dst} at clock changes` : ""}`],
    ["Overlap", `${one.overlap}${one.queue_max != null ? `, at most ${one.queue_max} wait` : ""}`],
    ["When a run dies", `${one.on_error}${one.pause_after ? `; paused after ${one.pause_after}` : ""}`],
    ["After downtime", one.catch_up],
    ["Jitter", one.jitter !== "0s" && one.jitter],
    ["Spread", one.spread !== "0s" && one.spread],
    ["Starts", one.starts_at], ["Ends", one.ends_at],
    ["Arguments", Object.keys(one.args ?? {}).length > 0 && html`<code>${JSON.stringify(one.args)}</code>`],
    ["Paused", one.paused && html`<span>by ${one.paused_by} <${When} at=${one.paused_at} />${one.paused_reason && html`: “${one.paused_reason}”`}</span>`],
    ["Edited", Object.keys(one.edits).length > 0 && html`<span>since it was registered: its code or file says <code>${Object.entries(one.edits).map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join(", ")}</code>; it stays as it is until that changes</span>`],
    ["Owner", one.owner], ["Last fired", html`<${When} at=${one.last_fired_at} of=${one} none="never" />`],
    ["Created", html`<${When} at=${one.created_at} />`], ["Last message", one.state],
  ]} /><//>`;
}

// The ledger as a calendar: one column an hour of the day, one row a day; each dot is what became of
// an occurrence. "Why did it not run at 02:00?" is a click.
function Ledger({ path, schedule, query, concerns }) {
  const { data, error } = useLoad((signal) => get(`${path}/occurrences`, { limit: 500, before: query.before }, { signal }), [path, query.before], { on: concerns, every: 30 });
  const why = async (event) => {
    event.preventDefault();
    const at = new Date(event.target.elements.at.value);
    if (Number.isNaN(at.getTime())) return;
    const told = await attempt(() => get(`${path}/why`, { at: at.toISOString() }));
    if (told) ask({ title: `What became of it at ${second(at)}?`, text: told.told, verb: "Close" });
  };
  const form = html`<form class="row" onSubmit=${why}><label class="row small">Why did it not run at <input name="at" type="datetime-local" step="1" required defaultValue=${input(now.peek())} /></label><button>Ask</button></form>`;
  if (!data) return html`<${Card} title="What became of every occurrence">${error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`}<//>`;
  if (data.items.length === 0) return html`<${Card} title="What became of every occurrence" actions=${form}><${Empty} title="It has not been due yet">Its first occurrence will appear here, whatever becomes of it.<//><//>`;
  const calendar = arrange(data.items);
  const { drawn } = calendar;
  const last = drawn.at(-1).occurrence;
  const counts = new Map();
  for (const one of drawn) counts.set(one.outcome, (counts.get(one.outcome) ?? 0) + (one.count ?? 1));
  return html`<${Card} title="What became of every occurrence" actions=${form}>
    <${Calendar} ...${calendar} />
    <p class="row small muted">${[...counts].map(([outcome, count]) => html`<span key=${outcome} class="row ${tone(outcome)}"><span class="dot"></span>${count.toLocaleString("en")} ${outcome}</span>`)}
      <span>since <${When} at=${last} as="stamp" /></span>
      ${(data.next || drawn.length < data.items.length) && html`<button class="link" onClick=${() => setQuery({ before: last })}>earlier ›</button>`}
      ${query.before && html`<button class="link" onClick=${() => setQuery({ before: null })}>« newest</button>`}
      <a href=${href("/runs", { schedule })}>its runs</a></p>
    <${Odd} items=${drawn} />
  <//>`;
}

const input = (at) => { const date = new Date(at); return `${day(date)}T${hour(date)}:00`; };

const ROWS = 14;
const A_CELL = 8; // dots that are drawn in one cell; of more the counts
const OFTEN = 30 * 60_000; // who fires more often than that has a row for each hour, not each day

// The rows that fit, and of the items those that are in them: the next page begins after the last one.
function arrange(items) {
  const span = parse(items[0].occurrence) - parse(items.at(-1).occurrence);
  const often = items.length > 1 && span / (items.length - 1) < OFTEN;
  const columns = often ? 12 : 24;
  const rows = new Map();
  const drawn = [];
  for (const one of items) {
    const date = new Date(parse(one.occurrence));
    const key = often ? `${day(date)} ${String(date.getHours()).padStart(2, "0")} h` : day(date);
    if (!rows.has(key)) { if (rows.size >= ROWS) break; rows.set(key, Array.from({ length: columns }, () => [])); }
    rows.get(key)[often ? Math.floor(date.getMinutes() / 5) : date.getHours()].push(one);
    drawn.push(one);
  }
  return { often, columns, rows, drawn };
}

function Calendar({ often, columns, rows }) {
  const heads = Array.from({ length: columns }, (_, at) => (often ? `:${String(at * 5).padStart(2, "0")}` : String(at).padStart(2, "0")));
  return html`<div class="scroll"><table class="calendar" aria-label=${often ? "Occurrences by hour and minute" : "Occurrences by day and hour"}>
    <thead><tr><th scope="col">${often ? "Hour" : "Day"}</th>${heads.map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
    <tbody>${[...rows].map(([key, cells]) => html`<tr key=${key}><th scope="row" class="nowrap">${key}</th>
      ${cells.map((list, at) => html`<td key=${at}><${Occurrences} list=${list} /></td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function Occurrences({ list }) {
  if (list.length <= A_CELL) return html`<span class="dots">${[...list].reverse().map((one) => html`<${Dot} key=${one.occurrence} one=${one} />`)}</span>`;
  const counts = new Map();
  for (const one of list) counts.set(one.outcome, (counts.get(one.outcome) ?? 0) + (one.count ?? 1));
  return html`<span class="dots">${[...counts].map(([outcome, count]) => html`<span key=${outcome} class="count ${tone(outcome)}" title=${`${count} ${outcome}`}>${count}</span>`)}</span>`;
}

function Dot({ one }) {
  const stretch = (one.count ?? 1) > 1 ? ` to ${absolute(parse(one.last_occurrence))} (${one.count})` : "";
  const title = `${absolute(parse(one.occurrence))}${stretch}: ${one.outcome}${one.reason ? `, ${one.reason}` : ""}`;
  return one.run_id
    ? html`<a class="dot ${tone(one.outcome)}" href=${href(`/runs/${part(one.run_id)}`)} title=${title} aria-label=${title} tabindex="-1"></a>`
    : html`<span class="dot square ${tone(one.outcome)}" title=${title}></span>`;
}

// Those that made no run, with the reason.
function Odd({ items }) {
  const odd = items.filter((one) => !["fired", "backfilled"].includes(one.outcome)).slice(0, 20);
  if (odd.length === 0) return null;
  return html`<details class="odd"><summary>${odd.length === 20 ? "The latest 20" : odd.length} without a run, and why</summary>
    <ul class="lines">${odd.map((one) => html`<li key=${one.occurrence}><${Badge} state=${one.outcome} /><${When} at=${one.occurrence} as="stamp" />
      ${(one.count ?? 1) > 1 && html`<span class="muted">and ${one.count - 1} more until <${When} at=${one.last_occurrence} as="stamp" /></span>`}<span>${one.reason ?? "no reason was recorded"}</span></li>`)}</ul></details>`;
}

function Durations({ path, schedule, concerns }) {
  const { data, error } = useLoad((signal) => get(`${path}/durations`, { limit: 200 }, { signal }), [path], { on: concerns });
  if (!data) return html`<${Card} title="How long it takes">${error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`}<//>`;
  const runs = data.runs.filter((one) => one.seconds != null).reverse();
  if (runs.length === 0) return html`<${Card} title="How long it takes"><${Empty} title="No run of it has ended yet">Run it now to see.<//><//>`;
  const xs = runs.map((one) => parse(one.started_at) / 1000);
  const of = (test) => runs.map((one) => (test(one) ? one.seconds : null));
  const level = (value) => runs.map(() => value);
  const known = data.p50 != null;
  const series = [{ label: "succeeded", tone: "ok", kind: "points" }, { label: "dead or cancelled", tone: "bad", kind: "points" },
    ...(known ? [{ label: `half take at most ${duration(data.p50 * 1000)} (p50)`, tone: "run", kind: "line" }, { label: `95 % at most ${duration(data.p95 * 1000)} (p95)`, tone: "warn", kind: "line", dash: true }] : [])];
  return html`<${Card} title=${`How long it takes: the last ${runs.length} that ended`} actions=${html`<a href=${href("/runs", { schedule })}>runs</a>`}>
    <${Chart} label="Durations" format=${(value) => duration(value * 1000)} data=${[xs, of((one) => one.state === "succeeded"), of((one) => one.state !== "succeeded"), ...(known ? [level(data.p50), level(data.p95)] : [])]} series=${series} />
    ${data.runs[0] && html`<p class="small muted">The latest: ${runLink(data.runs[0].id)} <${Badge} state=${data.runs[0].state} /></p>`}
  <//>`;
}

function Changes({ path, concerns }) {
  const { data, error } = useLoad((signal) => get(`${path}/changes`, { limit: 20 }, { signal }), [path], { on: concerns });
  return html`<${Card} title="Who changed it" flush><${Table} label="Changes" rows=${data?.items} error=${error} keyOf=${(one) => one.id} columns=${[
    { label: "When", fit: true, cell: (one) => html`<${When} at=${one.at} />` },
    { label: "Who", fit: true, cell: (one) => one.by ?? "–" },
    { label: "What", fit: true, lead: true, cell: (one) => one.action },
    { label: "Reason", cell: (one) => one.reason },
    { label: "From → to", cell: (one) => html`<${Diff} before=${one.before} after=${one.after} />` },
  ]} empty=${html`<${Empty} title="Nobody has changed it" />`} /><//>`;
}
