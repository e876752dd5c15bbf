// SQL as it was kept: before its variables were filled in, with their names marked.
import { html } from "../lib/html.js";

const VARIABLE = /(\$\{[A-Z_][A-Z0-9_]*(?::[^}]*)?\})/;

export function Code({ text, bad = null, label }) {
  return html`<div class="code" role="region" aria-label=${label} tabindex="0">${text.replace(/\n$/, "").split("\n").map((line, at) => html`<div key=${at} class=${bad === at + 1 ? "bad" : ""}><span>${line.split(VARIABLE).map((part, number) => (number % 2 ? html`<mark key=${number}>${part}</mark>` : part))}${line === "" ? " " : ""}</span></div>`)}</div>`;
}

// "02_load.sql:7: …" → {file, line}
export function whereOf(error) {
  const found = /^([^\s:]+\.sql):(\d+):/m.exec(error ?? "");
  return found ? { file: found[1], line: Number(found[2]) } : null;
}
