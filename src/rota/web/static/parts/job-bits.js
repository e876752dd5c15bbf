// What the list of jobs and the screen of one say alike.
import { html } from "../lib/html.js";
import { When } from "./when.js";

const RETIRED = "retired: ";
export const retired = (job) => job.error?.startsWith(RETIRED) ?? false;

export const source = (job) => ({ code: "a program", file: "a file", api: "a statement" })[job.source] ?? job.source;

export function JobState({ job }) {
  const [tone, word] = retired(job) ? ["off", "retired"] : job.error ? ["bad", "broken"] : job.enabled ? ["ok", "enabled"] : ["off", "disabled"];
  return html`<span class="badge is-${tone}" data-state=${word}>${word}</span>`;
}

// The error of a job, and what runs instead of what is broken.
export function Broken({ job, brief = false }) {
  const lines = job.error.split("\n");
  return html`<div class="broken">
    <pre class=${brief ? "two-lines" : ""} tabindex=${brief ? null : "0"} title=${brief ? job.error : null}>${brief ? lines[0] : job.error}</pre>
    ${!retired(job) && html`<small class="muted">Broken since <${When} at=${job.version_at} />. ${job.good_at
      ? html`Runs use the last good version <code>${job.version.slice(0, 8)}</code>, of <${When} at=${job.good_at} />.`
      : "It never had a good version: nothing of it runs until the file is mended."}</small>`}
  </div>`;
}
