// One run: where it stands, what it did step by step, what went wrong, and what it logged.
import { html, useEffect, useState } from "../lib/html.js";
import { attempt, get, post, remove } from "../lib/api.js";
import { now } from "../lib/clock.js";
import { listen } from "../lib/events.js";
import { overview } from "../lib/health.js";
import { useLoad } from "../lib/load.js";
import { back, go, href } from "../lib/router.js";
import { can } from "../lib/session.js";
import { duration, parse } from "../lib/time.js";
import { toast } from "../lib/toast.js";
import { Badge, TERMINAL, tone } from "../parts/badge.js";
import { Code, whereOf } from "../parts/code.js";
import { ask } from "../parts/dialog.js";
import { Empty, Failed, Notice } from "../parts/empty.js";
import { Log } from "../parts/log.js";
import { Card, Facts, Page } from "../parts/page.js";
import { Result } from "../parts/result.js";
import { jobLink, runLink, scheduleLink, share, short, withEvent } from "../parts/run-bits.js";
import { Bar } from "../parts/strip.js";
import { Table } from "../parts/table.js";
import { Took, When } from "../parts/when.js";

export default function Run({ params }) {
  const path = `/runs/${encodeURIComponent(params.id)}`;
  const concerns = (event) => event.data?.run_id === params.id || (event.type === "action" && event.data.thing?.includes(params.id));
  const loaded = useLoad((signal) => get(path, {}, { signal }), [params.id], { on: concerns, every: 15 });
  const parts = useLoad(async (signal) => {
    const [attempts, steps, texts, events] = await Promise.all(["attempts", "steps", "texts", "events"].map((one) => get(`${path}/${one}`, {}, { signal })));
    return { attempts, steps, texts, events: events.items };
  }, [params.id], { on: concerns, every: 15 });
  useEffect(() => listen((events) => {
    const mine = events.filter((event) => event.data?.run_id === params.id);
    if (mine.length) loaded.set((run) => (run ? mine.reduce(withEvent, run) : run));
  }), [params.id]);
  const run = loaded.data;
  const title = run ? `${run.job} ${short(params.id)}` : short(params.id);
  if (!run) return html`<${Page} title=${title} of="runs">${loaded.error ? html`<${Failed} error=${loaded.error} again=${loaded.reload} />` : html`<${Empty} title="Loading…" />`}<//>`;
  const reload = () => { loaded.reload(); parts.reload(); };
  const over = TERMINAL.has(run.state);
  return html`<${Page} title=${title} of="runs" badge=${html`<${Badge} state=${run.state} />`} actions=${can("operator") && html`<${Actions} run=${run} steps=${parts.data?.steps ?? []} reload=${reload} />`}>
    <div class="grid">
      <${Why} run=${run} attempts=${parts.data?.attempts ?? []} />
      <${Progressing} run=${run} />
      <${Fault} run=${run} texts=${parts.data?.texts ?? []} />
      <div class="grid side">
        <div class="grid">
          ${parts.data?.steps.length > 0 && html`<${Steps} run=${run} steps=${parts.data.steps} reload=${reload} />`}
          <${Log} key=${`${run.id}-${run.redo}`} run=${run.id} over=${over} />
          ${run.result != null && !parts.data?.steps.some((step) => step.result) && html`<${Card} title="Result"><${Result} value=${run.result} /><//>`}
          <${Texts} texts=${parts.data?.texts ?? []} error=${run.state === "dead" ? run.error : null} />
        </div>
        <div class="grid">
          <${About} run=${run} />
          ${Object.keys(run.args ?? {}).length > 0 && html`<${Card} title="Arguments"><${Result} value=${run.args} /><//>`}
          <${Attempts} run=${run} attempts=${parts.data?.attempts ?? []} />
          <${Events} events=${parts.data?.events ?? []} />
        </div>
      </div>
    </div>
  <//>`;
}

function Actions({ run, steps, reload }) {
  const act = async (question, doing, words) => {
    const told = await ask(question);
    if (told && (await attempt(() => doing(told))) !== undefined) { toast(words); reload(); return true; }
    return false;
  };
  const path = `/runs/${run.id}`;
  const over = TERMINAL.has(run.state);
  const cancel = () => act({ title: "Cancel this run", text: run.state === "running" ? "Its worker is asked to stop; a handler ends where it can." : "It will not start.", verb: "Cancel the run", danger: true, reason: "optional" }, (told) => post(`${path}/cancel`, told), run.state === "running" ? "Its worker is asked to stop." : "The run is cancelled.");
  const drop = async () => {
    if (await act({ title: "Delete this run", text: "With its attempts and its log, for good.", verb: "Delete", danger: true, reason: "optional" }, (told) => remove(path, { reason: told.reason }), "The run is deleted.")) go(back("/runs").slice(1));
  };
  return html`
    ${over && html`<button class="primary" onClick=${() => redo(run, steps, null, reload)}>Redo…</button>`}
    ${!over && !run.cancel_requested_at && html`<button class="danger" onClick=${cancel}>Cancel…</button>`}
    ${!over && run.state !== "paused" && html`<button onClick=${() => act({ title: "Pause this run", text: run.state === "running" ? "A SQL run stops at its next step, done steps kept. A Python run goes to its end." : "It waits until somebody resumes it.", verb: "Pause", reason: "optional" }, (told) => post(`${path}/pause`, told), run.state === "running" ? "A pause is asked for." : "The run is paused.")}>Pause…</button>`}
    ${run.state === "paused" && html`<button class="primary" onClick=${() => act({ title: "Resume this run", verb: "Resume", reason: "optional" }, (told) => post(`${path}/resume`, told), "The run goes on.")}>Resume…</button>`}
    ${run.state !== "running" && html`<button class="danger" onClick=${drop}>Delete…</button>`}`;
}

export async function redo(run, steps, from, reload) {
  const names = [...new Set(steps.map((step) => step.name))];
  const fields = names.length === 0 ? [] : [{
    name: "from_step", label: "Begin at", value: from ?? "",
    options: [{ value: "", label: "the first step that is not done" }, ...names.map((name) => ({ value: name, label: name }))],
  }, { name: "latest", type: "checkbox", label: "With the files as they are now", hint: "From the first step, unless you chose one." }];
  const told = await ask({ title: "Redo this run", text: names.length ? "What comes before that one is not run again. Values are read anew." : "It is run again with the same arguments.", verb: "Redo", fields, reason: "optional" });
  if (!told) return;
  const done = await attempt(() => post(`/runs/${run.id}/redo`, { reason: told.reason, latest: Boolean(told.latest), from_step: told.from_step || null }));
  if (done) { toast(["The run begins again.", ...done.notes.map((one) => `${one}.`)].join(" ")); reload(); }
}

// Whatever does not run says why.
function Why({ run, attempts }) {
  const words = reasons(run, attempts);
  return words.length ? html`<${Notice} tone=${run.state === "paused" ? "halt" : run.state === "dead" || run.state === "cancelled" ? "off" : "wait"}>${words.map((one, at) => html`<div key=${at}>${one}</div>`)}<//>` : null;
}

function reasons(run, attempts) {
  const because = run.reason ? `: ${run.reason}` : "";
  switch (run.state) {
    case "waiting": return [run.attempt > 0 && run.failures > 0 ? html`Between attempts: the next one is due <${When} at=${run.due_at} as="countdown" />.` : html`Not due yet: it is due <${When} at=${run.due_at} as="countdown" />${because}.`];
    case "held": return [html`Held: another run has the slot it needs (${run.overlap_key ?? run.concurrency_key}). It starts when that one ends. <a href=${href("/runs", { job: run.job, state: "running" })}>Look at it</a>`];
    case "queued": {
      const known = (overview.value?.problems ?? []).filter((one) => (one.kind === "waiting" && one.name === run.job) || one.kind === "dispatch" || (one.kind === "workers" && one.severity === "error"));
      return known.length ? known.map((one) => `Not running: ${one.message}`) : [html`Queued since <${When} at=${run.queued_at} />: the next free slot of a worker takes it.`];
    }
    case "paused": return [`Paused${because}. It goes on when somebody resumes it.`];
    case "running": return [run.cancel_requested_at && html`Its worker was asked to stop <${When} at=${run.cancel_requested_at} />${because}.`, run.pause_requested_at && html`A pause was asked for <${When} at=${run.pause_requested_at} />${because}.`].filter(Boolean);
    case "cancelled": return [`Cancelled${because || ", no reason given"}.`];
    case "dead": return [`Dead${death(run, attempts)}`];
    default: return [];
  }
}

// The attempt that came last ended it; workers may have been lost on the way. Where its row is not
// there, the run itself may tell.
function death(run, attempts) {
  const how = attempts.find((one) => one.number === run.attempt)?.outcome;
  if (how ? how === "lost" : run.failures === 0 && run.lost > 0) return `: its worker was lost, ${run.lost} times in all.`;
  if (run.failures >= run.max_attempts) return `: ${run.failures} of ${run.max_attempts} attempts failed, so nobody tries again.`;
  return how ? `: attempt ${run.attempt} failed for good, so nobody tries again.` : ".";
}

function Progressing({ run }) {
  const told = share(run.progress);
  if (!told || (run.state !== "running" && told.share >= 1)) return null;
  return html`<div class="bigbar" data-progress=${told.words}><${Bar} share=${told.share} label="Progress" state=${run.state} /><small class="muted number">${told.words}, ${Math.round(told.share * 100)} %</small></div>`;
}

// The error, and the very line it speaks of.
function Fault({ run, texts }) {
  if (!run.error || run.state === "succeeded") return null;
  const where = whereOf(run.error);
  const text = where && texts.find((one) => one.name === where.file)?.text;
  const around = text && text.split("\n").slice(Math.max(0, where.line - 3), where.line + 2);
  return html`<${Card} title=${run.state === "dead" ? "What went wrong" : "What went wrong in the last attempt"}>
    <pre class="errortext" tabindex="0">${run.error}</pre>
    ${around && html`<p class="small muted">${where.file}, line ${where.line}:</p><${Code} label="The line of the error" text=${around.join("\n")} bad=${Math.min(where.line, 3)} />`}
  <//>`;
}

function About({ run }) {
  return html`<${Card} title="About"><${Facts} rows=${[
    ["Id", html`<code>${run.id}</code>`],
    ["Job", jobLink(run.job)],
    ["Schedule", run.schedule && scheduleLink(run.schedule)],
    ["Occurrence", run.occurrence && html`<${When} at=${run.occurrence} as="stamp" />`],
    ["Stands for", run.missed_count > 1 && `${run.missed_count} occurrences`],
    ["Made by", run.created_by],
    ["Retry of", run.retry_of && runLink(run.retry_of)],
    ["Queue", html`<a href=${href("/runs", { queue: run.queue })}>${run.queue}</a>`],
    ["Priority", run.priority !== 0 && run.priority],
    ["Due", html`<${When} at=${run.due_at} />`],
    ["Waited", run.started_at && duration(Math.max(0, parse(run.started_at) - parse(run.due_at)))],
    ["Started", run.started_at && html`<${When} at=${run.started_at} />`],
    ["Finished", run.finished_at && html`<${When} at=${run.finished_at} />`],
    ["Took", run.started_at && html`<${Took} from=${run.started_at} to=${run.finished_at} running=${run.state === "running"} />`],
    ["Attempt", run.attempt ? `${run.attempt}${run.max_attempts > 1 ? ` (${run.failures} of ${run.max_attempts} failed)` : ""}` : null],
    ["Lost", run.lost > 0 && `${run.lost} times`],
    ["Redone", run.redo > 0 && `${run.redo} times`],
    ["Timeout", run.timeout],
    ["Worker", run.worker_id && html`<a href=${href("/workers")}>${run.worker_id}</a>`],
    ["Slots", [run.overlap_key, run.concurrency_key].filter(Boolean).join(", ")],
    ["Correlation", run.correlation_id], ["Trace", run.trace && html`<code>${run.trace}</code>`],
  ]} /><//>`;
}

function Steps({ run, steps, reload }) {
  const numbers = [...new Set(steps.map((step) => step.attempt))];
  const [chosen, setChosen] = useState(null);
  const number = chosen ?? numbers.at(-1);
  const shown = steps.filter((step) => step.attempt === number);
  const begin = Math.min(...shown.map((step) => parse(step.started_at) ?? Infinity));
  const end = Math.max(begin + 1, ...shown.map((step) => parse(step.finished_at) ?? now.value));
  const place = (step) => {
    const from = parse(step.started_at) ?? begin;
    const to = parse(step.finished_at) ?? now.value;
    return { left: `${((from - begin) / (end - begin)) * 100}%`, width: `${((to - from) / (end - begin)) * 100}%` };
  };
  const tabs = numbers.length > 1 && html`<div class="chips tight"><div class="set" role="group" aria-label="Attempt">${numbers.map((one) => html`<button key=${one} aria-pressed=${String(one === number)} onClick=${() => setChosen(one)}>attempt ${one}</button>`)}</div></div>`;
  const redoable = can("operator") && TERMINAL.has(run.state);
  return html`<${Card} title="Steps" actions=${tabs} flush><${Table} label="Steps" rows=${shown} keyOf=${(step) => step.number} columns=${[
    { label: "Step", lead: true, cell: (step) => html`<code>${step.name}</code>${step.note && html`<div class="small muted">${step.note}</div>`}` },
    { label: "Status", fit: true, cell: (step) => html`<${Badge} state=${step.status} />` },
    { label: "Time", cell: (step) => html`<div class="steptrack ${tone(step.status)}"><span style=${place(step)}></span></div>` },
    { label: "Took", fit: true, right: true, cell: (step) => html`<${Took} from=${step.started_at} to=${step.finished_at} running=${step.status === "running"} />` },
    { label: "Rows", fit: true, right: true, cell: (step) => (step.rows == null ? "–" : step.rows.toLocaleString("en")) },
    ...(redoable ? [{ label: "", fit: true, cell: (step) => html`<button onClick=${() => redo(run, steps, step.name, reload)} aria-label=${`Redo from here: ${step.name}`}>Redo from here…</button>` }] : []),
  ]} />
  ${shown.filter((step) => step.result).map((step) => html`<details key=${step.number} class="body" open><summary>Result of ${step.name}</summary><${Result} value=${step.result} label=${`Result of ${step.name}`} /></details>`)}<//>`;
}

function Texts({ texts, error }) {
  if (texts.length === 0) return null;
  const where = whereOf(error);
  return html`<${Card} title="SQL as it ran"><p class="small muted">As it was when the run began, before its variables were filled in; values are never kept.</p>
    ${texts.map((one) => html`<details key=${one.number} open=${where?.file === one.name}><summary><code>${one.name}</code>${one.names.length > 0 && html` <small class="muted">uses ${one.names.join(", ")}</small>`}</summary>
      <${Code} label=${one.name} text=${one.text} bad=${where?.file === one.name ? where.line : null} /></details>`)}<//>`;
}

function Attempts({ run, attempts }) {
  if (attempts.length === 0 && run.attempt < 2) return null;
  return html`<${Card} title="Attempts" flush><ul class="lines">${attempts.map((one) => html`<li key=${one.number} class="attempt"><b>${one.number}</b><${Badge} state=${one.outcome ?? "running"} title=${one.error} />
    <span class="muted clip" title=${one.error}>${one.worker_id}</span><${Took} from=${one.started_at} to=${one.finished_at} /><${When} at=${one.started_at} /></li>`)}</ul><//>`;
}

function Events({ events }) {
  if (events.length === 0) return null;
  return html`<${Card} title="What else was recorded" flush><ul class="lines">${events.map((one) => html`<li key=${one.id}><span>${one.kind}</span><span class="muted">${one.detail}</span><${When} at=${one.at} /></li>`)}</ul><//>`;
}
