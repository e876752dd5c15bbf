// A schedule as a form, with what it would do while one types: in words, and its next times.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { attempt, get, name, patch, post } from "../lib/api.js";
import { now } from "../lib/clock.js";
import { go, part } from "../lib/router.js";
import { parse } from "../lib/time.js";
import { toast } from "../lib/toast.js";
import { Field, ask } from "./dialog.js";
import { When } from "./when.js";

const TYPING = 300;
const KINDS = { cron: "cron", every: "every", once: "at" };
const OVERLAPS = ["wait", "queue", "skip", "allow"];
const ON_ERROR = ["next", "retry", "pause"];
const CATCH_UP = ["one", "none", "all"];

// The fields that a person edits, as texts. What is not among them is left as it is.
const texts = (one) => ({
  kind: one.kind === "once" ? "at" : one.kind, expr: one.expr, timezone: one.timezone, overlap: one.overlap,
  on_error: one.on_error, catch_up: one.catch_up, jitter: one.jitter, args: JSON.stringify(one.args ?? {}),
});

const timing = (told) => ({ [told.kind]: told.expr, timezone: told.timezone || null });

// When it would fire. `schedule` is the one that is edited, null for a new one: what the form does
// not show of it counts, too. A timing that is left alone keeps its place; a changed one begins
// anew, never in the past. With `delay`, a first run that is over says nothing of the next one.
async function foresee(told, schedule, options) {
  if (schedule === null) return post("/next", timing(told), options);
  const { dst, anchor, starts_at, ends_at, first_run, next_fire_at } = schedule;
  const before = texts(schedule);
  const stays = ["kind", "expr", "timezone"].every((field) => told[field] === before[field]);
  const begins = stays && next_fire_at ? next_fire_at : first_run;
  const over = anchor === "delay" && parse(begins) <= now.peek();
  const times = await post("/next", { ...timing(told), dst, anchor, starts_at, ends_at, first_run: over ? null : begins }, options);
  return { ...times, coming: times.coming.filter((time) => parse(time.at) > now.peek()) };
}

function Timing({ one, schedule = null }) {
  const [told, setTold] = useState({ ...one });
  const [answer, setAnswer] = useState(null);
  const timer = useRef(null);
  useEffect(() => {
    clearTimeout(timer.current);
    const controller = new AbortController();
    timer.current = setTimeout(async () => {
      if (!told.expr.trim()) return setAnswer(null);
      try {
        setAnswer(await foresee(told, schedule, { signal: controller.signal }));
      } catch (problem) {
        if (problem.name !== "AbortError") setAnswer({ problem: problem.detail });
      }
    }, TYPING);
    return () => { clearTimeout(timer.current); controller.abort(); };
  }, [told.kind, told.expr, told.timezone]);
  const change = (field) => (event) => setTold({ ...told, [field]: event.target.value });
  return html`<div class="grid two">
      <${Field} name="kind" label="Kind" options=${[{ value: "cron", label: "cron" }, { value: "every", label: "every (a duration)" }, { value: "at", label: "once (an instant)" }]} value=${one.kind} onInput=${change("kind")} />
      <${Field} name="expr" label="When" value=${one.expr} required onInput=${change("expr")} hint="0 3 * * * · 5m · 2026-03-01T12:00:00Z" maxlength="512" />
      <${Field} name="timezone" label="Time zone" value=${one.timezone} onInput=${change("timezone")} maxlength="64" />
    </div>
    <div class="preview" aria-live="polite">${answer?.problem ? html`<p class="is-bad tone">${answer.problem}</p>` : answer && html`<p><b>${answer.words}</b>${answer.coming.length === 0 && ", but nothing is to come"}</p>
      <ol>${answer.coming.slice(0, 5).map((time) => html`<li key=${time.at}><code>${time.at}</code> <span class="muted"><${When} at=${time.at} /></span>${time.note && html` <span class="is-warn tone">${time.note}</span>`}</li>`)}</ol>`}</div>`;
}

const policies = (one) => html`<div class="grid two">
  <${Field} name="overlap" label="If the run before still runs" options=${OVERLAPS} value=${one.overlap} />
  <${Field} name="on_error" label="When a run dies" options=${ON_ERROR} value=${one.on_error} />
  <${Field} name="catch_up" label="After downtime" options=${CATCH_UP} value=${one.catch_up} />
  <${Field} name="jitter" label="Jitter" value=${one.jitter} maxlength="64" />
  <${Field} name="args" label="Arguments (JSON)" type="area" value=${one.args} />
</div>`;

export async function createSchedule(done) {
  const jobs = await attempt(() => get("/jobs", { limit: 500 }));
  if (!jobs) return;
  if (jobs.items.length === 0) { toast("There is no job yet to make a schedule for.", { tone: "bad", way: "Put one into jobs.d, or start an app with one." }); return; }
  const one = { kind: "cron", expr: "0 3 * * *", timezone: "", overlap: "wait", on_error: "next", catch_up: "one", jitter: "0s", args: "{}" };
  const told = await ask({
    title: "New schedule", verb: "Create", wide: true,
    fields: [{ name: "name", label: "Name", required: true, maxlength: "128" }, { name: "job", label: "Job", options: jobs.items.map((job) => job.name) }],
    body: html`<${Timing} one=${one} />${policies(one)}`,
  });
  if (!told) return;
  const made = await attempt(() => post("/schedules", body(told, { name: told.name, job: told.job })));
  if (made) { toast(`Schedule ${made.name} is made.`); done(); go(`/schedules/${part(made.name)}`); }
}

function body(told, more = {}) {
  let args;
  try { args = JSON.parse(told.args || "{}"); } catch (fault) { throw Object.assign(new Error(`Arguments are no JSON: ${fault.message}`), { code: "invalid" }); }
  const { overlap, on_error, catch_up, jitter } = told;
  return { ...more, ...timing(told), overlap, on_error, catch_up, jitter: jitter || null, args };
}

// Only what differs is sent, with the version that was read: nobody's change is lost.
export async function editSchedule(one, done) {
  const before = texts(one);
  const told = await ask({ title: `Edit ${one.name}`, verb: "Show what changes", wide: true, body: html`<${Timing} one=${before} schedule=${one} />${policies(before)}` });
  if (!told) return;
  const changed = Object.keys(before).filter((field) => (told[field] ?? "") !== (before[field] ?? ""));
  if (changed.length === 0) { toast("Nothing is changed."); return; }
  await attempt(async () => {
    const whole = body(told);
    const wanted = {};
    for (const field of changed) {
      if (field === "kind" || field === "expr") wanted[told.kind] = told.expr;
      else wanted[field] = whole[field];
    }
    const times = changed.some((field) => ["kind", "expr", "timezone"].includes(field)) ? await foresee(told, one) : null;
    const sure = await ask({
      title: `Change ${one.name}?`, verb: "Save", wide: true,
      body: html`<table class="diff"><thead><tr><th>Field</th><th>Now</th><th>Then</th></tr></thead><tbody>
        ${changed.map((field) => html`<tr key=${field}><td>${field}</td><td><code>${before[field]}</code></td><td><code>${told[field]}</code></td></tr>`)}</tbody></table>
        ${times ? html`<p>Then it fires ${times.words}; next <${When} at=${times.coming[0]?.at} as="stamp" none="never" />.</p>` : html`<p class="muted">Its next time stays as it is.</p>`}
        <p class="muted">Runs that are made already are not touched.</p>`,
    });
    if (!sure) return;
    await patch(`/schedules/${name(one.name)}`, wanted, { headers: { "If-Match": `"${one.version}"` } });
    toast(`Schedule ${one.name} is changed.`);
    done();
  });
}
