// A form to run a job: a field for each argument that it takes. What is wrong is said at the field.
import { html, useId, useRef, useState } from "../lib/html.js";
import { Problem, name, post } from "../lib/api.js";
import { href, part } from "../lib/router.js";
import { complain, toast } from "../lib/toast.js";

const OPTIONS = [
  { name: "delay", label: "Not before (a delay)", hint: "such as 10m; empty: now" },
  { name: "key", label: "Key", hint: "with a key that was used already, no second run is made" },
  { name: "priority", label: "Priority", hint: "a higher number goes first; empty: the job's own" },
];

export function RunForm({ job, made }) {
  const form = useRef(null);
  const [faults, setFaults] = useState({});
  const [busy, setBusy] = useState(false);
  const { parameters, open } = job.args;

  const show = (found) => {
    setFaults(found);
    const first = Object.keys(found)[0];
    if (first) form.current.elements[first]?.focus();
  };

  const submit = async (event) => {
    event.preventDefault();
    const { body, found } = read(new FormData(form.current), parameters, open);
    show(found);
    if (Object.keys(found).length > 0 || busy) return;
    setBusy(true);
    try {
      const told = await post(`/jobs/${name(job.name)}/runs`, body);
      toast(told.created ? `A run of ${job.name} is made.` : "A run with this key was there already; no other is made.", { link: { href: href(`/runs/${part(told.id)}`), label: "Look at it" } });
      made();
    } catch (problem) {
      const named = problem instanceof Problem ? placed(problem, parameters) : {};
      if (Object.keys(named).length) show(named);
      else complain(problem);
    } finally {
      setBusy(false);
    }
  };

  return html`<form ref=${form} class="run-form" noValidate onSubmit=${submit} aria-label="Run ${job.name}">
    ${parameters.length === 0 && !open && html`<p class="muted">It takes no arguments.</p>`}
    ${parameters.map((one) => html`<${Argument} key=${one.name} parameter=${one} fault=${faults[`arg.${one.name}`]} />`)}
    ${open && html`<${Labelled} name="more" label=${parameters.length ? "More arguments" : "Arguments"} kind="a JSON object" fault=${faults.more}
      hint=${`such as {"day": "2026-01-31"}`} area />`}
    <details><summary>When, and how</summary><div class="run-form">
      ${OPTIONS.map((one) => html`<${Labelled} key=${one.name} ...${one} fault=${faults[one.name]} />`)}</div></details>
    <div class="row"><button type="submit" class="primary" disabled=${busy}>${busy ? "Asking…" : "Run"}</button>
      <span class="muted small">Secrets among the arguments are hidden wherever a run is shown.</span></div>
  </form>`;
}

function Argument({ parameter, fault }) {
  const { types, required } = parameter;
  const kind = `${types.length ? types.join(" or ") : "anything, as JSON or text"}, ${required ? "required" : "optional"}`;
  const hint = required ? null : "empty: its own default";
  const field = `arg.${parameter.name}`;
  if (types.includes("boolean") && types.every((one) => one === "boolean" || one === "null")) {
    return html`<${Labelled} name=${field} label=${parameter.name} kind=${kind} hint=${hint} fault=${fault} required=${required}
      options=${["", "true", "false", ...(types.includes("null") ? ["null"] : [])]} />`;
  }
  const area = types.length === 0 || types.some((one) => one === "array" || one === "object");
  const numeric = types.some((one) => one === "integer" || one === "number") && !types.includes("string");
  return html`<${Labelled} name=${field} label=${parameter.name} kind=${kind} hint=${hint} fault=${fault} required=${required} area=${area} mode=${numeric ? "decimal" : null} />`;
}

function Labelled({ name: field, label, kind = null, hint = null, fault = null, required = false, area = false, options = null, mode = null }) {
  const id = useId();
  const common = {
    id, name: field, autocomplete: "off", "aria-invalid": fault ? "true" : null, "aria-required": required ? "true" : null,
    "aria-describedby": `${id}-more`,
  };
  return html`<div class="labelled">
    <label for=${id}><b>${label}</b>${kind && html` <span class="muted small">${kind}</span>`}</label>
    ${options ? html`<select ...${common}>${options.map((one) => html`<option key=${one} value=${one}>${one || "–"}</option>`)}</select>`
      : area ? html`<textarea ...${common} rows="3" class="mono" spellcheck=${false}></textarea>`
        : html`<input ...${common} type="text" inputmode=${mode} spellcheck=${false} />`}
    <small id="${id}-more">${fault ? html`<span class="tone is-bad" role="alert">${fault}</span>` : html`<span class="muted">${hint}</span>`}</small>
  </div>`;
}

// What the fields say as a body, and what cannot be meant, by field.
export function read(fields, parameters, open) {
  const found = {};
  const args = {};
  for (const { name: key, types, required } of parameters) {
    const text = (fields.get(`arg.${key}`) ?? "").trim();
    if (text === "") {
      if (required) found[`arg.${key}`] = types.includes("string") ? "It is required. An empty text is \"\"." : "It is required.";
      continue;
    }
    const { value, fault } = valued(text, types);
    if (fault) found[`arg.${key}`] = fault;
    else args[key] = value;
  }
  const more = open ? (fields.get("more") ?? "").trim() : "";
  if (more) {
    try {
      const told = JSON.parse(more);
      if (told === null || typeof told !== "object" || Array.isArray(told)) throw new Error();
      Object.assign(args, told);
    } catch {
      found.more = "This is not a JSON object. Write {\"name\": value}, with \" around names and texts.";
    }
  }
  const body = { args };
  for (const option of ["delay", "key"]) {
    const text = (fields.get(option) ?? "").trim();
    if (text) body[option] = text;
  }
  const priority = (fields.get("priority") ?? "").trim();
  if (priority && !/^-?\d{1,7}$/.test(priority)) found.priority = "A whole number is needed.";
  else if (priority) body.priority = Number(priority);
  return { body, found };
}

const kindOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);
const fits = (value, types) => types.length === 0 || types.includes(kindOf(value)) || (typeof value === "number" && types.includes("integer") && Number.isInteger(value));

// A text field holds text. Whatever else is wanted is read as JSON.
function valued(text, types) {
  const plain = types.length === 1 && types[0] === "string";
  if (plain) return { value: text === '""' ? "" : text };
  let told;
  try { told = JSON.parse(text); } catch { told = undefined; }
  if (told !== undefined && fits(told, types)) {
    if (typeof told === "number" && Number.isInteger(told) && !Number.isSafeInteger(told)) return { fault: "The number is too large for a browser; use the command line." };
    return { value: told };
  }
  if (types.length === 0 || types.includes("string")) return { value: text };
  const wanted = types.map((one) => ({ integer: "a whole number", number: "a number", boolean: "true or false", array: "a JSON list, such as [1, 2]", object: "a JSON object, such as {\"a\": 1}", null: "null" })[one] ?? one);
  return { fault: `It must be ${wanted.join(" or ")}.` };
}

// The server's words, each at the field that it names.
function placed(problem, parameters) {
  const found = {};
  for (const one of problem.errors ?? []) {
    const field = one.where.replace(/^body\./, "");
    if (OPTIONS.some((option) => option.name === field)) found[field] = one.message;
  }
  for (const { name: key } of parameters) {
    const at = problem.detail.indexOf(`'${key}' `);
    if (at >= 0) found[`arg.${key}`] = problem.detail.slice(at + key.length + 3).split(/; '| \(it takes/)[0];
  }
  for (const { name: key } of OPTIONS) {
    if (Object.keys(found).length === 0 && problem.detail.includes(`${key} `) && problem.status === 422) found[key] = problem.detail;
  }
  return found;
}
