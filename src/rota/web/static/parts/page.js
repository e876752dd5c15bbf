// What every screen begins with: its title, where it belongs, and its actions.
import { html, useEffect } from "../lib/html.js";
import { back } from "../lib/router.js";
import { SCREENS } from "../routes.js";

export function Page({ title, of = null, badge = null, actions = null, children }) {
  useEffect(() => { document.title = `${title} · Rota`; }, [title]);
  const list = of && SCREENS.find((one) => one.name === of);
  return html`<div class="head">
      <h1>${list && html`<span class="crumb"><a href=${back(list.path)}>${list.title}</a> /</span>`}<span>${title}</span>${badge}</h1>
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>${children}`;
}

export function Card({ title, actions = null, children, flush = false, label = null }) {
  return html`<section class="card" aria-label=${label ?? (typeof title === "string" ? title : null)}>
    ${title && html`<header><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${flush ? children : html`<div class="body">${children}</div>`}
  </section>`;
}

// Names and values beside each other; those without a value are left out.
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(([, value]) => value != null && value !== "" && value !== false)
    .map(([label, value]) => html`<dt key=${label}>${label}</dt><dd>${value}</dd>`)}</dl>`;
}
