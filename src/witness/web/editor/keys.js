// @ts-check
/* Keyboard shortcuts, and the buttons that do the same. */
import { above } from "./transcript.js";
import { commandOf, writes } from "./bindings.js";
import { fieldNow, wordNow } from "./caret.js";
import { clock } from "./clock.js";
import { link, quotation, quote, shortened } from "./copying.js";
import { $, around, composes, make, toast, hide } from "./dom.js";
import { nextPlace, doubtfulPlaces, LEVELS, unsurePlaces } from "./doubts.js";
import { correctElsewhere } from "./elsewhere.js";
import { showEdges } from "./edges.js";
import { askMerge, askMove, askName, erase, fix, fixHeard, give, save } from "./editing.js";
import { nameOf } from "./names.js";
import { askNote, highlight } from "./noting.js";
import { closeSearch, goTo, openSearch } from "./search.js";
import { choose, chooseTo, chosenEnd, chosenWords, meant, paragraphNow, unchoose } from "./selection.js";
import { audio, faster, playStretch, resume, seek, toggle, wordAt, player, setSpeed } from "./sound.js";
import { page, redo, words } from "./state.js";
import { bringIntoView, spans, paint } from "./text.js";
import { zoom } from "./timeline.js";
import { keyWhileWriting, settle, setWriting, undoTyped, writeAt } from "./writing.js";
import { keep, kept } from "./storage.js";

const BACK = "witness-back";

/** Hear the selected words, or the paragraph, again and again; or go on. */
export function loopHere() {
  if (player.loop) player.loop = null;
  else {
    const w = wordNow();
    const here = page.paragraphs[w >= 0 ? page.paragraphOf[w] : paragraphNow()];
    const chosen = chosenWords();
    if (!here && !chosen.length) return;
    player.loop = chosen.length > 1
      ? [words.start[chosen[0]], Math.max(...chosen.map((each) => words.end[each]))] : [here.start, here.end];
    seek(player.loop[0], true);
  }
  $("loop").setAttribute("aria-pressed", String(player.loop !== null));
}

export function skipPauses() {
  player.skips = !player.skips;
  $("skip").setAttribute("aria-pressed", String(player.skips));
  toast(player.skips ? "Pauses are skipped." : "Pauses are heard.");
}

$("loop").addEventListener("click", loopHere);
$("skip").addEventListener("click", skipPauses);
$("rate").addEventListener("change", () => setSpeed(Number($("rate").value)));
$("back").addEventListener("change", () => {
  player.back = Number($("back").value);
  keep(BACK, $("back").value);
});
if ([...$("back").options].some(({ value }) => value === kept(BACK))) $("back").value = kept(BACK) ?? "";
player.back = Number($("back").value);

const KEY = "witness-doubtful-words";
const slider = $("doubts");

/** @param {number} level */
function mark(level) {
  const [name] = LEVELS[level];
  page.doubts = level;
  slider.value = String(level);
  slider.setAttribute("aria-valuetext", name);
  $("doubts-now").textContent = name;
}

/** The places that the keys go to. */
export const places = {
  doubtful: () => doubtfulPlaces(page, words, page.doubts || 1),
  unsure: () => unsurePlaces(page, words),
};

/** Say how many there are, and which one is selected. */
export function showDoubts() {
  const at = page.chosen?.[0] ?? -1;
  for (const what of /** @type {const} */ (["doubtful", "unsure"])) {
    const all = places[what]();
    const now = all.indexOf(at) + 1;
    hide($(what), !all.length || (what === "doubtful" && !page.doubts));
    $(`${what}-count`).textContent = now ? `${now} of ${all.length}` : `${all.length}`;
  }
}

const before = LEVELS.findIndex(([name]) => name === kept(KEY));
$("doubting").hidden = !words.probability.some((told) => told >= 0);
mark(before < 0 ? 1 : before);
slider.addEventListener("input", () => {
  mark(Number(slider.value));
  keep(KEY, LEVELS[page.doubts][0]);
  paint();
  showDoubts();
});

/** The message to a screen reader about the effect of a key. */
const announce = make("p", "hidden", "", { id: "announce", ariaLive: "polite" });
document.body.append(announce);

/** Go to the next word, or with -1 to the one before. @param {number} by @param {boolean} extend the selection */
function step(by, extend) {
  const { order, place } = page;
  if (!order.length) return;
  let at;
  if (page.chosen) {
    at = Math.min(order.length - 1, Math.max(0, chosenEnd() + by));
  } else {
    const w = wordAt(page.position);
    at = w >= 0 ? place[w] : Math.max(0, place[Math.max(0, above(words.start, page.position) - 1)]);
  }
  if (extend) chooseTo(at); else choose(at);
  if (!extend) seek(words.start[order[at]]);
  announce.textContent = `${page.texts[order[at]].trim()}, ${nameOf(page.owner[order[at]])}`;
}

/** @param {number} by */
function stepParagraph(by) {
  const { paragraphs } = page;
  const wordy = paragraphs.map((_, n) => n).filter((n) => paragraphs[n].words.length);
  const now = paragraphNow();
  if (!wordy.length) {
    const next = paragraphs[Math.min(paragraphs.length - 1, Math.max(0, now + by))];
    if (next) { seek(next.start); bringIntoView(next.block); }
    return;
  }
  const at = wordy.indexOf(now);
  const next = paragraphs[wordy[Math.min(wordy.length - 1, Math.max(0, at + by))]];
  choose(page.place[next.words[0]]);
  seek(next.start);
  announce.textContent = `${nameOf(next.who)}, ${clock(next.start)}: ${shortened(quotation(next.words))}`;
}

/** Go to the next doubtful word, or the next that may be another speaker's, or with -1 to the one before. While one writes, the caret is there
    with the caret.
    @param {keyof typeof places} what @param {number} by */
function stepDoubt(what, by) {
  settle();
  const caret = wordNow();
  const next = page.order.findIndex((w) => words.start[w] >= page.position);
  const here = caret >= 0 ? page.place[caret] : page.chosen ? chosenEnd() : (next < 0 ? page.order.length : next) - 0.5;
  const at = nextPlace(places[what](), here, by);
  if (at < 0) { toast(what === "doubtful" ? "No doubtful words" : "No unsure speakers"); return; }
  const w = page.order[at];
  bringIntoView(page.blockOf[w]);
  choose(at);
  if (page.hasSound) playStretch(words.start[w] - AROUND, words.end[w] + AROUND / 2); else seek(words.start[w]);
  if (caret >= 0) writeAt(w);
  showDoubts();
  announce.textContent = `${page.texts[w].trim()}, ${what === "doubtful"
    ? `${words.probability[w]} % certain` : `${nameOf(page.owner[w])}, ${words.sure[w]} % certain`}, ${$(`${what}-count`).textContent}`;
}

const AROUND = 1000; // ms that are heard before a doubtful word, and half of it after it

/** @param {(who: number) => void} action */
function withSpeaker(action) {
  const paragraph = page.paragraphs[paragraphNow()];
  if (paragraph && paragraph.who >= 0) action(paragraph.who);
}

/** @type {Record<string, () => void>} */
const actions = {
  copy: quote, link, move: () => askMove(meant(), "Who said this?"), fix, note: () => askNote(), voice: () => page.desk?.voice(chosenWords()),
};

/** Commands that can have an own key. `key`: the usual one; `alt`: the place on a keyboard of the key that does it with Alt
    while one writes; `repeats`: again and again while the key is held.
    @type {{ name: string, label: string, run: () => void, key?: string, alt?: string, repeats?: boolean }[]} */
export const commands = [
  { name: "play", label: "Play or pause, going back a little", run: resume },
  { name: "hold", label: "Play while it is held", run: () => { if (audio.paused) resume(); } },
  { name: "back", label: "5 seconds back", run: () => seek(page.position - 5000), key: ",", alt: "Comma", repeats: true },
  { name: "forward", label: "5 seconds forward", run: () => seek(page.position + 5000), key: ".", alt: "Period", repeats: true },
  { name: "slower", label: "Slower", run: () => faster(-1), key: "[", alt: "BracketLeft" },
  { name: "faster", label: "Faster", run: () => faster(1), key: "]", alt: "BracketRight" },
  { name: "loop", label: "Loop", run: loopHere, key: "o", alt: "KeyO" },
  { name: "skip", label: "Skip pauses", run: skipPauses, key: "p", alt: "KeyP" },
  { name: "doubtful", label: "Next doubtful word", run: () => stepDoubt("doubtful", 1), key: "d", alt: "KeyD" },
  { name: "heard", label: "Stop at the word just heard; again: the one before", run: fixHeard, repeats: true },
  { name: "unsure", label: "Next unsure speaker", run: () => stepDoubt("unsure", 1), key: "s", alt: "KeyS" },
  { name: "elsewhere", label: "The same correction everywhere", run: () => { settle(); correctElsewhere(); }, alt: "KeyE" },
  { name: "until", label: "Corrected up to here", run: () => page.desk?.upTo(), key: "u", alt: "KeyU" },
  { name: "note", label: "Note and codes", run: actions.note, key: "a", alt: "KeyA" },
  { name: "highlight", label: "Highlight", run: highlight, key: "h", alt: "KeyH" },
  { name: "edges", label: "Start and end of the paragraph", run: () => showEdges(), key: "t", alt: "KeyT" },
  { name: "write", label: "Write, or end writing", run: () => { if (page.writing) setWriting(false); else fix(); } },
  ...["1", "2", "3", "4", "5", "6", "7", "8", "9"].map((digit) => (
    { name: `speaker${digit}`, label: `Speaker ${digit} said this`, run: () => give(Number(digit)), key: digit, alt: `Digit${digit}` })),
];

/** @type {Record<string, () => void>} */
const keys = {
  ...Object.fromEntries(commands.flatMap(({ key, run }) => (key ? [[key, run]] : []))),
  " ": toggle,
  c: quote,
  l: link,
  e: fix,
  Enter: fix,
  F2: fix,
  Delete: erase,
  m: actions.move,
  v: actions.voice,
  r: () => withSpeaker(askName),
  g: () => withSpeaker(askMerge),
  D: () => stepDoubt("doubtful", -1),
  S: () => stepDoubt("unsure", -1),
  n: () => goTo(1),
  N: () => goTo(-1),
  "/": openSearch,
  "?": () => $("keys").showModal(),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  Escape: () => { if (page.chosen || $("search").hidden) unchoose(); else closeSearch(); },
};

/** The key by its letter, or where the keyboard has other letters, as Russian ones, by the place of the key.
    @param {KeyboardEvent} event */
function keyOf(event) {
  const other = event.key.length === 1 && event.key > "\u007f" && event.code.match(/^Key([A-Z])$/);
  const key = other ? (event.shiftKey ? other[1] : other[1].toLowerCase()) : event.key;
  return key.length === 1 && !"NDS".includes(key) ? key.toLowerCase() : key;
}

/** Return whether the text around the selection runs from right to left. */
function rightToLeft() {
  const here = spans.get(page.chosen ? page.order[chosenEnd()] : page.playing) ?? spans.values().next().value;
  return here !== undefined && getComputedStyle(here).direction === "rtl";
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || document.querySelector("dialog[open]") || composes(event)) return;
  const field = fieldNow();
  const own = (field || around(event, "input, select, textarea")) && writes(event) ? undefined : commandOf(event);
  const command = commands.find(({ name }) => name === own);
  if (command) {
    if (!event.repeat || command.repeats) command.run();
    event.preventDefault();
    return;
  }
  if (event.altKey) {
    const held = commands.find(({ alt }) => alt === event.code);
    if (!page.writing || event.ctrlKey || event.metaKey || !held) return;
    held.run();
    event.preventDefault();
    return;
  }
  const key = keyOf(event);
  if (event.ctrlKey || event.metaKey) {
    const typing = around(event, "input");
    if (key === "z" && !typing) { if (event.shiftKey) redo(); else undoTyped(); }
    else if (key === "y" && !typing) redo();
    else if (key === "s") { settle(); save(); }
    else if (key === "f" && document.activeElement !== $("query")) openSearch();
    else return;
    event.preventDefault();
    return;
  }
  if (key === "F8" || key === "F9") { // also while one writes
    if (key === "F8") stepDoubt("doubtful", event.shiftKey ? -1 : 1); else fixHeard(event.shiftKey ? 1 : -1);
    event.preventDefault();
    return;
  }
  if (field) {
    if (keyWhileWriting(event, field)) event.preventDefault();
    return;
  }
  if (around(event, "input, select, textarea")) return;
  if (around(event, "button, a, summary") && (key === " " || key === "Enter")) return;
  if (["PageUp", "PageDown", "Home", "End"].includes(key)) page.following = false;
  const way = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (way) step(rightToLeft() ? -way : way, event.shiftKey);
  else if (key === "ArrowUp" || key === "ArrowDown") stepParagraph(key === "ArrowUp" ? -1 : 1);
  else if (keys[key]) keys[key]();
  else return;
  event.preventDefault();
});

document.addEventListener("keyup", (event) => {
  if (commandOf(event) === "hold") audio.pause();
});

$("doubtful").addEventListener("click", () => stepDoubt("doubtful", 1));
$("unsure").addEventListener("click", () => stepDoubt("unsure", 1));
$("play").addEventListener("click", toggle);
$("undo").addEventListener("click", undoTyped);
$("save").addEventListener("click", save);
$("help").addEventListener("click", () => $("keys").showModal());
$("closer").addEventListener("click", () => zoom(0.5));
$("wider").addEventListener("click", () => zoom(2));
$("tools").addEventListener("click", (event) => actions[around(event, "button")?.dataset.do ?? ""]?.());
