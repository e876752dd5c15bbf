// What is shown when there is nothing to show: why, and what to do next.
import { html } from "../lib/html.js";

export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>`;
}

export function Failed({ error, again = null }) {
  return html`<div class="empty" role="alert"><strong>This could not be read</strong>
    <div>${error?.detail ?? String(error?.message ?? error)}</div>
    ${again && html`<button onClick=${again}>Try again</button>`}</div>`;
}

// A line that stands out: why something does not run, what is unusual.
export function Notice({ tone = "warn", children }) {
  return html`<div class="notice is-${tone}" role="status"><div>${children}</div></div>`;
}
