// States, each with its word, its sign and its colour: none of the three is needed to tell.
import { html } from "../lib/html.js";
import { Icon } from "./icons.js";

export const TONES = {
  succeeded: "ok", dead: "bad", running: "run", queued: "wait", waiting: "wait", held: "hold",
  paused: "halt", cancelled: "off",
  // of attempts and steps
  failed: "bad", timed_out: "bad", lost: "bad", released: "off", success: "ok", done: "ok", skipped: "off",
  // of schedules
  ACTIVE: "ok", PAUSED: "halt", DISABLED: "off", FINISHED: "off", BROKEN: "bad",
  // of occurrences
  fired: "ok", backfilled: "ok", coalesced: "off", dropped: "warn", missed: "warn",
  // of problems
  error: "bad", warning: "warn", note: "halt",
};
const SIGNS = {
  succeeded: "succeeded", success: "succeeded", done: "succeeded", dead: "dead_run", failed: "dead_run",
  timed_out: "dead_run", lost: "dead_run", running: "running", queued: "queued", waiting: "waiting",
  held: "held", paused: "paused", PAUSED: "paused", cancelled: "cancelled", BROKEN: "alert",
};
export const STATES = ["running", "queued", "waiting", "held", "paused", "succeeded", "dead", "cancelled"];
export const TERMINAL = new Set(["succeeded", "dead", "cancelled"]);

export const tone = (state) => `is-${TONES[state] ?? "off"}`;

export function Badge({ state, title = null }) {
  if (state == null) return null;
  const word = String(state).replace("_", " ").toLowerCase();
  return html`<span class="badge ${tone(state)}" title=${title} data-state=${state}>
    ${SIGNS[state] && html`<${Icon} name=${SIGNS[state]} />`}${word}</span>`;
}
