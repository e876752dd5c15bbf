// The API as the screens call it. What goes wrong is a Problem, with the server's own words.
import { session, renew } from "./session.js";
import { setClock } from "./clock.js";
import { complain } from "./toast.js";

const API = "/api/v1";

export class Problem extends Error {
  constructor(status, code, detail, errors = []) {
    super(detail);
    Object.assign(this, { name: "Problem", status, code, detail, errors });
  }
}

export const name = encodeURIComponent; // of a job, schedule or queue, as a part of a path

export async function call(method, path, { query, body, headers = {}, signal, again = true } = {}) {
  const sent = Date.now();
  const answer = await send(method, address(path, query), { body, headers, signal });
  const told = await read(answer);
  if (answer.ok) {
    if (told?.now_at) setClock(told.now_at, sent, Date.now());
    return told;
  }
  const problem = new Problem(
    answer.status, told?.code ?? "refused", told?.detail ?? `${answer.status} ${answer.statusText}`, told?.errors,
  );
  // A server that was started anew knows no sessions. Where none needs a token, begin another.
  const over = problem.code === "csrf" || answer.status === 401;
  if (over && again && (await renew())) return call(method, path, { query, body, headers, signal, again: false });
  throw problem;
}

export const get = (path, query, options = {}) => call("GET", path, { query, ...options });
export const post = (path, body = {}, options = {}) => call("POST", path, { body, ...options });
export const patch = (path, body, options = {}) => call("PATCH", path, { body, ...options });
export const remove = (path, query) => call("DELETE", path, { query });

// Do it, and say so if it cannot be done. Answers undefined then.
export async function attempt(doing) {
  try {
    return await doing();
  } catch (problem) {
    complain(problem);
    return undefined;
  }
}

function address(path, query = {}) {
  const told = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value != null && value !== "") told.set(key, value);
  }
  const text = told.toString();
  return `${API}${path}${text ? `?${text}` : ""}`;
}

async function send(method, url, { body, headers, signal }) {
  const more = { ...headers };
  if (body !== undefined) more["Content-Type"] = "application/json";
  if (method !== "GET" && session.value?.csrf) more["X-Rota-CSRF"] = session.value.csrf;
  try {
    return await fetch(url, {
      method, signal, headers: more, credentials: "same-origin", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw new Problem(0, "network", "the server does not answer");
  }
}

async function read(answer) {
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch {
    return null;
  }
}
