// The dashboard begins here.
import { html, render } from "./lib/html.js";
import * as events from "./lib/events.js";
import * as health from "./lib/health.js";
import * as keys from "./lib/keys.js";
import { begin, session } from "./lib/session.js";
import { Shell } from "./parts/shell.js";
import { Empty } from "./parts/empty.js";

const root = document.getElementById("app");

async function boot() {
  try {
    await begin();
  } catch (fault) {
    render(html`<${Empty} title="The server does not answer"><p>${fault.message}</p>
      <button onClick=${() => location.reload()}>Try again</button><//>`, root);
    return;
  }
  root.textContent = "";
  render(html`<${Shell} />`, root);
  keys.start();
  const stop = session.subscribe((told) => {
    if (!told?.role) return;
    // Once, when it is known that something may be seen.
    queueMicrotask(() => stop());
    events.start();
    health.start();
  });
}

boot();
