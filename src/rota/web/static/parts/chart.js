// Charts by uPlot, in the colours of the page, as wide as their place.
import { html, useEffect, useRef } from "../lib/html.js";
import { hour, day } from "../lib/time.js";
import uPlot from "../lib/uplot.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// series: [{label, tone, kind}]; data: [xs, ...one list a series], x in seconds.
// kind: "bars" (side by side at the same x), "line" or "points". `stacked` puts bars on each other.
// `x`: "time", or "number" for what is none. `format` writes the values beside the axis.
export function Chart({ data, series, height = 160, stacked = false, label, format = short, x = "time", onSelect = null }) {
  const place = useRef(null);
  const plot = useRef(null);
  const shown = useRef(data);
  shown.current = data; // a plot that is made anew shows what there is now
  const shape = JSON.stringify([series, stacked, height, x]);

  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const width = place.current.clientWidth;
      if (width === 0) return;
      plot.current = new uPlot(options(series, { width, height, stacked, format, x, onSelect }), pile(shown.current, stacked), place.current);
    };
    make();
    const resized = new ResizeObserver(() => {
      const width = place.current?.clientWidth;
      if (!width) return;
      if (plot.current) plot.current.setSize({ width, height });
      else make();
    });
    resized.observe(place.current);
    const themed = new MutationObserver(make); // the colours are read once a plot
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => { resized.disconnect(); themed.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [shape]);

  useEffect(() => { plot.current?.setData(pile(data, stacked)); }, [data]);

  return html`<figure>
    <div ref=${place} class="chart" role="img" aria-label=${`${label}: ${words(data, series)}`} style=${{ height: `${height}px` }}></div>
    <figcaption class="legend">${series.map((one) => html`<span key=${one.label} class="is-${one.tone}"><span class="dot"></span>${one.label}</span>`)}</figcaption>
  </figure>`;
}

// For who cannot see it: the sum of each line.
function words(data, series) {
  return series.map((one, at) => {
    const values = (data[at + 1] ?? []).filter((value) => value != null);
    const sum = values.reduce((total, value) => total + value, 0);
    return one.kind === "bars" ? `${sum.toLocaleString("en")} ${one.label}` : `${one.label}, ${values.length} values`;
  }).join(", ");
}

function pile(data, stacked) {
  if (!stacked) return data;
  const [xs, ...lists] = data;
  const sums = new Array(xs.length).fill(0);
  const piled = lists.map((list) => list.map((value, at) => (sums[at] += value ?? 0)));
  return [xs, ...piled.reverse()]; // the tallest is drawn first, the others over it
}

function options(series, { width, height, stacked, format, x, onSelect }) {
  const muted = colour("muted");
  const line = colour("line");
  const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: `11px ${getComputedStyle(document.body).fontFamily}` };
  const shown = stacked ? [...series].reverse() : series;
  return {
    width, height,
    padding: [8, 8, 0, 0],
    cursor: { drag: { x: Boolean(onSelect), y: false, setScale: false }, points: { show: false }, y: false },
    hooks: onSelect ? { setSelect: [(plot) => {
      if (plot.select.width > 4) onSelect(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
    }] } : {},
    legend: { show: false },
    scales: { x: { time: x === "time", ...(series.some((one) => one.kind === "bars") && { range: (plot, low, high) => [low, high + step(plot.data[0])] }) }, y: { range: (plot, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1e-9) * 1.08] } },
    axes: [
      { ...axis, size: 22, space: 70, ...(x === "time" && { values: (plot, ticks) => ticks.map((at) => label(at, plot.data[0])) }) },
      { ...axis, size: 52, space: 28, values: (plot, ticks) => ticks.map(format) },
    ],
    series: [{}, ...shown.map((one) => ({
      label: one.label,
      stroke: colour(`${one.tone}-fill`),
      width: one.kind === "line" ? 1.5 : 0,
      dash: one.dash ? [5, 4] : undefined,
      fill: one.kind === "bars" ? colour(`${one.tone}-fill`) : undefined,
      paths: one.kind === "bars" ? uPlot.paths.bars({ size: [0.85, 40, 1], align: 1 }) : one.kind === "points" ? () => null : undefined,
      points: { show: one.kind === "points", size: 5, fill: colour(`${one.tone}-fill`), stroke: colour(`${one.tone}-fill`) },
      spanGaps: true,
    }))],
  };
}

// A bar is as wide as the time it stands for: the last one needs its place, too.
const step = (xs) => (xs.length > 1 ? xs[1] - xs[0] : 1);

function label(seconds, xs) {
  const date = new Date(seconds * 1000);
  const long = xs.length > 1 && xs[xs.length - 1] - xs[0] > 36 * 3600;
  return long ? day(date).slice(5) : hour(date);
}

export function short(value) {
  if (value == null) return "";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (size >= 1e3) return `${+(value / 1e3).toFixed(1)}k`;
  return String(+value.toFixed(size < 1 ? 3 : size < 10 ? 1 : 0));
}
