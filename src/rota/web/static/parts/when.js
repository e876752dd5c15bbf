// Times. A relative one always shows the absolute one as its title.
import { html } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { absolute, countdown, duration, elsewhere, parse, relative, stamp } from "../lib/time.js";

const FAR = Date.UTC(9000, 0);

// `at`: text of the API. `as`: relative (3 min ago), stamp (12:04:11), countdown (00:42). `of`: the schedule
// whose time it is, which the title tells on its own clock, too.
export function When({ at, as = "relative", none = "–", of = null }) {
  const moment = parse(at);
  if (moment === null || Number.isNaN(moment) || moment > FAR) return html`<span class="muted">${none}</span>`;
  const told = as === "stamp" ? stamp(moment, now.value)
    : as === "countdown" && moment > now.value ? `in ${countdown(moment, now.value)}`
    : relative(moment, now.value);
  const own = of?.kind === "cron" ? elsewhere(moment, of.timezone) : "";
  return html`<time class="nowrap" datetime=${at} title=${own ? `${own}\n${absolute(moment)}` : absolute(moment)}>${told}</time>`;
}

// From one instant to another; without the second it grows.
export function Took({ from, to = null, running = false }) {
  const begin = parse(from);
  if (begin === null) return null;
  if (to === null && !running) return null;
  const end = to === null ? now.value : parse(to);
  return html`<span class="nowrap number">${duration(end - begin)}</span>`;
}
