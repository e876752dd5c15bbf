// The login: a token, shown to the server once.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { asking, open } from "../lib/session.js";
import { toast } from "../lib/toast.js";

// `whole`: nothing can be seen without it. Else it lies over the page, which stays as it is.
export function Login({ whole = false }) {
  const [error, setError] = useState(null);
  const element = useRef(null);
  useEffect(() => { if (!whole) element.current.showModal(); }, []);
  const submit = async (event) => {
    event.preventDefault();
    const field = event.target.elements.token;
    try {
      await open(field.value.trim());
      toast("You are logged in.");
    } catch (fault) {
      setError(fault.message);
      field.select();
    }
  };
  const form = html`<form onSubmit=${submit} class="login">
    <h2>Log in to Rota</h2>
    <p class="muted">The first start wrote a token to <code>.rota/token</code>; <code>rota token create NAME --role viewer|operator|admin</code> makes others.</p>
    <label class="field"><span>Token</span>
      <input name="token" type="password" required maxlength="200" autocomplete="current-password" spellcheck=${false} autofocus
        aria-invalid=${error ? "true" : null} aria-describedby="login-error" placeholder="rota_…" /></label>
    <p id="login-error" class="is-bad tone" role="alert">${error}</p>
    <footer>${!whole && html`<button type="button" onClick=${() => { asking.value = false; }}>Back</button>`}
      <button type="submit" class="primary">Log in</button></footer>
  </form>`;
  return whole
    ? html`<div class="card login-card">${form}</div>`
    : html`<dialog ref=${element} aria-label="Log in" onClose=${() => { asking.value = false; }}>${form}</dialog>`;
}
