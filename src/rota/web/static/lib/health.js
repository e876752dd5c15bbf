// The overview, read once for the whole page: the first screen shows it, the navigation counts it.
import { computed, signal } from "./html.js";
import { get } from "./api.js";
import { listen } from "./events.js";

const LEAST = 2_000; // milliseconds between two looks
const EVERY = 15_000; // what no event tells: that something is late

export const overview = signal(null);
export const overviewError = signal(null);
let timer = null;
let busy = false;
let lookedAt = 0;
let took = 0;

export async function refresh() {
  clearTimeout(timer);
  timer = null;
  if (busy) return;
  busy = true;
  lookedAt = performance.now();
  try {
    overview.value = await get("/overview");
    overviewError.value = null;
  } catch (problem) {
    overviewError.value = problem;
  } finally {
    took = performance.now() - lookedAt;
    busy = false;
  }
}

export function start() {
  refresh();
  listen((events) => {
    if (!events.some((one) => one.type !== "run.progress" && one.type !== "hello")) return;
    timer ??= setTimeout(refresh, Math.max(50, LEAST, took * 4) - Math.min(LEAST, performance.now() - lookedAt));
  });
  setInterval(() => { if (!document.hidden && performance.now() - lookedAt > EVERY) refresh(); }, EVERY);
}

const of = (problems, test) => problems.filter(test);

// What the navigation shows beside a screen's name: {screen: {count, tone, title}}.
export const health = computed(() => {
  const told = overview.value;
  if (!told) return {};
  const counts = {};
  const wrong = of(told.problems, (one) => one.severity !== "note");
  const worst = wrong.some((one) => one.severity === "error") ? "bad" : "warn";
  if (wrong.length) counts.overview = { count: wrong.length, tone: worst, title: "things are wrong now" };
  const paused = told.schedules?.paused ?? 0;
  if (paused) counts.schedules = { count: paused, tone: "halt", title: "paused" };
  if (told.runs.running) counts.runs = { count: told.runs.running, tone: "run", title: "running" };
  return counts;
});
