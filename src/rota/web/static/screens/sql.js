// Statements and queries: written with help, kept in a history, shown as tables and as a quick chart.
import { html, signal, useEffect, useRef, useState } from "../lib/html.js";
import { post } from "../lib/api.js";
import { VIEWS, EXAMPLES, place } from "../lib/statements.js";
import { can, session } from "../lib/session.js";
import { duration } from "../lib/time.js";
import { Editor } from "../parts/editor.js";
import { Empty } from "../parts/empty.js";
import { Card, Page } from "../parts/page.js";
import { Answer as Rows } from "../parts/answer.js";

const HISTORY = "rota.sql.history";
const KEPT = 100;
const LONGEST = 8_000; // characters of one that is kept

const draft = signal(null); // what is written stays while other screens are looked at
const answer = signal(null);
const columns = signal(null); // of each view, once asked for

const history = () => {
  try { const told = JSON.parse(localStorage.getItem(HISTORY)); return Array.isArray(told) ? told.filter((one) => typeof one?.text === "string") : []; } catch { return []; }
};
function keep(text) {
  const kept = [{ text, at: Date.now() }, ...history().filter((one) => one.text !== text)].slice(0, KEPT);
  try { localStorage.setItem(HISTORY, JSON.stringify(text.length > LONGEST ? kept.slice(1) : kept)); } catch { /* full, or not allowed: no history then */ }
}

export default function Console({ query }) {
  const text = draft.value ?? query.sql ?? "";
  const [busy, setBusy] = useState(false);
  const [kept, setKept] = useState(history);
  const [mark, setMark] = useState(null);
  const back = useRef(-1);
  const controller = useRef(null);
  useEffect(() => { if (query.sql) draft.value = query.sql; }, [query.sql]);
  useEffect(() => { learn(); return () => controller.current?.abort(); }, []);
  const write = (told) => { draft.value = told; back.current = -1; };

  const run = async () => {
    const sql = text.trim();
    if (!sql || busy) return;
    setBusy(true);
    setMark(null);
    controller.current = new AbortController();
    const began = performance.now();
    try {
      const told = await post("/sql", { sql: text }, { signal: controller.current.signal });
      answer.value = { results: told.results, took: performance.now() - began, sql };
    } catch (problem) {
      if (problem.name === "AbortError") answer.value = { stopped: true };
      else {
        const at = place(text, problem.detail ?? "");
        answer.value = { problem, text, at };
        setMark(at);
      }
    } finally {
      controller.current = null;
      setBusy(false);
      keep(sql);
      setKept(history());
    }
  };
  const leaf = (step) => {
    const at = Math.max(-1, Math.min(kept.length - 1, back.current + step));
    back.current = at;
    draft.value = at < 0 ? "" : kept[at].text;
  };

  return html`<${Page} title="SQL console" badge=${html`<span class="muted small">you may ${may()}</span>`}>
    <div class="grid side console">
      <div class="grid">
        <${Card} flush label="Statement">
          <${Editor} text=${text} onText=${write} onRun=${run} onHistory=${leaf} columns=${(view) => columns.value?.[view] ?? []} mark=${mark} />
          <div class="pager">
            <button class="primary" disabled=${busy || !text.trim()} onClick=${run}>Run <kbd>Ctrl Enter</kbd></button>
            ${busy && html`<button onClick=${() => controller.current?.abort()}>Do not wait</button>`}
            <span id="editor-keys" class="told small"><kbd>Ctrl Space</kbd> completes, <kbd>Alt ↑</kbd> goes back in the history</span>
          </div>
        <//>
        <${Answer} busy=${busy} />
      </div>
      <${Help} kept=${kept} write=${write} clear=${() => { localStorage.removeItem(HISTORY); setKept([]); }} />
    </div>
  <//>`;
}

const may = () => (can("admin") ? "query, operate, and say which SQL runs" : can("operator") ? "query and operate" : "query and look");

// The columns of every view, in one question.
async function learn() {
  if (columns.value) return;
  try {
    const told = await post("/sql", { sql: VIEWS.map((view) => `SELECT * FROM ${view} LIMIT 0;`).join("\n") });
    columns.value = Object.fromEntries(VIEWS.map((view, at) => [view, told.results[at].columns.map((column) => column.name)]));
  } catch { /* asked again next time; until then the names of views are completed */ }
}

function Answer({ busy }) {
  const told = answer.value;
  if (!told) return busy ? html`<${Card}><${Empty} title="It runs…" /><//>` : html`<${Card}><${Empty} title="Nothing was asked yet">Choose an example, or write a statement and press <kbd>Ctrl Enter</kbd>.<//><//>`;
  if (told.stopped) return html`<${Card}><${Empty} title="Not waited for">A query is stopped by the server after 30 seconds at most; a statement that changes something may have been done: look before you repeat it.<//><//>`;
  if (told.problem) return html`<${Wrong} told=${told} />`;
  return html`<div class="grid ${busy ? "stale" : ""}" aria-live="polite">
    ${told.results.map((result, at) => html`<${Rows} key=${at} result=${result} number=${told.results.length > 1 ? at + 1 : null} took=${duration(told.took)} />`)}
    ${told.results.length === 0 && html`<${Card}><${Empty} title="There was no statement in it" /><//>`}
  </div>`;
}

function Wrong({ told: { problem, text, at } }) {
  const way = problem.code === "forbidden" ? `You are ${session.value?.role ?? "nobody"}: log in with a token of that role.` : problem.code === "busy" ? "Try again in a moment." : null;
  const start = at ? text.lastIndexOf("\n", at.start - 1) + 1 : 0;
  const line = at && text.slice(start).split("\n", 1)[0];
  return html`<section class="card sql-error is-bad" role="alert">
    <p><b>${problem.detail}</b></p>${way && html`<p class="muted">${way}</p>`}
    ${at && html`<pre><span class="muted">line ${text.slice(0, at.start).split("\n").length}: </span>${line.slice(0, at.start - start)}<mark>${line.slice(at.start - start, at.end - start) || " "}</mark>${line.slice(at.end - start)}</pre>`}
  </section>`;
}

function Help({ kept, write, clear }) {
  const [tab, setTab] = useState("statements");
  const tabs = [["statements", "Examples"], ["views", "Views"], ["history", "History"]];
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = (tabs.findIndex(([one]) => one === tab) + step + tabs.length) % tabs.length;
    setTab(tabs[at][0]);
    event.currentTarget.children[at].focus();
  };
  return html`<${Card} flush label="Help">
    <div class="tabs" role="tablist" aria-label="Help" onKeyDown=${move}>${tabs.map(([one, label]) => html`<button key=${one} role="tab" id="tab-${one}" aria-controls="tab-panel" aria-selected=${String(one === tab)} tabindex=${one === tab ? null : "-1"} onClick=${() => setTab(one)}>${label}</button>`)}</div>
    <div role="tabpanel" id="tab-panel" aria-labelledby="tab-${tab}" class="help-panel" tabindex="0">
      ${tab === "statements" && html`<ul class="lines">${EXAMPLES.map((one) => html`<li key=${one.text}><button class="link sample" disabled=${one.role && !can(one.role)} onClick=${() => write(one.text)}>
          <code>${one.text}</code></button><small class="muted">${one.says}${one.role && !can(one.role) ? `; takes the role ${one.role}` : ""}</small></li>`)}</ul>`}
      ${tab === "views" && html`<ul class="lines">${VIEWS.map((view) => html`<li key=${view}><details><summary><code>${view}</code></summary>
          <p class="small words">${(columns.value?.[view] ?? ["…"]).map((one) => html`<code key=${one}>${one}</code>`)}</p>
          <button onClick=${() => write(`SELECT * FROM ${view} LIMIT 50;`)}>Look at it</button></details></li>`)}</ul>`}
      ${tab === "history" && (kept.length === 0
        ? html`<${Empty} title="Nothing yet">What you run is kept here, in this browser only.<//>`
        : html`<ul class="lines">${kept.map((one) => html`<li key=${one.text}><button class="link sample" onClick=${() => write(one.text)}><code>${one.text.length > 300 ? `${one.text.slice(0, 300)}…` : one.text}</code></button>
            <small class="muted" title=${new Date(one.at).toISOString()}>${new Date(one.at).toLocaleString("en-GB")}</small></li>`)}
          <li><button onClick=${clear}>Forget all</button></li></ul>`)}
    </div>
  <//>`;
}
