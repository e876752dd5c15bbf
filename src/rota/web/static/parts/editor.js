// A field for SQL: completion at the caret, and a mark where an error is.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { get } from "../lib/api.js";
import { before, next } from "../lib/statements.js";

const SHOWN = 12;
const NAMES = { job: "/jobs", schedule: "/schedules" };

// `columns(view)` → names, as far as they are known. `onRun`, `onHistory(step)`: keys.
export function Editor({ text, onText, onRun, onHistory, columns, mark }) {
  const field = useRef(null);
  const ruler = useRef(null);
  const asked = useRef(0);
  const [offer, setOffer] = useState(null); // {items, chosen, word, left, top}

  useEffect(() => {
    if (!mark) return;
    field.current.focus();
    field.current.setSelectionRange(mark.start, mark.end);
  }, [mark]);

  const suggest = async (always) => {
    const { value, selectionStart: place } = field.current;
    const mine = (asked.current += 1);
    const { words, word, open } = before(value, place);
    if (open || (!word && !always)) { setOffer(null); return; }
    const items = await candidates(words, word, columns);
    if (mine !== asked.current) return;
    setOffer(items.length ? { items, chosen: 0, word, ...spot(field.current, ruler.current, place - word.length) } : null);
  };

  const accept = (item) => {
    const area = field.current;
    const place = area.selectionStart;
    const start = place - offer.word.length;
    const added = /[.(\s]$/.test(item.text) ? item.text : `${item.text} `;
    area.setRangeText(added, start, place, "end");
    asked.current += 1;
    setOffer(null);
    onText(area.value);
  };

  const key = (event) => {
    const control = event.ctrlKey || event.metaKey;
    if (control && event.key === "Enter") { event.preventDefault(); setOffer(null); onRun(); return; }
    if (control && event.key === " ") { event.preventDefault(); suggest(true); return; }
    if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) { event.preventDefault(); setOffer(null); onHistory(event.key === "ArrowUp" ? 1 : -1); return; }
    if (!offer) return;
    const move = (step) => { event.preventDefault(); setOffer({ ...offer, chosen: (offer.chosen + step + offer.items.length) % offer.items.length }); };
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter" || event.key === "Tab") { event.preventDefault(); accept(offer.items[offer.chosen]); }
    else if (event.key === "Escape") { event.preventDefault(); setOffer(null); }
  };

  return html`<div class="editor">
    <textarea ref=${field} class="mono" aria-label="SQL" data-search rows=${Math.min(18, Math.max(5, text.split("\n").length + 1))} wrap="off" spellcheck=${false} autocomplete="off" autocapitalize="off"
      aria-autocomplete="list" aria-controls=${offer ? "completion" : null} aria-activedescendant=${offer ? `completion-${offer.chosen}` : null}
      aria-describedby="editor-keys" placeholder="SHOW SCHEDULES, or SELECT … FROM runs" value=${text}
      onInput=${(event) => { onText(event.target.value); suggest(false); }} onKeyDown=${key}
      onBlur=${() => setOffer(null)} onScroll=${() => setOffer(null)} onClick=${() => setOffer(null)}></textarea>
    <span ref=${ruler} class="mono ruler" aria-hidden="true">MMMMMMMMMM</span>
    ${offer && html`<${Offer} offer=${offer} accept=${accept} />`}
    <span class="hidden" role="status">${offer ? `${offer.items.length} suggestions, ${offer.items[offer.chosen].text}` : ""}</span>
  </div>`;
}

function Offer({ offer, accept }) {
  const list = useRef(null);
  useLayoutEffect(() => { list.current.children[offer.chosen]?.scrollIntoView({ block: "nearest" }); }, [offer.chosen]);
  return html`<ul ref=${list} id="completion" class="completion" role="listbox" aria-label="Completion" style=${{ left: `${offer.left}px`, top: `${offer.top}px` }}>
    ${offer.items.map((item, at) => html`<li key=${item.text + item.what} id="completion-${at}" role="option" aria-selected=${String(at === offer.chosen)}
      onMouseDown=${(event) => { event.preventDefault(); accept(item); }}><span class="mono">${item.text}</span><small class="muted">${item.what}</small></li>`)}</ul>`;
}

// Beneath the line of the caret. All characters are equally wide, and no line is broken.
function spot(area, ruler, place) {
  const style = getComputedStyle(area);
  const wide = ruler.getBoundingClientRect().width / 10;
  const lines = area.value.slice(0, place).split("\n");
  const top = lines.length * parseFloat(style.lineHeight) + parseFloat(style.paddingTop) - area.scrollTop + 4;
  const left = lines.at(-1).length * wide + parseFloat(style.paddingLeft) - area.scrollLeft;
  return { top: Math.min(top, area.clientHeight), left: Math.max(0, Math.min(left, area.clientWidth - 200)) };
}

async function candidates(words, word, columns) {
  const { words: fixed, names, columns: views } = next(words);
  const begin = word.toLowerCase();
  const dot = word.lastIndexOf(".");
  if (dot > 0) { // columns of a view that is named before the dot
    const of = columns(word.slice(0, dot).toLowerCase());
    return pick(of.map((one) => ({ text: `${word.slice(0, dot)}.${one}`, what: "column" })), begin);
  }
  const found = names ? await named(names, word) : [];
  const shown = (views ?? []).flatMap((view) => columns(view).map((one) => ({ text: one, what: `of ${view}` })));
  return pick([...found, ...shown, ...fixed.map((one) => ({ text: one, what: one === one.toLowerCase() && !one.includes("(") ? "view" : "" }))], begin);
}

const pick = (items, begin) => {
  const seen = new Set();
  return items.filter((one) => {
    const fresh = one.text.toLowerCase().startsWith(begin) && one.text.toLowerCase() !== begin && !seen.has(one.text);
    seen.add(one.text);
    return fresh;
  }).slice(0, SHOWN);
};

async function named(kind, word) {
  try {
    const page = await get(NAMES[kind], { q: word, limit: SHOWN });
    return page.items.map((one) => ({ text: one.name, what: kind }));
  } catch {
    return []; // a completion that cannot be had is none
  }
}
