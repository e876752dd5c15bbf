// One verb for many runs, a page at a time: how far it is can be seen, and it can be stopped.
import { html, signal } from "../lib/html.js";
import { post } from "../lib/api.js";
import { Bar } from "./strip.js";

const PAGE = 200;
export const work = signal(null); // {title, done, leftOut, total, problem, over, stopped}

// `filters`: each a filter as POST /runs/VERB takes it; `total`: null where nobody knows how many.
// Answers what became of it.
export async function doMany(verb, filters, { title, total, reason = null }) {
  let stopped = false;
  const told = { title, total, done: 0, leftOut: 0, problem: null, over: false, stop: () => { stopped = true; } };
  const show = () => { work.value = { ...told, stopped }; };
  show();
  try {
    for (const filter of filters) {
      let before = null;
      do {
        const answer = await post(`/runs/${verb}`, { ...filter, limit: PAGE, ...(reason && { reason }), ...(before && { before }) });
        told.done += answer.done;
        told.leftOut += answer.left_out;
        told.problem ??= answer.problem;
        before = answer.next;
        show();
      } while (before !== null && !stopped);
      if (stopped) break;
    }
  } catch (problem) {
    told.problem = problem.detail ?? problem.message;
  }
  told.over = true;
  show();
  return told;
}

export function Work() {
  const told = work.value;
  if (!told) return null;
  const number = (count) => count.toLocaleString("en");
  const tone = !told.over ? "run" : told.problem ? "warn" : "ok";
  return html`<section class="notice is-${tone} many" role="status" aria-label=${told.title}>
    <div class="grow"><b>${told.title}</b>: ${number(told.done)}${told.over || told.total === null ? "" : ` of ${number(told.total)}`} done${told.leftOut ? `, ${number(told.leftOut)} left out` : ""}${told.over && told.stopped ? ", stopped" : ""}.
      ${told.problem && html`<div>${told.problem}</div>`}
      ${!told.over && told.total !== null && html`<${Bar} share=${told.total ? (told.done + told.leftOut) / told.total : 0} label=${told.title} />`}</div>
    ${told.over ? html`<button onClick=${() => { work.value = null; }}>Close</button>`
      : html`<button disabled=${told.stopped} onClick=${told.stop}>Stop</button>`}
  </section>`;
}
