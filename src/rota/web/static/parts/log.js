// The log of a run: its last lines, and the following ones as they come.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { readAll } from "../lib/events.js";
import { absolute, parse, second } from "../lib/time.js";
import { Card } from "./page.js";
import { Empty } from "./empty.js";

const TAIL = 200;
const MOST = 2_000; // lines on the screen; earlier ones are asked for
const WAIT = 1_000;

export function Log({ run, over }) {
  const [lines, setLines] = useState([]);
  const [earlier, setEarlier] = useState(null);
  const [follow, setFollow] = useState(true);
  const [state, setState] = useState("loading");
  const box = useRef(null);

  useEffect(() => {
    const controller = new AbortController();
    let last = 0;
    let waiting = [];
    let frame = null;
    const add = (line) => {
      last = line.id;
      waiting.push(line);
      // A thousand lines between two frames are one update.
      frame ??= requestAnimationFrame(() => {
        frame = null;
        const more = waiting;
        waiting = [];
        setLines((before) => [...before, ...more].slice(-MOST));
      });
    };
    const start = async () => {
      const page = await get(`/runs/${run}/logs`, { limit: TAIL }, { signal: controller.signal });
      setLines(page.items);
      setEarlier(page.next);
      last = page.items.at(-1)?.id ?? 0;
      setState(over ? "whole" : "live");
      while (!over && !controller.signal.aborted) {
        if (await stream()) { setState("whole"); return; }
        await new Promise((resolve) => setTimeout(resolve, WAIT));
      }
    };
    // Until the run ends (true), or the connection does.
    const stream = async () => {
      let ended = false;
      const stop = new AbortController();
      const hide = () => { if (document.hidden) stop.abort(); };
      document.addEventListener("visibilitychange", hide);
      controller.signal.addEventListener("abort", () => stop.abort());
      try {
        if (document.hidden) return false;
        const answer = await fetch(`/api/v1/runs/${run}/logs/stream?after=${last}`, { signal: stop.signal, credentials: "same-origin" });
        if (!answer.ok) return false;
        await readAll(answer.body, (event) => {
          if (event.type === "log") add(event.data);
          if (event.type === "end") ended = true;
        });
      } catch { /* it is tried again, after the last line that came */ } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      return ended;
    };
    start().catch((fault) => { if (fault.name !== "AbortError") setState("failed"); });
    return () => { controller.abort(); cancelAnimationFrame(frame); };
  }, [run, over]);

  useEffect(() => { if (follow && box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines, follow]);

  const more = async () => {
    const page = await get(`/runs/${run}/logs`, { before: lines[0].id, limit: TAIL });
    setFollow(false);
    setLines((before) => [...page.items, ...before].slice(0, MOST));
    setEarlier(page.next);
  };
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setFollow(scrollHeight - scrollTop - clientHeight < 24);
  };
  const actions = html`${state === "live" && html`<span class="badge is-run">following</span>`}
    <label><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} />to the end</label>`;
  return html`<${Card} title="Log" actions=${actions} flush>
    ${lines.length === 0 ? html`<${Empty} title=${state === "live" ? "Nothing is logged yet" : state === "failed" ? "The log could not be read" : state === "loading" ? "Loading…" : "It logged nothing"}>
        ${state === "whole" && html`<span>In Python: <code>ctx.logger.info("…")</code></span>`}<//>`
      : html`<div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="Log lines">
        ${earlier !== null && html`<button class="link" onClick=${more}>earlier lines</button>`}
        ${lines.map((line) => html`<div key=${line.id} class=${line.level}><time title=${absolute(parse(line.at))}>${second(new Date(parse(line.at)))}</time><span class="level">${line.level}</span><span class="text">${line.text}</span></div>`)}
      </div>`}
  <//>`;
}
