// The look: what this browser chose last, else what the system prefers. Classic, not a module: it
// runs before anything is painted, and no light page flashes up in the dark.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try { return localStorage.getItem("rota.theme"); } catch { return null; }
  };
  const apply = () => {
    const told = chosen();
    const theme = told === "light" || told === "dark" ? told : dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = theme;
  };
  apply();
  dark.addEventListener("change", apply);
  addEventListener("storage", apply); // another tab chose
  addEventListener("rota-theme", apply);
})();
