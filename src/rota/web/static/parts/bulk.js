// One thing done to every run that filters find, page by page, until the last one.
import { attempt, get, post } from "../lib/api.js";
import { toast } from "../lib/toast.js";
import { ask } from "./dialog.js";

const PAGE = 500;
const VERBS = {
  cancel: { title: "Cancel", done: "cancelled", danger: true, states: ["running", "queued", "waiting", "held", "paused"] },
  redo: { title: "Redo", done: "to be done again", states: ["dead", "cancelled", "succeeded"] },
  pause: { title: "Pause", done: "paused", states: ["queued", "waiting", "held", "running"] },
  resume: { title: "Resume", done: "resumed", states: ["paused"] },
  delete: { title: "Delete", done: "deleted", danger: true, states: ["dead", "cancelled", "succeeded", "waiting", "held", "queued", "paused"] },
};

export const verbsFor = (state) => Object.keys(VERBS).filter((verb) => VERBS[verb].states.includes(state));
export const title = (verb) => VERBS[verb].title;
export const told = ({ count, more }) => (more ? `more than ${count.toLocaleString("en")}` : count.toLocaleString("en"));

// filter: {state, job, schedule, queue, group}. Answers whether anything was done.
export async function bulk(verb, filter, { words = null } = {}) {
  const { group, ...countable } = filter;
  const count = group ? null : await attempt(() => get("/runs/count", countable));
  if (count === undefined) return false;
  const what = words ?? `${told(count)} ${filter.state} ${count.count === 1 ? "run" : "runs"}${filter.job ? ` of ${filter.job}` : ""}${filter.schedule ? ` of schedule ${filter.schedule}` : ""}${filter.queue ? ` in queue ${filter.queue}` : ""}`;
  const fields = verb === "redo" ? [{ name: "latest", type: "checkbox", label: "With the files as they are now" }] : [];
  const answer = await ask({ title: `${title(verb)} ${what}?`, text: "Everything that matches, not only what is on this page.", verb: `${title(verb)} all`, danger: VERBS[verb].danger, reason: "required", fields });
  if (!answer) return false;
  let done = 0;
  let leftOut = 0;
  let problem = null;
  let before = null;
  do {
    const page = await attempt(() => post(`/runs/${verb}`, { ...filter, ...answer, before, limit: PAGE }));
    if (!page) break;
    done += page.done;
    leftOut += page.left_out;
    problem ??= page.problem;
    before = page.next;
    if (before !== null) toast(`${done.toLocaleString("en")} runs ${VERBS[verb].done} so far…`);
  } while (before !== null);
  toast(`${done.toLocaleString("en")} ${done === 1 ? "run" : "runs"} ${VERBS[verb].done}.`, leftOut ? { way: `${leftOut} left out${problem ? `: ${problem}` : ""}` } : {});
  return done > 0;
}
