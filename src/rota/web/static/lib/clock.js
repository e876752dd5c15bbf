// The server's time: every countdown and "ago" is counted by the clock that decides.
import { signal } from "./html.js";

let offset = 0;
export const now = signal(Date.now()); // milliseconds, of the server; moves once a second

export const serverNow = () => Date.now() + offset;

// An answer with `now_at` tells the server's time; half of the way is added.
export function setClock(nowAt, sentAt, receivedAt) {
  const told = Date.parse(nowAt) - (sentAt + receivedAt) / 2;
  // A clock that is off by less than the network is left alone: it would only jitter.
  if (Math.abs(told - offset) > Math.max(250, receivedAt - sentAt)) offset = told;
}

function tick() {
  if (!document.hidden) now.value = serverNow();
  setTimeout(tick, 1000 - (serverNow() % 1000) + 5);
}
tick();
document.addEventListener("visibilitychange", () => { now.value = serverNow(); });
