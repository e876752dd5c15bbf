// Dialogs: one at a time, asked for with a call, answered by a promise.
import { html, signal, useEffect, useId, useRef } from "../lib/html.js";

const asked = signal(null);

// ask({title, text, verb, danger, reason, fields, body, wide}) → what was filled in, or null.
// `reason`: "optional" or "required" gives a field for it, in the answer as `reason`.
// `fields`: [{name, label, type, value, options, hint, required}]. `body(values)`: more to show.
export function ask(question) {
  asked.value?.answer(null);
  return new Promise((resolve) => {
    asked.value = { ...question, answer: (told) => { asked.value = null; resolve(told); } };
  });
}

export function Dialogs() {
  const question = asked.value;
  return question && html`<${Question} key=${question.title} question=${question} />`;
}

function Question({ question }) {
  const element = useRef(null);
  const { title, text, verb = "OK", danger = false, reason = null, fields = [], body = null, wide = false, answer } = question;
  useEffect(() => {
    const opener = document.activeElement;
    element.current.showModal();
    return () => opener?.focus?.();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    const told = {};
    for (const field of event.target.elements) {
      if (field.name) told[field.name] = field.type === "checkbox" ? field.checked : field.value.trim();
    }
    if ("reason" in told && told.reason === "") told.reason = null;
    answer(told);
  };
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby="dialog-title"
      onCancel=${() => answer(null)} onClose=${() => answer(null)}>
    <form method="dialog" onSubmit=${submit}>
      <h2 id="dialog-title">${title}</h2>
      ${text && html`<p class="muted">${text}</p>`}
      ${fields.map((field) => html`<${Field} key=${field.name} ...${field} />`)}
      ${body}
      ${reason && html`<${Field} name="reason" label=${reason === "required" ? "Reason" : "Reason (others will read it)"}
        type="area" required=${reason === "required"} autofocus=${fields.length === 0} maxlength="2000" />`}
      <footer>
        <button type="button" onClick=${() => answer(null)}>${verb === "Close" ? "Close" : "Back"}</button>
        ${verb !== "Close" && html`<button type="submit" class=${danger ? "danger" : "primary"}>${verb}</button>`}
      </footer>
    </form>
  </dialog>`;
}

export function Field({ name, label, type = "text", value = "", options = null, hint = null, required = false, autofocus = false, maxlength = null, min = undefined, max = undefined, onInput = null, disabled = false }) {
  const id = useId();
  const common = { name, required, autofocus, maxlength, min, max, onInput, disabled, "aria-describedby": hint ? id : null };
  const told = hint && html`<small id=${id} class="muted">${hint}</small>`;
  if (type === "checkbox") {
    return html`<div><label><input type="checkbox" ...${common} defaultChecked=${Boolean(value)} />${label}</label>${told}</div>`;
  }
  const control = type === "area"
    ? html`<textarea ...${common} defaultValue=${value}></textarea>`
    : options
      ? html`<select ...${common}>${options.map((one) => {
        const { value: of, label: text } = typeof one === "string" ? { value: one, label: one } : one;
        return html`<option key=${of} value=${of} selected=${of === value}>${text}</option>`;
      })}</select>`
      : html`<input type=${type} ...${common} defaultValue=${value} autocomplete="off" />`;
  return html`<div><label class="field"><span>${label}</span>${control}</label>${told}</div>`;
}
