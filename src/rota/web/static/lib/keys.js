// Keys that work everywhere: / searches, ? helps, g and a letter goes somewhere.
import { signal } from "./html.js";
import { go } from "./router.js";
import { SCREENS } from "../routes.js";

export const helping = signal(false);
let going = 0;

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]") != null;

export function start() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "/") {
      event.preventDefault();
      search();
    } else if (event.key === "?") {
      helping.value = true;
    } else if (event.key === "g") {
      going = Date.now();
    } else if (Date.now() - going < 1500) {
      going = 0;
      const screen = SCREENS.find((one) => one.key === event.key);
      if (screen) go(screen.path);
    }
  });
}

function search() {
  const field = document.querySelector("main [data-search]");
  if (field) { field.focus(); field.select?.(); return; }
  go("/schedules");
  const found = new MutationObserver(() => {
    const field = document.querySelector("main [data-search]");
    if (field) { field.focus(); found.disconnect(); }
  });
  found.observe(document.getElementById("app"), { childList: true, subtree: true });
  setTimeout(() => found.disconnect(), 3000);
}
