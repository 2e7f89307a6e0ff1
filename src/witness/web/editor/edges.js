// @ts-check
/* The start and the end of a paragraph, as two handles on the timeline, which the mouse and keys move. */
import { bounds } from "./derive.js";
import { putCaret, wordNow } from "./caret.js";
import { clock } from "./clock.js";
import { $, make, toast } from "./dom.js";
import { speakerOf } from "./names.js";
import { paragraphNow } from "./selection.js";
import { audio, seek } from "./sound.js";
import { data, on, page, refused, take, transcript } from "./state.js";
import { main } from "./text.js";
import { showStretch, timeAt, xOf } from "./timeline.js";
import { piecesOf } from "./transcript.js";
import { settle } from "./writing.js";

/** @typedef {"start" | "end"} Kind */

const PAUSE = 1000; // ms after the last key until it is a step
const STEP = 100, LEAP = 1000; // ms that a key moves it

/** The first word of the paragraph whose handles are shown; -1: none are. */
let held = -1;
/** The place to which a handle was moved, before that is a step. @type {{ kind: Kind, at: number } | null} */
let moved = null;
/** The distance of the mouse from the handle that it drags; null: it drags nothing. @type {number | null} */
let grip = null;
let timer = 0;

const handles = { start: handle("start"), end: handle("end") };
$("lanes").after(handles.start, handles.end);

/** The paragraph whose handles are shown, or -1. */
const here = () => (held >= 0 ? page.paragraphOf[held] : -1);

/** Show the handles of the paragraph that is written in, selected or heard, and go to the first one. @param {number} [number] */
export function showEdges(number) {
  if (refused()) return;
  settle();
  const w = wordNow(), n = number ?? (w >= 0 ? page.paragraphOf[w] : paragraphNow());
  const paragraph = page.paragraphs[n];
  if (!paragraph?.words.length) { toast("There are no words here whose start and end could be moved."); return; }
  held = paragraph.words[0];
  audio.pause();
  showStretch(paragraph.start, paragraph.end);
  place();
  handles.start.focus({ preventScroll: true });
}

function place() {
  const n = here(), paragraph = page.paragraphs[n];
  for (const kind of /** @type {const} */ (["start", "end"])) {
    const element = handles[kind];
    if (!paragraph) { element.hidden = true; continue; }
    const at = moved?.kind === kind ? moved.at : paragraph[kind], x = xOf(at);
    const [least, most] = bounds(data, page.paragraphs, n, kind);
    element.hidden = x === null && element !== document.activeElement;
    element.style.left = `${$("timeline").offsetLeft + (x ?? 0)}px`;
    element.style.height = `${$("timeline").clientHeight}px`;
    element.ariaLabel = `${kind === "start" ? "Start" : "End"} of what ${speakerOf(paragraph)} says`;
    for (const [name, ms] of Object.entries({ min: least, max: most, now: at })) element.setAttribute(`aria-value${name}`, (ms / 1000).toFixed(2));
    element.ariaValueText = exact(at);
  }
}
on("drawn", place);

/** A time with hundredths of a second. @param {number} ms */
const exact = (ms) => `${clock(ms)}.${String(Math.floor(Math.round(ms) / 10) % 100).padStart(2, "0")}`;

/** Move a handle, as far as it goes. @param {Kind} kind @param {number} ms */
function move(kind, ms) {
  const n = here();
  if (n < 0) return;
  if (moved && moved.kind !== kind) keepMoved();
  const [least, most] = bounds(data, page.paragraphs, n, kind);
  moved = { kind, at: Math.min(most, Math.max(least, Math.round(ms))) };
  const hint = $("hint");
  hint.hidden = false;
  hint.textContent = exact(moved.at);
  hint.style.left = `${Math.max(0, (xOf(moved.at) ?? 0) - hint.offsetWidth / 2)}px`;
  seek(moved.at);
  place();
  clearTimeout(timer);
  if (grip === null) timer = setTimeout(keepMoved, PAUSE);
}

/** Make a step of what was moved. */
function keepMoved() {
  clearTimeout(timer);
  const now = moved, paragraph = page.paragraphs[here()];
  moved = null;
  $("hint").hidden = true;
  if (!now || !paragraph || now.at === paragraph[now.kind]) return;
  const w = now.kind === "start" ? paragraph.words[0] : paragraph.words[paragraph.words.length - 1];
  take({ kind: now.kind, pieces: piecesOf(transcript, [w]), at: now.at });
}

/** No longer show handles. */
function done() {
  keepMoved();
  const w = held;
  held = -1;
  if (page.writing && w >= 0) putCaret(w, 0); else main.focus({ preventScroll: true });
  place();
}

/** @param {Kind} kind */
function handle(kind) {
  const element = make("div", `edge ${kind}`, "", {
    tabIndex: 0, hidden: true, role: "slider", ariaOrientation: "horizontal",
    ariaLabel: `${kind === "start" ? "Start" : "End"} of the paragraph`,
  });
  element.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    keepMoved();
    grip = event.clientX - (xOf(page.paragraphs[here()]?.[kind] ?? 0) ?? 0);
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (grip !== null) move(kind, 10 * Math.round(timeAt(event.clientX - grip) / 10));
  });
  element.addEventListener("pointerup", () => { grip = null; keepMoved(); });
  element.addEventListener("pointercancel", () => { grip = null; moved = null; place(); });
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) { keepMoved(); return; } // which may undo or save
    const paragraph = page.paragraphs[here()];
    if (!paragraph) return;
    const at = moved?.kind === kind ? moved.at : paragraph[kind], by = event.shiftKey ? LEAP : STEP;
    const [least, most] = bounds(data, page.paragraphs, here(), kind);
    /** @type {Record<string, number>} */
    const to = {
      ArrowLeft: at - by, ArrowDown: at - by, ArrowRight: at + by, ArrowUp: at + by, PageDown: at - LEAP, PageUp: at + LEAP,
      Home: least, End: most,
    };
    if (to[event.key] !== undefined) move(kind, to[event.key]);
    else if (event.key === "Escape" || event.key === "Enter") done();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  element.addEventListener("focus", () => { // the space bar plays from here
    const paragraph = page.paragraphs[here()];
    if (paragraph && grip === null) seek(paragraph[kind]);
  });
  element.addEventListener("focusout", (event) => {
    keepMoved();
    const other = event.relatedTarget;
    if (!document.hasFocus() || other === handles.start || other === handles.end) return;
    held = -1;
    place();
  });
  return element;
}
window.addEventListener("pagehide", keepMoved);
document.addEventListener("visibilitychange", keepMoved);
