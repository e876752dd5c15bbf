// The log of a run: its last lines, and the following ones as they come.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { attempt, get } from "../lib/api.js";
import { readAll } from "../lib/events.js";
import { absolute, parse, second } from "../lib/time.js";
import { Card } from "./page.js";
import { Empty } from "./empty.js";

const TAIL = 200;
const MOST = 2_000; // lines on the screen; the others are asked for
const WAIT = 1_000;

// The lines on the screen are a stretch of the log without a hole. `earlier` and `later`: there are
// more before it, or after it. Following ones are added only where the stretch ends with the log.
const NONE = { lines: [], earlier: false, later: false };

function withEarlier({ lines, later }, page) {
  const all = [...page.items, ...lines];
  return { lines: all.slice(0, MOST), earlier: page.next !== null, later: later || all.length > MOST };
}

function withLater({ lines, earlier }, items, later = false) {
  const all = [...lines, ...items];
  return { lines: all.slice(-MOST), earlier: earlier || all.length > MOST, later };
}

export function Log({ run, over }) {
  const [shown, setShown] = useState(NONE);
  const [follow, setFollow] = useState(true);
  const [state, setState] = useState("loading");
  const box = useRef(null);
  const { lines, earlier, later } = shown;
  const read = (query, options) => get(`/runs/${run}/logs`, { ...query, limit: TAIL }, options);
  const tail = async (options) => {
    const page = await read({}, options);
    setShown({ lines: page.items, earlier: page.next !== null, later: false });
  };

  useEffect(() => {
    const controller = new AbortController();
    tail({ signal: controller.signal })
      .then(() => setState(over ? "whole" : "live"))
      .catch((fault) => { if (fault.name !== "AbortError") setState("failed"); });
    return () => controller.abort();
  }, [run]);

  useEffect(() => {
    if (state !== "live" || later) return undefined;
    const controller = new AbortController();
    let last = lines.at(-1)?.id ?? 0;
    let waiting = [];
    let frame = null;
    const flush = () => {
      cancelAnimationFrame(frame);
      frame = null;
      const items = waiting;
      waiting = [];
      setShown((now) => (now.later ? now : withLater(now, items)));
    };
    const add = (line) => {
      last = line.id;
      waiting.push(line);
      frame ??= requestAnimationFrame(flush); // a thousand lines between two frames are one update
    };
    // Until the run ends or is gone (true), or the connection does.
    const stream = async () => {
      let ended = false;
      const stop = new AbortController();
      const hide = () => { if (document.hidden) stop.abort(); };
      document.addEventListener("visibilitychange", hide);
      controller.signal.addEventListener("abort", () => stop.abort());
      try {
        if (document.hidden) return false;
        const answer = await fetch(`/api/v1/runs/${run}/logs/stream?after=${last}`, { signal: stop.signal, credentials: "same-origin" });
        if (!answer.ok) return answer.status === 404; // deleted meanwhile
        await readAll(answer.body, (event) => {
          if (event.type === "log") add(event.data);
          if (event.type === "end") ended = event.data.state !== null; // null: the store is away
        });
      } catch { /* it is tried again, after the last line that came */ } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      return ended;
    };
    const start = async () => {
      while (!controller.signal.aborted) {
        if (await stream()) { flush(); setState("whole"); return; }
        await new Promise((resolve) => setTimeout(resolve, WAIT));
      }
    };
    start();
    return () => { controller.abort(); cancelAnimationFrame(frame); };
  }, [run, state, later]);

  useEffect(() => { if (follow && box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines, follow]);

  const before = async () => {
    const page = await attempt(() => read({ before: lines[0].id }));
    if (!page) return;
    setFollow(false);
    // What came meanwhile may have pushed out the line that they belong before.
    setShown((now) => withEarlier(now.lines[0].id === lines[0].id ? now : { ...shown, later: true }, page));
  };
  const after = async () => {
    const page = await attempt(() => read({ after: lines.at(-1).id }));
    if (page) setShown((now) => (now.lines.at(-1).id === lines.at(-1).id ? withLater(now, page.items, page.next !== null) : now));
  };
  const toEnd = (wanted) => {
    setFollow(wanted);
    if (wanted && later) attempt(tail);
  };
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setFollow(!later && scrollHeight - scrollTop - clientHeight < 24);
  };
  const actions = html`${state === "live" && !later && html`<span class="badge is-run">following</span>`}
    <label><input type="checkbox" checked=${follow} onChange=${(event) => toEnd(event.target.checked)} />to the end</label>`;
  return html`<${Card} title="Log" actions=${actions} flush>
    ${lines.length === 0 ? html`<${Empty} title=${state === "live" ? "Nothing is logged yet" : state === "failed" ? "The log could not be read" : state === "loading" ? "Loading…" : "It logged nothing"}>
        ${state === "whole" && html`<span>In Python: <code>ctx.logger.info("…")</code></span>`}<//>`
      : html`<div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="Log lines">
        ${earlier && html`<button class="link" onClick=${before}>earlier lines</button>`}
        ${lines.map((line) => html`<div key=${line.id} class=${line.level}><time title=${absolute(parse(line.at))}>${second(new Date(parse(line.at)))}</time><span class="level">${line.level}</span><span class="text">${line.text}</span></div>`)}
        ${later && html`<button class="link" onClick=${after}>later lines</button>`}
      </div>`}
  <//>`;
}
