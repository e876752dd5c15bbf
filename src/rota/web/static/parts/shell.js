// The frame around every screen: navigation, clock, whether the page is live, and who looks.
import { Component, html, signal, useEffect, useRef, useState } from "../lib/html.js";
import { now } from "../lib/clock.js";
import { stream } from "../lib/events.js";
import { helping } from "../lib/keys.js";
import { health } from "../lib/health.js";
import { back, match, route } from "../lib/router.js";
import { asking, close, session } from "../lib/session.js";
import { absolute, second } from "../lib/time.js";
import { attempt } from "../lib/api.js";
import { DETAILS, SCREENS } from "../routes.js";
import { Dialogs } from "./dialog.js";
import { Empty } from "./empty.js";
import { Icon } from "./icons.js";
import { Login } from "./login.js";
import { Shortcuts } from "./shortcuts.js";
import { Toasts } from "./toasts.js";

const open = signal(false);
const base = document.body.dataset.base;

export function Shell() {
  const { path, query } = route.value;
  const found = find(path);
  const place = found?.screen.of ?? found?.screen.name;
  useEffect(() => { open.value = false; }, [path]);
  if (asking.value && !session.value?.role) return html`<main id="main"><${Login} whole /></main><${Toasts} />`;
  return html`<div class="frame">
    <${Navigation} place=${place} />
    <main id="main" tabindex="-1">
      ${found
        ? html`<${Safe} key=${path}><${Screen} screen=${found.screen} params=${found.params} query=${query} /><//>`
        : html`<${Empty} title="There is no such page"><a href="#/">Go to the overview</a><//>`}
    </main>
    <${Toasts} /><${Dialogs} />
    ${asking.value && html`<${Login} />`}
    ${helping.value && html`<${Shortcuts} />`}
  </div>`;
}

function find(path) {
  for (const screen of [...SCREENS, ...DETAILS]) {
    const params = match(screen.path, path);
    if (params) return { screen, params };
  }
  return null;
}

// Fetched once each.
const loaded = new Map();

function Screen({ screen, params, query }) {
  const [shown, setShown] = useState(() => loaded.get(screen.name) ?? null);
  const [failed, setFailed] = useState(null);
  useEffect(() => {
    if (shown) return;
    screen.load().then(
      (module) => { loaded.set(screen.name, module.default); setShown(() => module.default); },
      setFailed,
    );
  }, []);
  if (failed) {
    return html`<${Empty} title="This screen could not be fetched">
      <p>Rota may have been upgraded or stopped meanwhile.</p>
      <button onClick=${() => location.reload()}>Load the page anew</button><//>`;
  }
  return shown ? html`<${shown} params=${params} query=${query} />` : null;
}

// One screen that fails leaves the rest alone.
class Safe extends Component {
  constructor() { super(); this.state = { fault: null }; }
  componentDidCatch(fault) { console.error(fault); this.setState({ fault }); }
  render({ children }, { fault }) {
    if (!fault) return children;
    return html`<${Empty} title="This screen has failed">
      <p>${String(fault.message ?? fault)}</p>
      <button onClick=${() => this.setState({ fault: null })}>Try again</button><//>`;
  }
}

function Navigation({ place }) {
  const element = useRef(null);
  const counts = health.value;
  const item = ({ name, path, title }) => html`<li key=${name}>
    <a href=${back(path)} aria-current=${place === name ? "page" : null} onClick=${() => { open.value = false; }}>
      <${Icon} name=${name} />${title}${counts[name] && html`<span class="count is-${counts[name].tone}"
        title=${counts[name].title}>${counts[name].count}<span class="hidden"> ${counts[name].title}</span></span>`}</a></li>`;
  return html`<nav ref=${element} class="nav ${open.value ? "open" : ""}" aria-label="Screens">
    <div class="top">
      <a class="brand" href="#/"><img src="${base}/icon.svg" alt="" />Rota</a>
      <button class="menu plain" aria-expanded=${String(open.value)} onClick=${() => { open.value = !open.value; }}><${Icon} name="menu" />Menu</button>
    </div>
    <ul>${SCREENS.slice(0, 4).map(item)}</ul>
    <div class="split"></div>
    <ul>${SCREENS.slice(4).map(item)}</ul>
    <div class="foot">
      <div><${Clock} /><${Live} /></div>
      <${Who} />
      <div><${Theme} /><button class="plain" onClick=${() => { helping.value = true; }}>Keys <kbd>?</kbd></button></div>
    </div>
  </nav>`;
}

function Clock() {
  return html`<time class="clock" title=${absolute(now.value)} aria-label="Time of the server">${second(new Date(now.value))}</time>`;
}

const WORDS = {
  live: ["ok", "live", "Changes appear by themselves"],
  connecting: ["wait", "connecting", "Asking for events"],
  offline: ["bad", "offline", "The server does not answer; tries again by itself"],
  quiet: ["wait", "quiet", "Nothing is asked while nobody looks"],
};

function Live() {
  const [tone, word, title] = WORDS[stream.value];
  return html`<span class="row nowrap is-${tone}" title=${title} data-stream=${stream.value}><span class="dot"></span><span class="tone">${word}</span></span>`;
}

function Who() {
  const told = session.value;
  if (!told) return null;
  const login = html`<button class="plain" onClick=${() => { asking.value = true; }}>Log in</button>`;
  if (told.kind !== "session") return html`<div><span class="muted" title="Without a token this machine may look, not act">read only</span>${login}</div>`;
  return html`<div><span class="clip" title=${`${told.name} is ${told.role}`}>${told.name} <span class="muted">${told.role}</span></span>
    ${told.name === "local" ? login : html`<button class="plain" onClick=${() => attempt(close)}>Log out</button>`}</div>`;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const other = theme === "dark" ? "light" : "dark";
  const change = () => {
    try { localStorage.setItem("rota.theme", other); } catch { /* for this page only, then */ }
    document.documentElement.dataset.theme = other;
    dispatchEvent(new Event("rota-theme"));
    setTheme(other);
  };
  return html`<button class="plain" onClick=${change} title=${`Change to the ${other} look`}><${Icon} name=${other === "dark" ? "moon" : "sun"} />${other === "dark" ? "Dark" : "Light"}</button>`;
}
