// An axis of time: where its marks are, and what they say.
import { html } from "../lib/html.js";
import { day, hour, second } from "../lib/time.js";

const STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 345600, 604800].map((seconds) => seconds * 1000);
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

// Marks at round times of the wall's clock, about so many.
export function marks(since, until, about = 8) {
  const step = STEPS.find((one) => (until - since) / one <= about) ?? STEPS.at(-1);
  const offset = new Date(since).getTimezoneOffset() * 60_000;
  const first = Math.ceil((since - offset) / step) * step + offset;
  const found = [];
  for (let at = first; at < until; at += step) found.push(at);
  return { step, at: found };
}

function word(at, step) {
  const date = new Date(at);
  if (step < 60_000) return second(date);
  if (step >= 86_400_000) return `${WEEKDAYS[date.getDay()]} ${day(date).slice(5)}`;
  const text = hour(date);
  return text === "00:00" ? `${WEEKDAYS[date.getDay()]} ${day(date).slice(5)}` : text;
}

export const place = (at, since, until) => `${(((at - since) / (until - since)) * 100).toFixed(3)}%`;

// A word at the very edge would be cut.
const inside = (share) => share > 0.03 && share < 0.97;

export function Axis({ since, until, about }) {
  const { step, at } = marks(since, until, about);
  return html`<div class="axis" aria-hidden="true">${at.filter((one) => inside((one - since) / (until - since))).map((one) => html`<span key=${one} style=${{ left: place(one, since, until) }}>${word(one, step)}</span>`)}</div>`;
}

export function Grid({ since, until, about }) {
  return html`<div class="gridlines" aria-hidden="true">${marks(since, until, about).at.map((one) => html`<i key=${one} style=${{ left: place(one, since, until) }}></i>`)}</div>`;
}
