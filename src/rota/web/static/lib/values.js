// Values of a result: which columns are times or numbers, and how they are written into a file.

const INSTANT = /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$/;

// SQLite has its instants as text: who looks like one is one.
export function kind(result, at) {
  const { type } = result.columns[at];
  if (type === "integer" || type === "number" || type === "boolean" || type === "json") return type;
  if (type === "timestamp") return "instant";
  const some = result.rows.slice(0, 50).map((row) => row[at]).filter((value) => value !== null);
  return some.length > 0 && some.every((value) => typeof value === "string" && INSTANT.test(value)) ? "instant" : "text";
}

export const moment = (value) => (value === null ? null : Date.parse(/[Z]$|[+-]\d\d:?\d\d$/.test(value) ? value : `${value}Z`));

const written = (value) => (value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

// A text that a spreadsheet would take for a formula gets a ' before it.
function cell(value) {
  const text = written(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(result) {
  const rows = [result.columns.map((column) => column.name), ...result.rows];
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

export const json = (result) => `${JSON.stringify(result.rows.map((row) => Object.fromEntries(result.columns.map((column, at) => [column.name, row[at]]))), null, 2)}\n`;

export function download(text, name, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
