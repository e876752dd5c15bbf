// Drawn here: sixteen units wide, one line each.
import { html } from "../lib/html.js";

const PATHS = {
  overview: "M2.5 8.5 5 6l3 3 5.5-5.5M13.5 7V3.5H10M2.5 13h11",
  timeline: "M2 4.5h6M5 8h8M3 11.5h5M10.5 2v12",
  schedules: "M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.5V5M10.5 2.5V5",
  runs: "M4 3l8.5 5L4 13z",
  jobs: "M3 3.5h10v9H3zM5.5 6.5 7 8l-1.5 1.5M8.5 10h2",
  queues: "M2.5 4h11M2.5 8h11M2.5 12h6",
  workers: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M12.6 3.4l-1.4 1.4M4.8 11.2l-1.4 1.4",
  dead: "M3 4.5h10v8.5H3zM3 4.5 8 9l5-4.5M6 1.5l4 1",
  sql: "M2 3.5h12v9H2zM4.5 6.5l2 1.75-2 1.75M8 10.5h3",
  audit: "M4 2h8v12H4zM6 5h4M6 8h4M6 11h2.5",
  succeeded: "M3 8.5 6.5 12 13 4.5",
  dead_run: "M4 4l8 8M12 4l-8 8",
  running: "M5 3.5 12 8l-7 4.5z",
  queued: "M3 5h10M3 8h10M3 11h10",
  waiting: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3.2l2.2 1.3",
  held: "M4.5 7.5h7V13h-7zM6 7.5V5.5a2 2 0 0 1 4 0v2",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM4.2 4.2l7.6 7.6",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.5 3.5l1 1M11.5 11.5l1 1M12.5 3.5l-1 1M4.5 11.5l-1 1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  alert: "M8 2 14.5 13.5h-13zM8 6.5v3M8 11.4v.4",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
};

export function Icon({ name, label = null }) {
  return html`<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.6"
    stroke-linecap="round" stroke-linejoin="round" role=${label ? "img" : null} aria-label=${label}
    aria-hidden=${label ? null : "true"}><path d=${PATHS[name]} /></svg>`;
}
