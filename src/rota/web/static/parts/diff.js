// What a change changed: of two objects only what differs, of two words both.
import { html } from "../lib/html.js";

const LONGEST = 160;
const SHOWN = 8;

export function Diff({ before, after }) {
  const changes = differences(before, after);
  if (changes.length === 0) return null;
  const shown = changes.slice(0, SHOWN);
  return html`<ul class="diff">${shown.map((one) => html`<${Change} key=${one.name} change=${one} />`)}
    ${changes.length > SHOWN && html`<li><details><summary>${changes.length - SHOWN} more</summary><ul class="diff">${changes.slice(SHOWN).map((one) => html`<${Change} key=${one.name} change=${one} />`)}</ul></details></li>`}</ul>`;
}

function Change({ change: { name, from, to } }) {
  return html`<li>${name && html`<span class="muted">${name}</span> `}${from !== undefined && html`<del title=${written(from)}><span class="hidden">was </span>${clipped(from)}</del>`}${from !== undefined && to !== undefined && html`<span aria-hidden="true"> → </span>`}${to !== undefined && html`<ins title=${written(to)}><span class="hidden">is now </span>${clipped(to)}</ins>`}</li>`;
}

const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const told = (value) => value !== null && value !== undefined && value !== "";

export function differences(before, after) {
  if (!plain(before) && !plain(after)) {
    if (!told(before) && !told(after)) return [];
    return [{ name: "", from: told(before) ? before : undefined, to: told(after) ? after : undefined }];
  }
  const old = plain(before) ? before : {};
  const next = plain(after) ? after : {};
  const made = !told(before);
  return [...new Set([...Object.keys(old), ...Object.keys(next)])]
    .filter((name) => !same(old[name], next[name]))
    .filter((name) => !made || told(next[name])) // of what is new: only what it says
    .map((name) => ({ name, from: name in old ? old[name] : undefined, to: name in next ? next[name] : undefined }));
}

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function clipped(value) {
  const text = value === null ? "none" : written(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
