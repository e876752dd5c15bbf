// Data that a screen shows, and how it stays fresh: what was read is shown until the new is there,
// and events lead to another look, never more often than the server answers with ease.
import { useEffect, useRef, useState } from "./html.js";
import { listen } from "./events.js";
import { complain } from "./toast.js";

const LEAST = 1_000; // milliseconds between two looks that events cause
const EASE = 4; // of what the last look took

// load(signal) → data. `deps`: with others, load anew at once. `on(event)`: whether it matters;
// `every`: seconds, for what no event tells.
// Answers {data, error, reload, set}: set(change) changes what is shown, until the next look.
export function useLoad(load, deps = [], { on = null, every = null } = {}) {
  const [state, setState] = useState({ data: undefined, error: null });
  const kept = useRef(null);
  kept.current ??= { timer: null, controller: null, startedAt: 0, took: 0 };
  const now = kept.current;
  now.load = load;
  now.on = on;

  async function look() {
    clearTimeout(now.timer);
    now.timer = null;
    now.controller?.abort();
    const controller = (now.controller = new AbortController());
    now.startedAt = performance.now();
    try {
      const data = await now.load(controller.signal);
      if (controller.signal.aborted) return;
      now.took = performance.now() - now.startedAt;
      setState({ data, error: null });
    } catch (error) {
      if (controller.signal.aborted || error.name === "AbortError") return;
      // What is on the screen stays; only who has nothing to show shows the error instead.
      setState((before) => {
        if (before.data !== undefined && error.code !== "network") complain(error);
        return { ...before, error };
      });
    } finally {
      if (now.controller === controller) now.controller = null;
    }
  }
  now.look = look;

  function soon() {
    if (now.timer !== null) return;
    const pause = Math.max(LEAST, now.took * EASE) - (performance.now() - now.startedAt);
    const wait = () => { // one look at a time: a slow one is not cut short by the next event
      if (now.controller) now.timer = setTimeout(wait, LEAST);
      else { now.timer = null; now.look(); }
    };
    now.timer = setTimeout(wait, Math.max(50, pause));
  }

  useEffect(() => {
    look();
    return () => { now.controller?.abort(); clearTimeout(now.timer); now.timer = null; };
  }, deps);

  useEffect(() => {
    const stop = listen((events) => {
      const matters = events.some((one) => anew(one) || (now.on?.(one) ?? false));
      if (matters) soon();
    });
    const timer = every && setInterval(() => { if (!document.hidden) soon(); }, every * 1000);
    return () => { stop(); clearInterval(timer); };
  }, [every]);

  return {
    ...state,
    reload: () => now.look(),
    set: (change) => setState((before) => ({ ...before, data: change(before.data) })),
  };
}

// What was read before is of before the stream: it may be old already.
const anew = (event) => event.type === "resync" || event.type === "hello";

// For `on`: an event about a run, a person's action, a worker that came or went.
export const aboutRuns = (event) => /^(run|job|attempt)\.|^more$/.test(event.type);
export const aboutActions = (event) => event.type === "action";
export const anything = (event) => event.type !== "run.progress";
