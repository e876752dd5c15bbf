// Small pictures of many things: outcomes in a strip, a share as a bar.
import { Component, html } from "../lib/html.js";
import { href, part } from "../lib/router.js";
import { absolute, parse } from "../lib/time.js";
import { tone } from "./badge.js";

const mark = (outcomes) => outcomes.map((one) => `${one.occurrence}${one.state ?? one.outcome}`).join();

// The last occurrences of a schedule, newest first as the API has them; shown oldest first. A list
// of fifty looks again every second: a strip that is as it was is not made again.
export class Strip extends Component {
  shouldComponentUpdate({ outcomes }) {
    return mark(outcomes) !== mark(this.props.outcomes);
  }

  render({ outcomes, most = 30, label }) {
    const shown = outcomes.slice(0, most).reverse();
    return html`<span class="strip" role="group" aria-label="${label}: ${summary(shown)}">
      ${Array.from({ length: most - shown.length }, (_, at) => html`<span key=${`none${at}`} class="none"></span>`)}
      ${shown.map((one) => {
        const state = one.state ?? one.outcome;
        const title = `${absolute(parse(one.occurrence))}: ${state}${one.reason ? `, ${one.reason}` : ""}`;
        return one.run_id && one.state
          ? html`<a key=${one.occurrence} class=${tone(state)} title=${title} tabindex="-1" aria-hidden="true" href=${href(`/runs/${part(one.run_id)}`)}></a>`
          : html`<span key=${one.occurrence} class=${tone(state)} title=${title}></span>`;
      })}
    </span>`;
  }
}

function summary(outcomes) {
  const counts = new Map();
  for (const one of outcomes) {
    const state = one.state ?? one.outcome;
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ") || "nothing yet";
}

export function Bar({ share, label, state = "running" }) {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return html`<div class="bar ${tone(state)}" role="progressbar" aria-label=${label} aria-valuenow=${percent} aria-valuemin="0" aria-valuemax="100">
    <span style=${{ width: `${percent}%` }}></span></div>`;
}
