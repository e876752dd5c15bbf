// What can be written in the SQL console: statements as they go on, views, and what may come next.

// <schedule> and <job> stand for names, <text> and <number> for values, <query> for a SELECT.
const GRAMMAR = `
SHOW SCHEDULES
SHOW RUNNING SCHEDULES
SHOW PAUSED SCHEDULES
SHOW SCHEDULE <schedule>
SHOW CREATE SCHEDULE <schedule>
SHOW JOBS
SHOW JOBS FOR SCHEDULE <schedule>
SHOW RUNS
SHOW RUNS FOR JOB <job>
EXPLAIN SCHEDULE <schedule> COUNT <number>
PAUSE SCHEDULE <schedule> REASON <text>
PAUSE SCHEDULES <query>
PAUSE JOBS FOR SCHEDULE <schedule> REASON <text>
PAUSE DISPATCH REASON <text>
RESUME SCHEDULE <schedule>
RESUME SCHEDULES <query>
RESUME JOBS FOR SCHEDULE <schedule>
RESUME DISPATCH
CANCEL JOBS FOR SCHEDULE <schedule> REASON <text>
EXECUTE SCHEDULE <schedule>
RUN JOB <job> WITH <text>
CREATE SCHEDULE <new> FOR JOB <job> RECURRING <text> WITH SCHEDULE OPTIONS
CREATE SCHEDULE <new> FOR JOB <job> EVERY <text> WITH SCHEDULE OPTIONS
CREATE SCHEDULE <new> FOR JOB <job> AT <text> WITH SCHEDULE OPTIONS
CREATE SCHEDULE <new> AS <text> ON <new> EVERY <text> WITH SCHEDULE OPTIONS
ALTER SCHEDULE <schedule> SET RECURRING <text>
ALTER SCHEDULE <schedule> SET EVERY <text>
ALTER SCHEDULE <schedule> SET AT <text>
ALTER SCHEDULE <schedule> SET FOR JOB <job>
DROP SCHEDULE <schedule>
DROP SCHEDULE IF EXISTS <schedule>
SELECT
WITH
`.trim().split("\n").map((line) => line.split(" "));

export const VIEWS = ["jobs", "job_queue", "job_runs", "occurrences", "schedules", "runs", "dead", "attempts", "steps", "events", "workers", "queues"];

const QUERY = [
  "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "AND", "OR", "NOT", "AS", "DESC", "ASC", "JOIN", "LEFT JOIN", "ON",
  "USING", "DISTINCT", "CASE", "WHEN", "THEN", "ELSE", "END", "IS NULL", "IS NOT NULL", "IN", "LIKE", "BETWEEN", "UNION ALL", "count(*)", "avg(", "min(", "max(", "sum(", "coalesce(",
];

// For people who do not know yet what to ask. `role`: who may.
export const EXAMPLES = [
  { text: "SHOW SCHEDULES;", says: "schedules and their next run" },
  { text: "EXPLAIN SCHEDULE name COUNT 5;", says: "its next times, and what keeps it from running" },
  { text: "SELECT job_name, count(*) AS runs\n  FROM runs\n WHERE state = 'dead'\n GROUP BY job_name ORDER BY runs DESC;", says: "which jobs die most" },
  { text: "SELECT started_at, job_name, status\n  FROM job_runs\n WHERE record_type = 'run'\n ORDER BY started_at DESC LIMIT 100;", says: "the latest runs" },
  { text: "SELECT schedule_name, occurrence, outcome, reason\n  FROM occurrences\n WHERE outcome <> 'fired'\n ORDER BY occurrence DESC LIMIT 50;", says: "what did not run, and why" },
  { text: "PAUSE SCHEDULE name REASON 'why';", says: "no more fires", role: "operator" },
  { text: "RESUME SCHEDULE name;", says: "fire again", role: "operator" },
  { text: "RUN JOB name WITH (argument = 'value');", says: "a run now", role: "operator" },
  { text: "CREATE SCHEDULE name FOR JOB job RECURRING '0 3 * * *';", says: "a new schedule", role: "operator" },
  { text: "CREATE SCHEDULE name AS $$\n  SELECT 1\n$$ EVERY '1h';", says: "a schedule with SQL of its own", role: "admin" },
];

const TOKEN = /'(?:[^']|'')*'?|"[^"]*"?|\$(\w*)\$[\s\S]*?(?:\$\1\$|$)|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|[\w./-]+|\S/g;
const WORD = /[\w./-]*$/;

// The statement that the text is in: what is written of it before the place, as words.
export function before(text, place) {
  const part = text.slice(0, place);
  const tokens = [...part.matchAll(TOKEN)].map((found) => ({ text: found[0], end: found.index + found[0].length }));
  const inside = tokens.at(-1);
  const open = inside && inside.end === place && /^('|"|\$|--|\/\*)/.test(inside.text) && !closed(inside.text);
  const last = tokens.findLastIndex((one) => one.text === ";");
  const words = tokens.slice(last + 1).map((one) => one.text).filter((one) => !one.startsWith("--") && !one.startsWith("/*"));
  const word = open ? "" : WORD.exec(part)[0];
  return { words: word ? words.slice(0, -1) : words, word, open };
}

const closed = (text) => (text.startsWith("'") || text.startsWith('"') ? text.length > 1 && text.endsWith(text[0]) : text.startsWith("/*") ? text.endsWith("*/") : text.startsWith("$") && text.lastIndexOf("$") > text.indexOf("$", 1));

// What may come next: {words: [...], names: "job", "schedule" or null, columns: [views] or null}.
export function next(written) {
  const upper = written.map((one) => one.toUpperCase());
  const first = upper[0];
  const query = upper.findLastIndex((one) => one === "SELECT" || one === "WITH");
  if (query >= 0 && (query === 0 || upper.includes("SCHEDULES"))) return inQuery(written, upper);
  const found = new Set();
  let names = null;
  for (const line of GRAMMAR) {
    if (line.length <= upper.length || !upper.every((word, at) => fits(word, line[at]))) continue;
    const coming = line[upper.length];
    if (coming === "<job>" || coming === "<schedule>") names = coming.slice(1, -1);
    else if (coming === "<query>") found.add("(SELECT name FROM schedules WHERE ");
    else if (!coming.startsWith("<")) found.add(coming);
  }
  return { words: [...found], names, columns: null, first };
}

const fits = (word, expected) => (expected.startsWith("<") ? !/^[=;(]/.test(word) : word === expected);

function inQuery(written, upper) {
  const last = upper.at(-1);
  const used = VIEWS.filter((view) => written.some((one) => one.toLowerCase() === view || one.toLowerCase().startsWith(`${view}.`)));
  if (last === "FROM" || last === "JOIN") return { words: VIEWS, names: null, columns: null };
  return { words: QUERY, names: null, columns: used.length ? used : null };
}

// Where an error is, in its own words: {start, end} in the text; null if it does not say.
export function place(text, detail) {
  const told = /\bat (\d+):(\d+)/.exec(detail) ?? /\bbefore (\d+):(\d+)/.exec(detail) ?? /\bline (\d+)(?:,? column (\d+))?/i.exec(detail);
  if (told) {
    const lines = text.split("\n");
    const line = Math.min(lines.length, Number(told[1]));
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + Math.max(0, Number(told[2] ?? 1) - 1);
    return within(text, start);
  }
  const near = /near "([^"]+)"/.exec(detail) ?? /(?:no such (?:column|table|function): |column "?|relation "?|named "?)([\w.]+)/i.exec(detail);
  if (!near) return null;
  const start = text.toLowerCase().indexOf(near[1].toLowerCase());
  return start < 0 ? null : { start, end: start + near[1].length };
}

function within(text, start) {
  const at = Math.min(start, text.length);
  const word = /^[\w./-]+|^\S/.exec(text.slice(at));
  return { start: at, end: at + (word ? word[0].length : 0) };
}
