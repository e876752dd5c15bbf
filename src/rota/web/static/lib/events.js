// One stream of events for the whole page. It goes on where it broke off, waits longer each time
// that it cannot, and is closed while nobody looks: a browser has six connections to a server, and
// a tab in the background needs none of them.
import { signal } from "./html.js";
import { session } from "./session.js";

const HIDDEN_SECONDS = 5;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const MOST_WAITING = 2_000; // events; with more it is cheaper to look anew
export const stream = signal("connecting"); // live, connecting, offline, quiet

const listeners = new Set();
let lastId = null;
let controller = null;
let wait = FIRST_WAIT;
let timer = null;
let waiting = [];
let frame = null;

// `listener` is given what happened since the last frame: a list of {type, data}. An event `hello`
// or `resync` says that what was before is not known: time to read everything anew.
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function start() {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(quiet, HIDDEN_SECONDS * 1000);
    else if (!controller) { wait = FIRST_WAIT; connect(); }
  });
  addEventListener("online", () => { if (!controller) { clearTimeout(timer); connect(); } });
  if (!document.hidden) connect();
}

function quiet() {
  controller?.abort();
  controller = null;
  stream.value = "quiet";
}

async function connect() {
  const mine = (controller = new AbortController());
  if (stream.value !== "offline") stream.value = "connecting";
  try {
    const headers = { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) };
    const answer = await fetch("/events", {
      headers, signal: mine.signal, credentials: "same-origin", cache: "no-store",
    });
    if (!answer.ok || !answer.body) throw new Error(`${answer.status}`);
    await readAll(answer.body, (event) => {
      wait = FIRST_WAIT;
      stream.value = "live"; // with the first word, not before: from there on nothing is missed
      lastId = event.id ?? lastId;
      tell(event);
    });
    wait = FIRST_WAIT; // it ended in good order: the server stops, or the time of a stream is over
  } catch {
    if (mine.signal.aborted) return;
    stream.value = "offline";
  }
  if (controller === mine) later();
}

function later() {
  controller = null;
  clearTimeout(timer);
  if (document.hidden) { stream.value = "quiet"; return; }
  // Spread, so that a hundred pages do not come back in the same moment.
  timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
  wait = Math.min(wait * 2, LONGEST_WAIT);
}

// Every event of a stream, until it ends.
export async function readAll(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (event) take(event);
    }
  }
}

function parse(block) {
  let type = null;
  let data = "";
  let id = null;
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) type = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
    else if (line.startsWith("id: ")) id = line.slice(4);
  }
  if (type === null) return null; // a comment that says: still here
  try { return { type, data: JSON.parse(data), id }; } catch { return null; }
}

function tell(event) {
  waiting.push(event);
  if (waiting.length > MOST_WAITING) waiting = [{ type: "resync", data: {} }];
  // With the screen's own pace: sixty events between two frames are one update.
  frame ??= requestAnimationFrame(deliver);
}

function deliver() {
  frame = null;
  const events = waiting;
  waiting = [];
  for (const listener of [...listeners]) {
    try { listener(events); } catch (fault) { console.error(fault); }
  }
}

// Another person has another stream.
session.subscribe((told) => {
  if (told && stream.value === "offline" && !controller) { clearTimeout(timer); wait = FIRST_WAIT; connect(); }
});
