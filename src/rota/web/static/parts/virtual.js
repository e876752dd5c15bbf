// A long list of rows of one height, of which only those in sight are made.
import { html, useEffect, useRef, useState } from "../lib/html.js";

const SPARE = 8; // rows beyond each edge, so that scrolling shows no holes

export function Virtual({ count, height, row, label }) {
  const place = useRef(null);
  const [range, setRange] = useState([0, 40]);
  useEffect(() => {
    let frame = null;
    const look = () => {
      frame = null;
      if (!place.current) return;
      const top = -place.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(top / height) - SPARE);
      const last = Math.min(count, Math.ceil((top + innerHeight) / height) + SPARE);
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, Math.max(first, last)]));
    };
    const soon = () => { frame ??= requestAnimationFrame(look); };
    look();
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon, { passive: true });
    return () => { removeEventListener("scroll", soon); removeEventListener("resize", soon); cancelAnimationFrame(frame); };
  }, [count, height]);
  const [first, last] = range;
  const shown = [];
  for (let at = first; at < Math.min(last, count); at += 1) shown.push(row(at, { position: "absolute", top: `${at * height}px`, height: `${height}px`, left: 0, right: 0 }));
  return html`<div ref=${place} role="list" aria-label=${label} class="virtual" style=${{ height: `${count * height}px` }}>${shown}</div>`;
}
