// All jobs on one axis of time: what ran, what runs, and what is to come.
//
// Runs are drawn one by one where there are few enough of them; where there are more, each cell
// counts what ended in it, exactly, and a click looks closer. Nothing is a sample.
import { html, useEffect, useRef } from "../lib/html.js";
import { get } from "../lib/api.js";
import { now, serverNow } from "../lib/clock.js";
import { anything, useLoad } from "../lib/load.js";
import { href, part, setQuery } from "../lib/router.js";
import { absolute, duration, parse } from "../lib/time.js";
import { tone } from "../parts/badge.js";
import { Axis, Grid, place } from "../parts/axis.js";
import { Search } from "../parts/chips.js";
import { Empty, Failed } from "../parts/empty.js";
import { Page } from "../parts/page.js";
import { Virtual } from "../parts/virtual.js";

const MINUTE = 60_000;
const SPANS = [
  ["15m", 15 * MINUTE, "15 min"], ["1h", 60 * MINUTE, "1 hour"], ["6h", 360 * MINUTE, "6 hours"],
  ["1d", 1440 * MINUTE, "1 day"], ["7d", 10080 * MINUTE, "7 days"], ["31d", 44640 * MINUTE, "31 days"],
];
const BEFORE = 0.72; // of the stretch lies before now
const STEPS = 120; // a following view moves on by so many parts, not with every second
const BUCKETS = 160;
const NEAR = 360 * MINUTE; // with more than that in sight, a run more or less is not seen
const SELDOM = 2_000; // all are counted again when such a part of the time in sight has passed
const ROW = 30;
const LANES = 3;

export default function Timeline({ query }) {
  const [word, span] = SPANS.find(([word]) => word === query.span) ?? SPANS[1];
  const at = parse(query.at ?? null);
  const { data: told, error } = useLoad((signal) => look(span, at, signal), [span, at], { on: anything, every: 5 });
  // To count a month of a busy store takes seconds: what is known is drawn meanwhile.
  const counted = useLoad((signal) => (told?.more_runs ? count(told, signal) : null), [told?.since, told?.until, told?.more_runs], { on: (event) => span <= NEAR && anything(event), every: Math.max(15, span / 1000 / SELDOM) });
  const data = told && { ...told, density: told.more_runs ? counted.data : null };
  const shift = (parts) => setQuery({ at: new Date((at ?? serverNow()) + parts * span).toISOString() });
  const zoom = (next, middle = at) => setQuery({ span: next === "1h" ? null : next, at: middle === null ? null : new Date(middle).toISOString() });
  useKeys({ shift, zoom, word, follow: () => setQuery({ at: null }) });
  const controls = html`<div class="chips">
    <div class="set" role="group" aria-label="How much time">${SPANS.map(([one, , label]) => html`<button key=${one} aria-pressed=${String(one === word)} onClick=${() => zoom(one)}>${label}</button>`)}</div>
    <div class="set" role="group" aria-label="Which time">
      <button onClick=${() => shift(-0.5)} title="Earlier (←)">‹ Earlier</button>
      <button aria-pressed=${String(at === null)} onClick=${() => setQuery({ at: null })} title="Follow the clock (n)">Now</button>
      <button onClick=${() => shift(0.5)} title="Later (→)">Later ›</button>
    </div>
    <${Search} query=${query} label="Search jobs" />
  </div>`;
  return html`<${Page} title="Timeline">${controls}
    ${!data ? (error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`)
      : html`<${Picture} data=${data} words=${(query.q ?? "").toLowerCase()} zoom=${zoom} word=${word} />`}
  <//>`;
}

async function look(span, at, signal) {
  const step = span / STEPS;
  const begin = at === null ? Math.ceil(serverNow() / step) * step - span * BEFORE : at - span / 2;
  const query = { since: new Date(begin).toISOString(), until: new Date(begin + span).toISOString() };
  const told = await get("/timeline", query, { signal });
  return { ...told, since: begin, until: begin + span };
}

const count = ({ since, until }, signal) =>
  get("/timeline/density", { since: new Date(since).toISOString(), until: new Date(until).toISOString(), buckets: BUCKETS }, { signal });

function useKeys(does) {
  const kept = useRef(does);
  kept.current = does;
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
      const { shift, zoom, word, follow } = kept.current;
      const place = SPANS.findIndex(([one]) => one === word);
      if (event.key === "ArrowLeft") shift(-0.25);
      else if (event.key === "ArrowRight") shift(0.25);
      else if (event.key === "n") follow();
      else if (event.key === "+" && place > 0) zoom(SPANS[place - 1][0]);
      else if (event.key === "-" && place < SPANS.length - 1) zoom(SPANS[place + 1][0]);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function Picture({ data, words, zoom, word }) {
  const { since, until, density } = data;
  const rows = arrange(data).filter((row) => row.job.toLowerCase().includes(words));
  if (rows.length === 0) {
    return html`<${Empty} title=${words ? "No such job in this time" : `Nothing ${data.more_across ? "ended" : "ran"}, and nothing comes, in this time`}>
      Look at more time, or run something: <code>rota run JOB</code><//>`;
  }
  const total = density ? density.jobs.reduce((sum, one) => sum + one.cells.reduce((count, cell) => count + cell.succeeded + cell.dead + cell.cancelled, 0), 0) : data.runs.length;
  const row = (at, style) => {
    const { job } = rows[at];
    return html`<div key=${job} class="timerow" role="listitem" style=${style} data-job=${job}>
      <a class="name clip" href=${href("/runs", { job })} title=${job}>${job}</a>
      <div class="track">${density ? html`<${Cells} row=${rows[at]} density=${density} data=${data} zoom=${zoom} word=${word} />` : html`<${Bars} row=${rows[at]} data=${data} />`}
        ${rows[at].running.map((run) => html`<${Growing} key=${run.id} run=${run} since=${since} until=${until} />`)}
        ${rows[at].coming.map((one) => html`<${Expected} key=${one.schedule + one.at} one=${one} since=${since} until=${until} />`)}
        ${rows[at].rest.map((from) => html`<span key=${from} class="timebar rest" title="and so on" style=${{ left: place(from, since, until), right: 0, top: "8px", height: "12px" }}></span>`)}
      </div></div>`;
  };
  return html`<section class="card timeline" aria-label="Timeline">
    <div class="timehead"><div class="name muted">${rows.length} ${rows.length === 1 ? "job" : "jobs"}</div><div class="track"><${Axis} since=${since} until=${until} about=${innerWidth < 700 ? 4 : 9} /></div></div>
    <div class="timebody">
      <div class="over"><${Grid} since=${since} until=${until} about=${innerWidth < 700 ? 4 : 9} /><${NowLine} since=${since} until=${until} /></div>
      <${Virtual} count=${rows.length} height=${ROW} row=${row} label="Jobs" />
    </div>
    <footer class="legend">
      ${["succeeded", "dead", "cancelled", "running"].map((state) => html`<span key=${state} class=${tone(state)}><span class="dot"></span>${state}</span>`)}
      <span><i class="sample"></i>to come, as long as it usually takes</span>
      <span>${density ? `${total.toLocaleString("en")} runs ended, all counted: ${duration(density.seconds * 1000)} a cell; click one to look closer` : data.more_runs ? "the latest runs; counting all of them…" : `${total.toLocaleString("en")} runs, one by one${data.more_across ? "; one that ended long after may be missing" : ""}`}${density?.more ? "; there are more jobs than can be told" : ""}${data.more_coming ? "; hatched: it goes on like this" : ""}</span>
    </footer>
  </section>`;
}

// Everything that is known of a job, together.
function arrange(data) {
  const rows = new Map();
  const of = (job) => {
    if (!rows.has(job)) rows.set(job, { job, runs: [], running: [], coming: [], rest: [], cells: [] });
    return rows.get(job);
  };
  for (const run of data.runs) {
    if (run.state === "running") of(run.job).running.push(run);
    else if (!data.density) of(run.job).runs.push(run);
  }
  for (const one of data.coming) {
    if (parse(one.at) >= data.until) continue;
    of(one.job).coming.push(one);
    // Of a schedule that fires often only the first ones are told; it goes on all the same.
    if (one.goes_on) of(one.job).rest.push(parse(one.at));
  }
  for (const one of data.density?.jobs ?? []) of(one.job).cells = one.cells;
  return [...rows.values()].sort((one, other) => one.job.localeCompare(other.job));
}

// Runs of one job that overlap lie in lanes above each other.
function lanes(runs) {
  const ends = [];
  const placed = [...runs].sort((one, other) => begin(one) - begin(other)).map((run) => {
    let lane = ends.findIndex((end) => end <= begin(run));
    if (lane < 0) lane = ends.length < LANES ? ends.length : ends.indexOf(Math.min(...ends));
    ends[lane] = parse(run.finished_at) ?? begin(run);
    return { run, lane };
  });
  return { placed, count: Math.max(1, ends.length) };
}

const begin = (run) => parse(run.started_at) ?? parse(run.finished_at) ?? parse(run.due_at);

function Bars({ row, data: { since, until } }) {
  const { placed, count } = lanes(row.runs);
  return placed.map(({ run, lane }) => {
    const from = begin(run);
    const to = parse(run.finished_at) ?? from;
    const style = { left: place(Math.max(from, since), since, until), width: place(since + Math.max(0, to - Math.max(from, since)), since, until), top: `${4 + (lane * 20) / count}px`, height: `${20 / count - (count > 1 ? 1 : 0)}px` };
    return html`<a key=${run.id} class="timebar ${tone(run.state)}" style=${style} href=${href(`/runs/${part(run.id)}`)}
      title=${`${run.job}: ${run.state}\nbegan ${absolute(from)}\ntook ${duration(to - from)}${late(run)}`} aria-label=${`${run.job} ${run.state}, ${absolute(from)}, took ${duration(to - from)}`} tabindex="-1"></a>`;
  });
}

function late(run) {
  const waited = begin(run) - parse(run.due_at);
  return waited > 1000 ? `\n${duration(waited)} after it was due` : "";
}

function Growing({ run, since, until }) {
  const from = Math.max(since, parse(run.started_at) ?? now.value);
  const to = Math.min(until, now.value);
  if (to < since) return null;
  return html`<a class="timebar is-run pulse" style=${{ left: place(from, since, until), width: place(since + Math.max(0, to - from), since, until), top: "4px", height: "20px" }}
    href=${href(`/runs/${part(run.id)}`)} title=${`${run.job}: running for ${duration(now.value - from)}`} aria-label=${`${run.job} runs`} tabindex="-1"></a>`;
}

function Expected({ one, since, until }) {
  const at = parse(one.at);
  const long = (one.seconds ?? 0) * 1000;
  if (at < now.value - 1000) return null;
  return html`<a class="timebar expected" style=${{ left: place(at, since, until), width: place(since + Math.min(long, until - at), since, until), top: "6px", height: "16px" }}
    href=${href(`/schedules/${part(one.schedule)}`)} aria-label=${`${one.schedule} at ${absolute(at)}`} tabindex="-1"
    title=${`${one.schedule}: ${absolute(at)}\n${one.seconds == null ? "no run has succeeded yet, so nobody knows how long it takes" : `usually takes ${duration(long)}`}`}></a>`;
}

function NowLine({ since, until }) {
  if (now.value < since || now.value > until) return null;
  return html`<i class="nowline" style=${{ left: place(now.value, since, until) }}><b>now</b></i>`;
}

// One canvas a row: a month of a busy job has more cells than a page should have elements.
function Cells({ row, density, data, zoom, word }) {
  const canvas = useRef(null);
  const most = Math.max(1, ...row.cells.map((cell) => cell.succeeded + cell.dead + cell.cancelled));
  const begin = parse(density.since_at);
  const step = density.seconds * 1000;
  const span = data.until - data.since;
  useEffect(() => {
    const draw = () => {
      const element = canvas.current;
      if (!element) return;
      const width = (element.width = Math.max(1, element.clientWidth * devicePixelRatio));
      const height = (element.height = 22 * devicePixelRatio);
      const pen = element.getContext("2d");
      const style = getComputedStyle(document.documentElement);
      const fill = (name) => style.getPropertyValue(`--${name}-fill`).trim();
      for (const cell of row.cells) {
        // They may have been counted for a stretch that has moved on since.
        const x = (at) => Math.floor(((begin + at * step - data.since) / span) * width);
        const left = x(cell.at);
        const right = Math.max(left + 1, x(cell.at + 1) - devicePixelRatio);
        const all = cell.succeeded + cell.dead + cell.cancelled;
        // The height says how many; what died is never too thin to be seen.
        const tall = height * (0.3 + 0.7 * (Math.log1p(all) / Math.log1p(most)));
        const bad = cell.dead ? Math.max(3 * devicePixelRatio, (cell.dead / all) * tall) : 0;
        const off = cell.cancelled ? Math.max(2 * devicePixelRatio, (cell.cancelled / all) * tall) : 0;
        let top = height;
        for (const [name, part] of [["ok", Math.max(0, tall - bad - off)], ["off", off], ["bad", bad]]) {
          pen.fillStyle = fill(name);
          pen.fillRect(left, top - part, right - left, part);
          top -= part;
        }
      }
    };
    draw();
    const resized = new ResizeObserver(draw);
    resized.observe(canvas.current);
    const themed = new MutationObserver(draw);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => { resized.disconnect(); themed.disconnect(); };
  }, [row.cells, data.since, data.until]);
  const sum = (state) => row.cells.reduce((count, cell) => count + cell[state], 0);
  const bucket = (event) => Math.floor((data.since + (event.offsetX / event.target.clientWidth) * span - begin) / step);
  const hover = (event) => {
    const cell = row.cells.find((one) => one.at === bucket(event));
    const from = begin + bucket(event) * step;
    event.target.title = cell ? `${row.job}, ${absolute(from)} and ${duration(step)} on:\n${cell.succeeded} succeeded, ${cell.dead} dead, ${cell.cancelled} cancelled\nbusy ${Math.round((cell.seconds / density.seconds) * 100)} % of the time` : "";
  };
  const closer = (event) => {
    const smaller = SPANS[Math.max(0, SPANS.findIndex(([one]) => one === word) - 1)][0];
    zoom(smaller, begin + (bucket(event) + 0.5) * step);
  };
  return html`<canvas ref=${canvas} class="cells" role="img" onMouseMove=${hover} onClick=${closer}
    aria-label=${`${row.job}: ${sum("succeeded")} succeeded, ${sum("dead")} dead, ${sum("cancelled")} cancelled`}></canvas>`;
}
