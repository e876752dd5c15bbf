// A table, and pages of one. Never more rows than a page: the server has them all.
import { html } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { Empty, Failed } from "./empty.js";

// columns: {label, cell(row), fit, right, lead, grow, sort}. `grow`: takes what is left, and cuts. `sort`: the name of a sort key, if the list
// can be sorted by it; `sorted` is {by, down}, and `onSort(by)` changes it.
// `selected`: a Set of keys with `onSelect(key, yes)` and `onAll(yes)` gives boxes to tick.
export function Table({
  columns, rows, keyOf, label, empty = null, error = null,
  sorted = null, onSort = null, selected = null, onSelect = null, onAll = null, rowClass = null,
}) {
  if (rows === undefined) {
    return error ? html`<${Failed} error=${error} />` : html`<${Empty} title="Loading…" />`;
  }
  if (rows.length === 0) return empty ?? html`<${Empty} title="Nothing here" />`;
  const all = selected && rows.every((row) => selected.has(keyOf(row)));
  return html`<div class="scroll"><table class="stack" aria-label=${label}>
    <thead><tr>
      ${selected && html`<th class="fit"><input type="checkbox" aria-label="Select all on this page"
        checked=${all} onChange=${(event) => onAll(event.target.checked)} /></th>`}
      ${columns.map((column) => head(column, sorted, onSort))}
    </tr></thead>
    <tbody>${rows.map((row) => {
      const key = keyOf(row);
      return html`<tr key=${key} data-key=${key} class=${rowClass?.(row)} aria-selected=${selected ? selected.has(key) : null}>
        ${selected && html`<td class="fit"><input type="checkbox" aria-label="Select ${key}"
          checked=${selected.has(key)} onChange=${(event) => onSelect(key, event.target.checked)} /></td>`}
        ${columns.map((column) => html`<td class=${style(column)} data-label=${column.label}>${column.cell(row)}</td>`)}
      </tr>`;
    })}</tbody>
  </table></div>`;
}

const style = (column) => [column.fit && "fit", column.right && "right", column.lead && "lead", column.grow && "grow"].filter(Boolean).join(" ");

function head(column, sorted, onSort) {
  if (!column.sort || !onSort) return html`<th scope="col" class=${style(column)}>${column.label}</th>`;
  const chosen = sorted?.by === column.sort;
  const order = chosen ? (sorted.down ? "descending" : "ascending") : null;
  return html`<th scope="col" class=${style(column)} aria-sort=${order}>
    <button class="link" onClick=${() => onSort(column.sort)}>${column.label}${chosen ? (sorted.down ? " ↓" : " ↑") : ""}</button>
  </th>`;
}

// Keyset pages: the place is in the address, so that it can be sent, and Back goes back.
// `name` is the parameter of the API: before or after.
export function Pager({ page, query, name = "before", told = null, first = "Newest" }) {
  const next = page?.next ?? null;
  if (next === null && !query[name] && told === null) return null;
  return html`<nav class="pager" aria-label="Pages">
    <button disabled=${!query[name]} onClick=${() => setQuery({ [name]: null })}>« ${first}</button>
    <button disabled=${!query[name]} onClick=${() => history.back()}>‹ Back</button>
    <button disabled=${next === null} onClick=${() => setQuery({ [name]: next })}>More ›</button>
    ${told !== null && html`<span class="told">${told}</span>`}
  </nav>`;
}
