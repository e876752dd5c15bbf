// Who looks at this page, and what they may do.
import { computed, signal } from "./html.js";

export const session = signal(null); // {kind, name, role, csrf, open_local}
export const asking = signal(false); // whether the login is on the screen

const RANKS = { viewer: 1, operator: 2, admin: 3 };
export const rank = computed(() => RANKS[session.value?.role] ?? 0);
export const can = (role) => rank.value >= RANKS[role];

const PATH = "/api/v1/session";
const CALL = { credentials: "same-origin", cache: "no-store" };

export async function begin() {
  const answer = await fetch(PATH, CALL);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  session.value = await answer.json();
  if (session.value.kind !== "session" && session.value.open_local) await open(null);
  if (session.value.role === null) asking.value = true;
}

// With a token, or null where this machine needs none. Throws what the server says.
export async function open(token) {
  const body = token === null ? {} : { token };
  const headers = { "Content-Type": "application/json" };
  if (session.value?.csrf) headers["X-Rota-CSRF"] = session.value.csrf;
  const answer = await fetch(PATH, { ...CALL, method: "POST", headers, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail ?? `the server answered ${answer.status}`);
  session.value = told;
  asking.value = false;
}

export async function close() {
  const headers = session.value?.csrf ? { "X-Rota-CSRF": session.value.csrf } : {};
  await fetch(PATH, { ...CALL, method: "DELETE", headers });
  session.value = await (await fetch(PATH, CALL)).json();
  if (session.value.role === null) asking.value = true;
}

// After a refusal: true if there is a good session now. One question, however many ask.
let under = null;
export function renew() {
  under ??= (async () => {
    try {
      const before = session.value?.csrf;
      await begin();
      if (session.value?.csrf && session.value.csrf !== before) return true;
      asking.value = true;
      return false;
    } catch {
      return false;
    } finally {
      under = null;
    }
  })();
  return under;
}
