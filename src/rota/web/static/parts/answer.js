// An answer of the SQL console: a table, files of it, and a quick chart if there is anything to draw.
import { html, useMemo, useState } from "../lib/html.js";
import { absolute } from "../lib/time.js";
import { csv, download, json, kind, moment } from "../lib/values.js";
import { Chart } from "./chart.js";
import { Empty } from "./empty.js";
import { Card } from "./page.js";

const STEP = 200; // rows that are drawn at once
const TONES = ["run", "ok", "warn", "bad", "halt"];

export function Answer({ result, number, took }) {
  const [shown, setShown] = useState(STEP);
  const [charted, setCharted] = useState(false);
  const kinds = useMemo(() => result.columns.map((_, at) => kind(result, at)), [result]);
  const numbers = kinds.map((one, at) => (one === "integer" || one === "number" ? at : -1)).filter((at) => at >= 0);
  const times = kinds.map((one, at) => (one === "instant" ? at : -1)).filter((at) => at >= 0);
  const chartable = result.rows.length > 1 && (numbers.length > 0 || times.length > 0);
  const { rows } = result;
  const count = `${rows.length.toLocaleString("en")}${result.more ? " or more" : ""} ${rows.length === 1 ? "row" : "rows"}`;
  const actions = html`<small class="muted nowrap">${number === null ? took : ""}</small>
    ${chartable && html`<button aria-pressed=${String(charted)} onClick=${() => setCharted(!charted)}>Chart</button>`}
    ${rows.length > 0 && html`<button onClick=${() => download(csv(result), "rota.csv", "text/csv;charset=utf-8")}>CSV</button>
    <button onClick=${() => download(json(result), "rota.json", "application/json")}>JSON</button>`}`;
  return html`<${Card} flush title=${number === null ? count : `${number}: ${count}`} label="Result" actions=${actions}>
    ${charted && html`<${Quick} result=${result} numbers=${numbers} times=${times} />`}
    ${rows.length === 0 ? html`<${Empty} title="No rows">It was done; there is nothing to show.<//>` : html`
      <div class="scroll result" tabindex="0" role="region" aria-label="Rows"><table aria-label="Rows">
        <thead><tr>${result.columns.map((column, at) => html`<th key=${column.name} scope="col" class=${side(kinds[at])}>${column.name} <small class="type">${column.type}</small></th>`)}</tr></thead>
        <tbody>${rows.slice(0, shown).map((row, line) => html`<tr key=${line}>${row.map((value, at) => html`<td key=${at} class=${side(kinds[at])}><${Cell} value=${value} kind=${kinds[at]} /></td>`)}</tr>`)}</tbody>
      </table></div>
      ${rows.length > shown && html`<div class="pager"><button onClick=${() => setShown(shown + STEP)}>Show ${Math.min(STEP, rows.length - shown)} more</button><span class="told">${shown.toLocaleString("en")} of ${count}</span></div>`}
      ${result.more && html`<p class="muted small body">There are more than can be asked for at once: add a LIMIT, or conditions.</p>`}`}
  <//>`;
}

const side = (kind) => (kind === "integer" || kind === "number" ? "right" : "");

function Cell({ value, kind }) {
  if (value === null) return html`<span class="muted small">NULL</span>`;
  if (kind === "instant") {
    const at = moment(value);
    return Number.isNaN(at) ? value : html`<time class="nowrap" datetime=${new Date(at).toISOString()} title=${absolute(at)}>${value.replace("T", " ").replace(/\.\d+/, "").replace(/\+00:00$/, "Z")}</time>`;
  }
  if (typeof value === "object") return html`<code>${JSON.stringify(value)}</code>`;
  return html`<span class="cell">${String(value)}</span>`;
}

function Quick({ result, numbers, times }) {
  const xs = [...times, ...(numbers.length > 1 ? numbers : [])];
  const [x, setX] = useState(xs[0] ?? -1);
  const [bars, setBars] = useState(times.length === 0);
  const ys = numbers.filter((at) => at !== x).slice(0, TONES.length);
  const [data, series] = useMemo(() => draw(result, x, ys, times.includes(x), bars), [result, x, bars]);
  const named = (at) => (at < 0 ? "row" : result.columns[at].name);
  return html`<div class="body quick">
    <div class="row"><label><span class="muted">Along</span><select value=${x} onChange=${(event) => setX(Number(event.target.value))}>
        ${[...xs, -1].map((at) => html`<option key=${at} value=${at}>${named(at)}</option>`)}</select></label>
      <div class="chips tight"><div class="set" role="group" aria-label="Kind of chart">${[[false, "lines"], [true, "bars"]].map(([value, label]) => html`<button key=${label} aria-pressed=${String(bars === value)} onClick=${() => setBars(value)}>${label}</button>`)}</div></div></div>
    <${Chart} key=${`${x}${bars}`} label="Quick chart" data=${data} series=${series} height=${220} x=${times.includes(x) ? "time" : "number"} />
  </div>`;
}

// Without a number to draw, how many rows there are up to each moment.
function draw(result, x, ys, timed, bars) {
  const at = (row, line) => (x < 0 ? line + 1 : timed ? moment(row[x]) / 1000 : row[x]);
  const points = result.rows.map((row, line) => ({ row, x: at(row, line) })).filter((one) => Number.isFinite(one.x)).sort((one, other) => one.x - other.x);
  const style = bars ? "bars" : "line";
  if (ys.length === 0) return [[points.map((one) => one.x), points.map((_, line) => line + 1)], [{ label: "rows so far", tone: TONES[0], kind: style }]];
  return [
    [points.map((one) => one.x), ...ys.map((y) => points.map((one) => (typeof one.row[y] === "number" ? one.row[y] : null)))],
    ys.map((y, place) => ({ label: result.columns[y].name, tone: TONES[place], kind: style })),
  ];
}
