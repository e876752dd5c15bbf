// A result: rows of a query as a table, anything else as it is.
import { html } from "../lib/html.js";

export function Result({ value, label = "Result" }) {
  if (value == null) return null;
  if (Array.isArray(value.rows) && Array.isArray(value.columns)) {
    const names = value.columns.map((one) => (typeof one === "string" ? one : one.name));
    return html`<div class="scroll"><table aria-label=${label}><thead><tr>${names.map((name, at) => html`<th key=${at} scope="col">${name}</th>`)}</tr></thead>
      <tbody>${value.rows.map((row, at) => html`<tr key=${at}>${row.map((cell, column) => html`<td key=${column} class=${typeof cell === "number" ? "right" : ""}>${show(cell)}</td>`)}</tr>`)}</tbody></table>
      ${value.more && html`<p class="small muted">There were more rows; the first ${value.rows.length} are kept.</p>`}</div>`;
  }
  return html`<pre class="json" tabindex="0">${typeof value === "string" ? value : JSON.stringify(value, null, 2)}</pre>`;
}

const show = (cell) => (cell === null ? html`<span class="muted">NULL</span>` : typeof cell === "object" ? JSON.stringify(cell) : String(cell));
