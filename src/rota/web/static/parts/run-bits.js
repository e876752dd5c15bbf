// What several screens say of a run.
import { html } from "../lib/html.js";
import { href, part } from "../lib/router.js";
import { Badge } from "./badge.js";
import { Bar } from "./strip.js";

// Ids that are made in one second begin alike: shorter than this they could not be told apart.
export const short = (id) => id.slice(0, 13);
export const runLink = (id, text = null) =>
  html`<a class="mono nowrap" href=${href(`/runs/${part(id)}`)} title=${id}>${text ?? short(id)}</a>`;
export const jobLink = (name) => html`<a href=${href(`/jobs/${part(name)}`)}>${name}</a>`;
export const scheduleLink = (name) => html`<a href=${href(`/schedules/${part(name)}`)}>${name}</a>`;

// The progress of a run, if it told any: {done, total}.
export function share(progress) {
  if (progress == null || typeof progress !== "object") return null;
  const { done, total } = progress;
  return total > 0 ? { share: done / total, words: `${done} of ${total}` } : null;
}

export function Progress({ progress }) {
  const told = share(progress);
  if (!told) return null;
  return html`<div class="progress"><${Bar} share=${told.share} label="Progress" /><small class="muted number">${told.words}</small></div>`;
}

export function RunState({ run }) {
  const asked = run.state === "running" && run.cancel_requested_at ? "cancel asked for"
    : run.state === "running" && run.pause_requested_at ? "pause asked for" : null;
  return html`<span class="row"><${Badge} state=${run.state} />${asked && html`<small class="muted">${asked}</small>`}</span>`;
}

// The line of an error that names it: the last one of a traceback, else the first.
export function errorLine(text) {
  const lines = (text ?? "").split("\n").filter((line) => line.trim());
  return (lines.some((line) => line.startsWith("Traceback (")) ? lines.at(-1) : lines[0])?.trim() ?? "";
}

// An event about a run, laid over what is known of it.
export function withEvent(run, { type, data }) {
  const changed = { ...run, state: data.state, attempt: data.attempt, started_at: data.started_at ?? run.started_at, finished_at: data.finished_at, progress: data.progress };
  if (data.error) changed.error = data.error;
  return type.startsWith("run.") || type.startsWith("job.") || type.startsWith("attempt.") ? changed : run;
}
