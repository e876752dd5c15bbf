// One thing done to every run that filters find, once somebody has said why.
import { attempt, get } from "../lib/api.js";
import { ask } from "./dialog.js";
import { doMany } from "./many.js";

const VERBS = {
  cancel: { title: "Cancel", danger: true, states: ["running", "queued", "waiting", "held", "paused"] },
  redo: { title: "Redo", states: ["dead", "cancelled", "succeeded"] },
  pause: { title: "Pause", states: ["queued", "waiting", "held", "running"] },
  resume: { title: "Resume", states: ["paused"] },
  delete: { title: "Delete", danger: true, states: ["dead", "cancelled", "succeeded", "waiting", "held", "queued", "paused"] },
};

export const verbsFor = (state) => Object.keys(VERBS).filter((verb) => VERBS[verb].states.includes(state));
export const title = (verb) => VERBS[verb].title;
export const told = ({ count, more }) => (more ? `more than ${count.toLocaleString("en")}` : count.toLocaleString("en"));

// filter: {state, job, schedule, queue}. Answers whether anything was done.
export async function bulk(verb, filter) {
  const count = await attempt(() => get("/runs/count", filter));
  if (!count) return false;
  const what = `${told(count)} ${filter.state} ${count.count === 1 ? "run" : "runs"}${filter.job ? ` of ${filter.job}` : ""}${filter.schedule ? ` of schedule ${filter.schedule}` : ""}${filter.queue ? ` in queue ${filter.queue}` : ""}`;
  const fields = verb === "redo" ? [{ name: "latest", type: "checkbox", label: "With the files as they are now" }] : [];
  const answer = await ask({ title: `${title(verb)} ${what}?`, text: "Everything that matches, not only what is on this page.", verb: `${title(verb)} all`, danger: VERBS[verb].danger, reason: "required", fields });
  if (!answer) return false;
  const { reason, ...more } = answer;
  const ended = await doMany(verb, [{ ...filter, ...more }], { title: `${title(verb)} ${what}`, total: count.more ? null : count.count, reason });
  return ended.done > 0;
}
