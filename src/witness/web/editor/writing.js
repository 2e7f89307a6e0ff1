// @ts-check
/* Writing in the transcript: a paragraph is a field, and what is typed there becomes steps a moment later. */
import { isAcross, leave, takeOut, textAcross } from "./across.js";
import { atEdge, before, blockOf, fieldNow, fieldOf, hold, inOuterLine, putCaret, textTo, wordsIn } from "./caret.js";
import { clock } from "./clock.js";
import { checkText } from "./corrections.js";
import { $, around, composes, toast } from "./dom.js";
import { offerElsewhere } from "./elsewhere.js";
import { beginning, carried, inserted, letters, mergedWith, over, overtyped, printed, respelled, rewriting } from "./retyped.js";
import { resume, seek } from "./sound.js";
import { on, page, redo, refused, take, tell, transcript, undo, words, writeDraft } from "./state.js";
import { keep, kept } from "./storage.js";
import { bringIntoView, editable, feed, reveal, shownBlock, spans } from "./text.js";
import { piecesOf } from "./transcript.js";
/** @import { Correction } from "./corrections.js" */
/** @import { Derived } from "./derive.js" */
/** @import { Over } from "./retyped.js" */

const PAUSE = 1000; // ms after the last key until what was typed is a step
const LONGEST = 4000; // ms after the first key, also while a person types on
const MODE = "witness-writing";

/** The text that is being typed: its element, and the words or the stretch that it shows; `had`: the page when typing began;
    `how`: what it replaced in other paragraphs.
    @type {{ said: HTMLElement, list: number[], gap: number, who: number, had: Pick<Derived, "texts" | "owner" | "paragraphOf">, how?: Over } | null} */
let typed = null;
let timer = 0, begun = 0;

const present = () => ({ texts: page.texts, owner: page.owner, paragraphOf: page.paragraphOf });

/** Begin or end writing. @param {boolean} now */
export function setWriting(now) {
  if (now && refused()) return;
  settle();
  leave();
  page.writing = now;
  keep(MODE, now ? "yes" : null);
  document.documentElement.classList.toggle("writing", now);
  $("write").setAttribute("aria-pressed", String(now));
  for (const said of feed.querySelectorAll(".said")) {
    if (said instanceof HTMLElement) editable(said, now && said.querySelector(".inaudible, .quiet") === null);
  }
  if (!now && document.activeElement === document.body) $("text").focus({ preventScroll: true });
}

/** Write at a word, which is selected, or at the one that is heard. @param {number} w */
export function writeAt(w) {
  if (!page.writing) setWriting(true);
  if (!page.writing || page.blockOf[w] < 0) return;
  reveal(w);
  const span = spans.get(w);
  if (!span) return;
  span.closest("p")?.focus({ preventScroll: true });
  getSelection()?.selectAllChildren(span);
}

/** Write what was said in a paragraph without words. @param {number} number */
export function writeIn(number) {
  if (!page.writing) setWriting(true);
  const paragraph = page.paragraphs[number];
  if (!page.writing || !paragraph || paragraph.gap < 0) return;
  bringIntoView(paragraph.block);
  const said = shownBlock(paragraph.block)?.querySelector("p.said");
  if (!(said instanceof HTMLElement)) return;
  said.replaceChildren();
  editable(said, true);
  said.setAttribute("aria-label", `What was said, ${clock(paragraph.start)} to ${clock(paragraph.end)}`);
  typed = { said, list: [], gap: paragraph.gap, who: paragraph.who, had: present() };
  hold(said, [transcript.gapWord[paragraph.gap]]);
  said.focus({ preventScroll: true });
}

/** Make steps of what was typed. Whether there was something. */
export function settle() {
  clearTimeout(timer);
  const now = typed;
  if (!now) return false;
  typed = null;
  page.typing = false;
  page.pending = [];
  const made = madeOf(now);
  if (now.gap >= 0 && now.who < 0 && made.length) { tell("ownerless", now.gap, printed(now.said.textContent ?? "")); return false; }
  const trouble = made.map((one) => (one.kind === "text" || one.kind === "fill" ? checkText(one.text) : null)).find(Boolean);
  if (trouble) toast(trouble);
  else if (made.length) {
    const had = now.list.map((w) => page.texts[w]);
    take(...made);
    if (!now.how) offerElsewhere(now.list, had);
    return true;
  }
  if (now.gap >= 0 || trouble || now.how) tell("steps", false); // show again what there was
  else page.desk?.changed();
  return false;
}

/** Make steps of what was typed, because others' changes are about to be shown. Returns a function that opens a field again whose
    text is no step yet. */
export function giveWay() {
  const now = typed, text = now?.said.textContent ?? "";
  if (!now || now.gap < 0 || (now.who >= 0 && text.trim())) {
    settle();
    return () => {};
  }
  clearTimeout(timer);
  typed = null;
  return () => {
    const number = page.paragraphs.findIndex(({ gap }) => gap === now.gap);
    if (number < 0) return;
    writeIn(number);
    if (text) insert(text);
  };
}

/** Return the corrections that what was typed is. @param {NonNullable<typeof typed>} now @returns {Correction[]} */
function madeOf({ said, list, gap, had, how }) {
  const text = said.textContent ?? "", { texts } = had;
  if (gap >= 0) return printed(text) ? [{ kind: "fill", gap, text: printed(text) }] : [];
  if (how) return overtyped(transcript, had, how, text, page.texts);
  return rewriting(transcript, page.texts, mergedWith(texts, page.texts, respelled(texts, list, text)));
}

/* ---------- from one paragraph to another ---------- */

/** Go to the next field with words, or with -1 to the one before. @param {HTMLElement} said @param {number} by @param {boolean} toEnd */
function leaveTo(said, by, toEnd) {
  const from = blockOf(said);
  settle();
  for (let n = from + by; n >= 0 && n < page.blocks.length; n += by) {
    const { paragraph, from: first, to } = page.blocks[n];
    if (!paragraph.words.length) continue;
    reveal(paragraph.words[toEnd ? to - 1 : first]);
    if (toEnd) putCaret(paragraph.words[to - 1], Infinity); else putCaret(paragraph.words[first], 0);
    return;
  }
}

/** Begin a paragraph with the word after the caret, or at the end of a paragraph go on in the next. @param {HTMLElement} said */
function split(said) {
  const field = wordsIn(said), count = letters(before(said) ?? "");
  settle();
  const list = field.filter((w) => page.place[w] >= 0);
  let seen = 0;
  const w = list.find((one) => {
    const here = seen >= count;
    seen += letters(page.texts[one]);
    return here;
  });
  if (w === undefined || count === 0) {
    const now = fieldNow();
    if (now && count) leaveTo(now, 1, false);
    return;
  }
  take({ kind: "split", pieces: piecesOf(transcript, [w]) });
  putCaret(w, 0);
}

/** Join a block with the one before it, whose speaker gets the words of both. @param {number} number */
function join(number) {
  settle();
  const block = page.blocks[number], above = page.blocks[number - 1];
  if (!block || !above || block.from) return true;
  const list = block.paragraph.words, last = above.paragraph.words[above.to - 1];
  if (!list.length || last === undefined || words.track[last] !== words.track[list[0]]) {
    toast("Somebody else speaks between them.");
    return true;
  }
  const who = page.owner[last];
  /** @type {Correction[]} */
  const moved = who < 0 || who === page.owner[list[0]] ? [] : [{ kind: "move", who, pieces: piecesOf(transcript, list) }];
  if (who < 0 && page.owner[list[0]] >= 0) return true;
  // The next paragraph of the same speaker stays apart.
  const next = moved.length ? page.paragraphs[block.number + 1]?.words[0] ?? -1 : -1;
  /** @type {Correction[]} */
  const apart = next < 0 || page.owner[next] !== who ? [] : [{ kind: "split", pieces: piecesOf(transcript, [next]) }];
  take(...moved, { kind: "join", pieces: piecesOf(transcript, [list[0]]) }, ...apart);
  putCaret(list[0], 0);
  return true;
}

/* ---------- over several paragraphs ---------- */

on("across", settle);

/** Type a text over a selection across paragraphs. @param {string} text @param {boolean} [apart] begin a paragraph there */
function overwrite(text, apart = false) {
  const done = takeOut((fields, lead, tail) => over(transcript, page, fields, lead, tail, apart));
  if (!done) return;
  const { said, how } = done;
  if (how.none && !text) {
    if (!apart) join(page.blockOf[how.fields[1][0]]);
    return;
  }
  const { lead, tail } = how;
  const joint = text || !lead || !tail || how.inside || /\s$/u.test(lead) || /^\s/u.test(tail) ? "" : " ";
  typed = { said, list: how.list, gap: -1, who: -1, had: present(), how };
  hold(said, how.list);
  insert(text || joint);
}

/** Begin a paragraph in the place of a selection across paragraphs. */
function splitAcross() {
  overwrite("", true);
  const how = typed?.how, said = typed?.said;
  if (!how || !said) return;
  settle();
  const w = beginning(how, (one) => (page.place[one] >= 0 ? page.texts[one] : ""));
  if (w !== undefined) putCaret(w, 0);
}

/** Return the text that an event inserts. @param {InputEvent} event */
const given = (event) => (event.data ?? event.dataTransfer?.getData("text/plain") ?? "").replace(/\s+/gu, " ");

for (const kind of /** @type {const} */ (["copy", "cut"])) {
  feed.addEventListener(kind, (event) => {
    if (!isAcross()) return;
    event.clipboardData?.setData("text/plain", textAcross());
    event.preventDefault();
    if (kind === "cut") overwrite("");
  });
}

/* ---------- dragging: what goes and what comes are one step ---------- */

/** Words of a field, and the letters before the start and the end of what is dragged. @type {{ list: number[], cut: [number, number] } | null} */
let dragged = null;

feed.addEventListener("dragstart", (event) => {
  const said = fieldNow();
  event.dataTransfer?.clearData("text/html"); // it has styles, which the policy of the page forbids
  dragged = said && { list: wordsIn(said), cut: [letters(before(said, true) ?? ""), letters(before(said) ?? "")] };
});
feed.addEventListener("dragend", () => { dragged = null; });
feed.addEventListener("drop", (event) => {
  if (!page.writing) return;
  event.preventDefault();
  const at = document.caretPositionFromPoint?.(event.clientX, event.clientY), said = fieldOf(at?.offsetNode);
  const text = event.dataTransfer?.getData("text/plain").replace(/\s+/gu, " ").trim(), from = dragged;
  if (!at || !said || !text) return;
  const to = wordsIn(said), count = letters(textTo(said, at.offsetNode, at.offset) ?? "");
  settle();
  const textOf = (/** @type {number[]} */ list) => list.map((w) => page.texts[w]).join("").trimStart();
  const same = from?.list[0] === to[0];
  if (from && same && from.cut[0] <= count && count <= from.cut[1]) return;
  const [rest, now] = from ? carried(textOf(from.list), textOf(to), same, from.cut, count) : ["", inserted(textOf(to), text, count)];
  const gone = from && !same ? [respelled(page.texts, from.list, rest)] : [];
  take(...rewriting(transcript, page.texts, ...gone, respelled(page.texts, to, now)));
  caretAfter(to, count + (from && same && from.cut[0] < count ? 0 : letters(text)));
});

/** Put the caret into some words, after so many letters. @param {readonly number[]} list @param {number} count */
function caretAfter(list, count) {
  let left = count;
  const w = list.find((each) => {
    const here = left <= letters(page.texts[each]);
    if (!here) left -= letters(page.texts[each]);
    return here && page.place[each] >= 0;
  });
  if (w !== undefined) putCaret(w, left);
}

/* ---------- typing ---------- */

feed.addEventListener("input", (event) => {
  const said = around(event, ".said");
  if (!said) return;
  page.following = false;
  if (typed?.said !== said) {
    settle();
    typed = { said, list: wordsIn(said), gap: -1, who: -1, had: present() };
  }
  if (!page.typing) {
    page.typing = true;
    begun = performance.now();
    page.desk?.changed();
  }
  page.pending = madeOf(typed);
  writeDraft();
  clearTimeout(timer);
  if (!page.composing && (typed.gap < 0 || (typed.who >= 0 && page.pending.length))) settleSoon();
});
/** Make steps of the typed words: after a pause, or, without a pause, while typing continues. */
function settleSoon() {
  clearTimeout(timer);
  timer = setTimeout(settle, Math.max(0, Math.min(PAUSE, begun + LONGEST - performance.now())));
}
feed.addEventListener("compositionstart", () => {
  if (isAcross()) overwrite("");
  page.composing = true;
  clearTimeout(timer);
});
feed.addEventListener("compositionend", () => { page.composing = false; settleSoon(); });
/* A press on another place moves the caret there first: before that the elements must not be rebuilt. */
let pressed = false;
window.addEventListener("pointerdown", () => { pressed = true; }, true);
for (const event of ["pointerup", "pointercancel"]) {
  window.addEventListener(event, () => {
    pressed = false;
    if (typed && !typed.said.contains(document.activeElement)) setTimeout(settle);
  }, true);
}
feed.addEventListener("focusout", (event) => {
  if (typed && event.target === typed.said && !pressed) queueMicrotask(settle);
});
feed.addEventListener("beforeinput", (event) => {
  if (["deleteByDrag", "insertFromDrop"].includes(event.inputType)) event.preventDefault();
  else if (event.inputType === "historyUndo") undoTyped();
  else if (event.inputType === "historyRedo") redo();
  else if (isAcross()) {
    if (BREAKS.includes(event.inputType)) splitAcross();
    else if (/^(insert|delete)/.test(event.inputType)) overwrite(given(event));
  } else if (event.inputType === "insertText") { if (event.data === null || !insert(event.data)) return; }
  else if (!["formatBold", "formatItalic"].includes(event.inputType) && !partsOrJoins(event.inputType)) return;
  event.preventDefault();
});
const BREAKS = ["insertParagraph", "insertLineBreak"];

/** Return whether the caret is at the first or the last place of a field. @param {HTMLElement} said @param {boolean} last */
const caretAt = (said, last) => getSelection()?.isCollapsed === true && atEdge(said, last);

/** Split a paragraph, or join two, for any key or keyboard on a screen that asks for it. Returns
    whether it was that. @param {string} type */
function partsOrJoins(type) {
  const said = fieldNow();
  if (!said) return false;
  if (BREAKS.includes(type)) { split(said); return true; }
  if (/^delete\w*Backward$/.test(type) && caretAt(said, false)) return join(blockOf(said));
  return /^delete\w*Forward$/.test(type) && caretAt(said, true) && join(blockOf(said) + 1);
}
document.addEventListener("visibilitychange", settle);
window.addEventListener("pagehide", settle);

/** Put a text in the place of the selection. A browser would keep the looks of the old text in a `style`, which the policy
    of the page forbids. Returns whether there is a place.
    @param {string} text */
function insert(text) {
  const said = fieldNow(), selection = getSelection();
  if (!said || !selection?.rangeCount) return false;
  const range = selection.getRangeAt(0);
  if (!said.contains(range.commonAncestorContainer)) return false;
  range.deleteContents();
  const { startContainer: node, startOffset: at } = range;
  if (node instanceof Text) {
    node.insertData(at, text);
    selection.collapse(node, at + text.length);
  } else {
    const fresh = document.createTextNode(text);
    range.insertNode(fresh);
    selection.collapse(fresh, text.length);
  }
  said.dispatchEvent(new InputEvent("input", { bubbles: true }));
  return true;
}

/** Undo what was typed last, be it a step already or not. */
export function undoTyped() {
  settle();
  undo();
}

/** A key in a field. Returns whether it meant something other than a letter.
    @param {KeyboardEvent} event @param {HTMLElement} said */
export function keyWhileWriting(event, said) {
  if (composes(event)) return false;
  const { key, shiftKey } = event;
  if (key === "Escape" || key === "Tab") { resume(); return true; }
  if (key === "F2") { setWriting(false); return true; }
  if (shiftKey) return false;
  const right = getComputedStyle(said).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
  const left = right === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
  if (key === "ArrowUp" && inOuterLine(said, false)) leaveTo(said, -1, true);
  else if (key === "ArrowDown" && inOuterLine(said, true)) leaveTo(said, 1, false);
  else if (key === left && caretAt(said, false)) leaveTo(said, -1, true);
  else if (key === right && caretAt(said, true)) leaveTo(said, 1, false);
  else return false;
  return true;
}

feed.addEventListener("click", (event) => {
  if (!page.writing) return;
  const w = Number(around(event, "[data-w]")?.dataset.w ?? -1);
  if (w >= 0 && event.detail === 1 && !event.shiftKey) seek(words.start[w]);
});

$("write").addEventListener("click", () => {
  setWriting(!page.writing);
  if (page.writing && page.playing >= 0) writeAt(page.playing);
});
if (kept(MODE) === "yes") queueMicrotask(() => { if (!page.desk?.refusal) setWriting(true); });
