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

// The options of schedules as the server declares them; a retry policy has no field of its own here.
async function loadOptions() {
  const { items } = await get("/schedule-options");
  return items.filter((option) => option.kind !== "retry policy");
}

// What a form holds: flags as such, everything else as text.
const toText = (option, value) => option.kind === "flag" ? Boolean(value)
  : option.kind === "arguments" ? JSON.stringify(value ?? {})
  : value == null ? "" : String(value);

// What is sent for it; null stands for the default.
function toValue(option, text) {
  if (option.kind === "flag") return text;
  if (text === "") return null;
  if (option.kind === "whole number") return Number(text);
  if (option.kind !== "arguments") return text;
  try { return JSON.parse(text); } catch (fault) { throw Object.assign(new Error(`Arguments are no JSON: ${fault.message}`), { code: "invalid" }); }
}

// The fields that a person edits. What is not among them is left as it is.
const texts = (one, options) => ({
  kind: one.kind === "once" ? "at" : one.kind, expr: one.expr,
  ...Object.fromEntries(options.map((option) => [option.name, toText(option, one[option.name])])),
});

const timingOptions = (options) => options.filter((option) => option.moves_cursor);
const timingFields = (options) => ["kind", "expr", ...timingOptions(options).map((option) => option.name)];
const timing = (told, options) => ({ [told.kind]: told.expr, ...values(told, timingOptions(options)) });
const values = (told, options) => Object.fromEntries(options.map((option) => [option.name, toValue(option, told[option.name])]));

// When it would fire. `schedule` is the one that is edited, null for a new one. A timing that is left
// alone keeps its place; a changed one begins anew, never in the past. With `delay`, a first run that
// is over says nothing of the next one.
async function foresee(told, schedule, options, request) {
  if (schedule === null) return post("/next", timing(told, options), request);
  const before = texts(schedule, options);
  const stays = timingFields(options).every((field) => told[field] === before[field]);
  const begins = stays && schedule.next_fire_at ? schedule.next_fire_at : told.first_run || null;
  const over = told.anchor === "delay" && parse(begins) <= now.peek();
  const times = await post("/next", { ...timing(told, options), first_run: over ? null : begins }, request);
  return { ...times, coming: times.coming.filter((time) => parse(time.at) > now.peek()) };
}

function Timing({ one, options, schedule = null }) {
  const [told, setTold] = useState({ ...one });
  const [answer, setAnswer] = useState(null);
  const timer = useRef(null);
  useEffect(() => {
    clearTimeout(timer.current);
    const controller = new AbortController();
    timer.current = setTimeout(async () => {
      if (!told.expr.trim()) return setAnswer(null);
      try {
        setAnswer(await foresee(told, schedule, options, { signal: controller.signal }));
      } catch (problem) {
        if (problem.name !== "AbortError") setAnswer({ problem: problem.detail });
      }
    }, TYPING);
    return () => { clearTimeout(timer.current); controller.abort(); };
  }, timingFields(options).map((field) => told[field]));
  const change = (field) => (event) => setTold({ ...told, [field]: event.target.type === "checkbox" ? event.target.checked : event.target.value.trim() });
  return html`<div class="grid two">
      <${Field} name="kind" label="Kind" options=${[{ value: "cron", label: "cron" }, { value: "every", label: "every (a duration)" }, { value: "at", label: "once (an instant)" }]} value=${one.kind} onInput=${change("kind")} />
      <${Field} name="expr" label="When" value=${one.expr} required onInput=${change("expr")} hint="0 3 * * * · 5m · 2026-03-01T12:00:00Z" maxlength="512" />
      ${timingOptions(options).filter((option) => option.kind === "zone").map((option) => optionField(option, one, change(option.name)))}
    </div>
    ${optionGroup("More about its times", timingOptions(options).filter((option) => option.kind !== "zone"), one, change)}
    <div class="preview" aria-live="polite">${answer?.problem ? html`<p class="is-bad tone">${answer.problem}</p>` : answer && html`<p><b>${answer.words}</b>${answer.coming.length === 0 && ", but nothing is to come"}</p>
      <ol>${answer.coming.slice(0, 5).map((time) => html`<li key=${time.at}><code>${time.at}</code> <span class="muted"><${When} at=${time.at} /></span>${time.note && html` <span class="is-warn tone">${time.note}</span>`}</li>`)}</ol>`}</div>`;
}

const label = (word) => word[0].toUpperCase() + word.slice(1).replaceAll("_", " ");

function optionField(option, one, onInput = null) {
  const { name, kind, help, lowest, highest } = option;
  const types = { flag: "checkbox", arguments: "area", "whole number": "number" };
  return html`<${Field} key=${name} name=${name} label=${label(name)} hint=${help} value=${one[name]} onInput=${onInput}
    type=${types[kind] ?? "text"} options=${kind === "choice" ? option.values : null} min=${lowest ?? undefined} max=${highest ?? undefined} maxlength=${kind === "arguments" ? null : "512"} />`;
}

// Closed unless something in it differs from its default.
function optionGroup(title, options, one, change = () => null) {
  const differs = options.some((option) => one[option.name] !== toText(option, option.default));
  return html`<details key=${title} open=${differs}><summary>${title}</summary>
    <div class="grid two">${options.map((option) => optionField(option, one, change(option.name)))}</div></details>`;
}

function policies(one, options) {
  const others = options.filter((option) => !option.moves_cursor);
  const groups = [...new Set(others.map((option) => option.group))];
  return groups.map((group) => optionGroup(label(group), others.filter((option) => option.group === group), one));
}

export async function createSchedule(done) {
  const loaded = await attempt(() => Promise.all([get("/jobs", { limit: 500 }), loadOptions()]));
  if (!loaded) return;
  const [jobs, options] = loaded;
  if (jobs.items.length === 0) { toast("There is no job yet to make a schedule for.", { tone: "bad", way: "Put one into jobs.d, or start an app with one." }); return; }
  const defaults = Object.fromEntries(options.map((option) => [option.name, option.default]));
  // Empty: the zone of the server.
  const one = texts({ kind: "cron", expr: "0 3 * * *", ...defaults, timezone: null }, options);
  const told = await ask({
    title: "New schedule", verb: "Create", wide: true,
    fields: [{ name: "name", label: "Name", required: true, maxlength: "128" }, { name: "job", label: "Job", options: jobs.items.map((job) => job.name) }],
    body: html`<${Timing} one=${one} options=${options} />${policies(one, options)}`,
  });
  if (!told) return;
  const made = await attempt(() => post("/schedules", { name: told.name, job: told.job, [told.kind]: told.expr, ...values(told, options) }));
  if (made) { toast(`Schedule ${made.name} is made.`); done(); go(`/schedules/${part(made.name)}`); }
}

// Only what differs is sent, with the version that was read: nobody's change is lost.
export async function editSchedule(one, done) {
  const options = await attempt(loadOptions);
  if (!options) return;
  const before = texts(one, options);
  const told = await ask({ title: `Edit ${one.name}`, verb: "Show what changes", wide: true, body: html`<${Timing} one=${before} options=${options} schedule=${one} />${policies(before, options)}` });
  if (!told) return;
  const changed = Object.keys(before).filter((field) => (told[field] ?? "") !== (before[field] ?? ""));
  if (changed.length === 0) { toast("Nothing is changed."); return; }
  await attempt(async () => {
    const wanted = values(told, options.filter((option) => changed.includes(option.name)));
    if (changed.includes("kind") || changed.includes("expr")) wanted[told.kind] = told.expr;
    const times = changed.some((field) => timingFields(options).includes(field)) ? await foresee(told, one, options) : null;
    const sure = await ask({
      title: `Change ${one.name}?`, verb: "Save", wide: true,
      body: html`<table class="diff"><thead><tr><th>Field</th><th>Now</th><th>Then</th></tr></thead><tbody>
        ${changed.map((field) => html`<tr key=${field}><td>${field}</td><td><code>${String(before[field])}</code></td><td><code>${String(told[field])}</code></td></tr>`)}</tbody></table>
        ${times ? html`<p>Then it fires ${times.words}; next <${When} at=${times.coming[0]?.at} as="stamp" none="never" />.</p>` : html`<p class="muted">Its next time stays as it is.</p>`}
        <p class="muted">Runs that are made already are not touched.</p>`,
    });
    if (!sure) return;
    await patch(`/schedules/${name(one.name)}`, wanted, { headers: { "If-Match": `"${one.version}"` } });
    toast(`Schedule ${one.name} is changed.`);
    done();
  });
}
