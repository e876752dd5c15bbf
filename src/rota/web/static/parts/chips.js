// Filters. All of them are in the address, and none is lost by an action.
import { html, useEffect, useRef } from "../lib/html.js";
import { setQuery } from "../lib/router.js";

const TYPING = 250; // milliseconds of rest before a search begins

// A set of which one or none is chosen: options are words or {value, label}.
export function Choice({ name, query, options, label, first = "all" }) {
  const chosen = query[name] ?? "";
  const all = [{ value: "", label: first }, ...options.map((one) => (typeof one === "string" ? { value: one, label: one } : one))];
  return html`<div class="set" role="group" aria-label=${label}>
    ${all.map(({ value, label: text }) => html`<button key=${value} aria-pressed=${String(chosen === value)}
      onClick=${() => setQuery({ [name]: value || null })}>${text}</button>`)}
  </div>`;
}

// A filter that is set, and a way to take it off.
export function Chip({ name, query, label = name }) {
  const value = query[name];
  if (!value) return null;
  return html`<span class="chip"><span class="clip">${label}: <b>${value}</b></span>
    <button aria-label="Remove the filter ${label}" onClick=${() => setQuery({ [name]: null })}>✕</button></span>`;
}

export function Search({ name = "q", query, label, placeholder = label }) {
  const timer = useRef(null);
  const field = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (document.activeElement !== field.current) field.current.value = query[name] ?? "";
  }, [query[name]]);
  const set = () => {
    clearTimeout(timer.current);
    const value = field.current.value.trim();
    if (value !== (query[name] ?? "")) setQuery({ [name]: value || null }, { replace: true });
  };
  return html`<input ref=${field} class="search" type="search" data-search aria-label=${label} placeholder=${`${placeholder}  /`}
    maxlength="128" autocomplete="off" spellcheck=${false} defaultValue=${query[name] ?? ""}
    onInput=${() => { clearTimeout(timer.current); timer.current = setTimeout(set, TYPING); }}
    onKeyDown=${(event) => { if (event.key === "Enter") set(); if (event.key === "Escape") event.target.blur(); }} />`;
}
