import { html } from "../lib/html.js";
import { dismiss, toasts } from "../lib/toast.js";
import { Icon } from "./icons.js";

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(({ id, text, tone, way, link }) => html`<div key=${id} class="toast is-${tone}">
      <p>${text}${link && html` <a href=${link.href}>${link.label}</a>`}</p>
      <button class="plain" aria-label="Dismiss" onClick=${() => dismiss(id)}><${Icon} name="close" /></button>
      ${way && html`<p class="way">${way}</p>`}
    </div>`)}
  </div>`;
}
