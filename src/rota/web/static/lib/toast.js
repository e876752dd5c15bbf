// Short words at the edge of the screen: what was done, or what went wrong and the way out.
import { signal } from "./html.js";

const MOST = 4;
const SECONDS = { ok: 5, bad: 20 };
export const toasts = signal([]);
let count = 0;

export function toast(text, { tone = "ok", way = null, link = null } = {}) {
  const id = (count += 1);
  // The same words again only begin their time anew.
  const others = toasts.value.filter((one) => one.text !== text);
  toasts.value = [...others, { id, text, tone, way, link }].slice(-MOST);
  setTimeout(() => dismiss(id), (SECONDS[tone] ?? 10) * 1000);
  return id;
}

export function dismiss(id) {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

const WAYS = {
  unauthenticated: "Log in with a token: the first start wrote one to .rota/token.",
  forbidden: "Log in with a token of that role, or ask who has one.",
  outdated: "Somebody changed it meanwhile. Look at it anew, then repeat your change.",
  conflict: "Look at its present state: it may have moved on.",
  busy: "Try again in a moment.",
  unavailable: "The store is away or busy. Try again in a moment.",
  storage: "The store is away or busy. Try again in a moment.",
  timeout: "Ask for less: a shorter time, or more filters.",
  network: "Is `rota up` still running? This page goes on by itself when it is back.",
  csrf: "The session is over. Log in again.",
};

export function complain(problem) {
  if (problem?.name === "AbortError") return;
  toast(problem?.detail ?? problem?.message ?? String(problem), { tone: "bad", way: WAYS[problem?.code] ?? null });
}
