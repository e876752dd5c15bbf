// uPlot, fetched with the first chart. Its minified file is a script that defines a global, no module.
const script = document.createElement("script");
script.src = new URL("../vendor/uPlot.js", import.meta.url);
await new Promise((loaded, failed) => {
  script.onload = loaded;
  script.onerror = () => failed(new Error("vendor/uPlot.js cannot be loaded"));
  document.head.append(script);
});
script.remove();

export default window.uPlot;
