import { html, useEffect, useRef } from "../lib/html.js";
import { helping } from "../lib/keys.js";
import { SCREENS } from "../routes.js";

export function Shortcuts() {
  const element = useRef(null);
  useEffect(() => { element.current.showModal(); }, []);
  const close = () => { helping.value = false; };
  return html`<dialog ref=${element} aria-label="Keys" onClose=${close}><form method="dialog">
    <h2>Keys</h2>
    <dl class="facts">
      <dt><kbd>/</kbd></dt><dd>search</dd>
      <dt><kbd>?</kbd></dt><dd>this list</dd>
      <dt><kbd>Esc</kbd></dt><dd>close a dialog, leave a field</dd>
      ${SCREENS.map((one) => html`<dt key=${one.key}><kbd>g</kbd> <kbd>${one.key}</kbd></dt><dd>${one.title}</dd>`)}
    </dl>
    <footer><button class="primary">Close</button></footer></form></dialog>`;
}
