import { html } from "../lib/html.js";
import { Empty } from "../parts/empty.js";
import { Page } from "../parts/page.js";

export default function Screen() {
  return html`<${Page} title="Run"><${Empty} title="This screen is not there yet"><//><//>`;
}
