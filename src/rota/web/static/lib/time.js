// Instants and durations as people read them.

const pad = (number) => String(number).padStart(2, "0");
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// Far away, and unknown, have names in the API: null, and the year 9999.
export const parse = (text) => (text == null ? null : Date.parse(text));

export function relative(at, now) {
  const seconds = Math.round((at - now) / 1000);
  if (Math.abs(seconds) < 2) return "now";
  const [size, unit] = UNITS.find(([size]) => Math.abs(seconds) >= size);
  const count = Math.floor(Math.abs(seconds) / size);
  const told = `${count.toLocaleString("en")} ${unit}`;
  return seconds > 0 ? `in ${told}` : `${told} ago`;
}

// What is left, to the second while it is near: 00:42, 3:07:10, 2 d 4 h.
export function countdown(at, now) {
  const seconds = Math.max(0, Math.ceil((at - now) / 1000));
  if (seconds >= 86400) return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
  const rest = `${pad(Math.floor((seconds % 3600) / 60))}:${pad(seconds % 60)}`;
  return seconds >= 3600 ? `${Math.floor(seconds / 3600)}:${rest}` : rest;
}

export function duration(milliseconds) {
  if (milliseconds == null || Number.isNaN(milliseconds)) return "";
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${pad(Math.floor(seconds % 60))} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${pad(Math.floor((seconds % 3600) / 60))} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const zone = (date) => {
  const minutes = -date.getTimezoneOffset();
  const sign = minutes < 0 ? "−" : "+";
  return `${sign}${pad(Math.floor(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
};
export const day = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
export const hour = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}`;
export const second = (date) => `${hour(date)}:${pad(date.getSeconds())}`;

// In the zone of the browser, and in UTC: what a log says and what a clock on the wall says.
export function absolute(at) {
  const date = new Date(at);
  const utc = date.toISOString();
  return `${day(date)} ${second(date)} ${zone(date)} (UTC ${utc.slice(0, 10)} ${utc.slice(11, 19)})`;
}

// On the clock of another zone, with its name; nothing where the browser does not know it.
const clocks = new Map(); // dear to make, and a countdown asks every second
export function elsewhere(at, name) {
  if (!clocks.has(name)) clocks.set(name, clock(name));
  const own = clocks.get(name);
  return own === null ? "" : `${own.format(at)} ${name}`;
}
function clock(name) {
  try {
    return new Intl.DateTimeFormat("sv-SE", { timeZone: name, dateStyle: "short", timeStyle: "medium" });
  } catch {
    return null;
  }
}

// Short, for tables: the time alone if it is today.
export function stamp(at, now) {
  const date = new Date(at);
  const today = day(date) === day(new Date(now));
  return today ? second(date) : `${day(date)} ${hour(date)}`;
}
