// Where we are, in the part of the address after #: /runs?state=dead. The server is asked for one
// page only, filters are part of what is copied and sent around, and an action changes none of it.
import { signal } from "./html.js";

const parts = () => {
  const text = location.hash.startsWith("#/") ? location.hash.slice(1) : "/";
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const query = Object.fromEntries(new URLSearchParams(at < 0 ? "" : text.slice(at + 1)));
  return { path, query, text };
};

export const route = signal(parts());
const lastQuery = new Map(); // of each path: who comes back finds their filters

addEventListener("hashchange", () => {
  if (location.hash && !location.hash.startsWith("#/")) return; // a place in the page, as #main
  route.value = parts();
  lastQuery.set(route.value.path, route.value.query);
});

export function href(path, query = {}) {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value != null && value !== "" && value !== false) told.set(name, value);
  }
  const text = told.toString();
  return `#${path}${text ? `?${text}` : ""}`;
}

// Back to a list, as it was left.
export const back = (path) => href(path, lastQuery.get(path) ?? {});

export function go(path, query = {}, { replace = false } = {}) {
  const target = href(path, query);
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, "", target);
    route.value = parts();
    lastQuery.set(route.value.path, route.value.query);
  } else {
    location.hash = target;
  }
}

// Change some of the filters. A filter begins at the first page again.
export function setQuery(change, { replace = false } = {}) {
  const { path, query } = route.value;
  const pages = Object.keys(change).some((name) => name === "before" || name === "after")
    ? {} : { before: null, after: null };
  go(path, { ...query, ...pages, ...change }, { replace });
}

// A name may hold a slash or anything else: it is one part of the path, encoded.
export const part = encodeURIComponent;

export function match(pattern, path) {
  const wanted = pattern.split("/");
  const told = path.split("/");
  if (wanted.length !== told.length) return null;
  const params = {};
  for (let at = 0; at < wanted.length; at += 1) {
    if (wanted[at].startsWith(":")) {
      try { params[wanted[at].slice(1)] = decodeURIComponent(told[at]); } catch { return null; }
    } else if (wanted[at] !== told[at]) return null;
  }
  return params;
}
