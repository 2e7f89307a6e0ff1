// @ts-check
/* The place in which a person writes: the field, the caret in it, and the word there. */
import { letters, placeAfter } from "./retyped.js";
import { page } from "./state.js";
import { bringIntoView, feed, spans } from "./text.js";

/** The field with the focus; of a selection across several, the one in which it ends. */
export function fieldNow() {
  const field = document.activeElement;
  if (!(field instanceof HTMLElement) || !field.isContentEditable || !feed.contains(field)) return null;
  return field === feed ? fieldOf(getSelection()?.focusNode) ?? fieldOf(getSelection()?.anchorNode) : field;
}

/** The field around a place in the document. @param {Node | null | undefined} node @returns {HTMLElement | null} */
export function fieldOf(node) {
  const element = node instanceof Element ? node : node?.parentElement;
  return element?.closest(".said[contenteditable]") ?? null;
}

/** @param {HTMLElement} said */
export const blockOf = (said) => Number(said.closest("article")?.dataset.block);

/** Words of other fields, whose text a field has until it becomes a step. @type {WeakMap<HTMLElement, number[]>} */
const taken = new WeakMap();
/** Let a field have the text of these words. @param {HTMLElement} said @param {number[]} list */
export const hold = (said, list) => taken.set(said, list);

/** The words that a field shows. @param {HTMLElement} said */
export function wordsIn(said) {
  const held = taken.get(said);
  if (held) return held;
  const block = page.blocks[blockOf(said)];
  return block ? block.paragraph.words.slice(block.from, block.to) : [];
}

/** Return the text of a field up to a place in it, or from there on; null: the place is elsewhere.
    @param {HTMLElement} said @param {Node | null} node @param {number} offset @param {boolean} [onward] */
export function textTo(said, node, offset, onward = false) {
  if (!node || !said.contains(node)) return null;
  const range = document.createRange();
  range.selectNodeContents(said);
  if (onward) range.setStart(node, offset); else range.setEnd(node, offset);
  return range.toString();
}

/** Return the text of a field before the end of the selection, or before its start. @param {HTMLElement} said @param {boolean} start */
export function before(said, start = false) {
  const selection = getSelection();
  if (!selection?.rangeCount) return null;
  const { startContainer, startOffset, endContainer, endOffset } = selection.getRangeAt(0);
  const first = textTo(said, startContainer, startOffset), whole = textTo(said, endContainer, endOffset);
  if (first === null || whole === null) return null;
  return start ? first : whole;
}

/** Return a function that puts the caret back, after as many letters of the same words, once the paragraphs are rebuilt, and
    restores the selection: a double click may select a word while text that was typed before becomes a step. */
export function keepingCaret() {
  const said = fieldNow();
  const text = said && before(said);
  if (!said || text === null) return () => {};
  const list = wordsIn(said), at = page.place[list[0]], spaced = /\s$/u.test(text);
  const ends = [letters(text), letters(before(said, true) ?? text)];
  const after = (said.textContent ?? "").slice(text.length);
  const open = spaced && !/^\S/u.test(after); // a word is about to be typed between two spaces
  const texts = page.texts;
  return () => {
    const [count, first] = page.adopting ? ends.map((each) => shifted(list, texts, each, spaced && !open)) : ends;
    const shownNow = list.filter((w) => page.place[w] >= 0).sort((a, b) => page.place[a] - page.place[b]);
    const end = shownNow[shownNow.length - 1];
    let left = count;
    for (const w of shownNow) {
      const here = letters(page.texts[w]), between = open && (after !== "" || endsField(w));
      if (left < here || (left === here && (!spaced || between || w === end))) {
        putCaret(w, left, between, spaced);
        if (first < count) chooseFrom(shownNow, first);
        return;
      }
      left -= here;
    }
    // Where all of them went, the caret is behind the word before.
    const w = end ?? page.order[Math.min(Math.max(0, at - 1), page.order.length - 1)];
    if (w !== undefined) putCaret(w, Infinity, open && shownNow.length > 0);
  };
}

/** Return the number of letters before the same place in a word once others have changed the texts.
    @param {readonly number[]} list @param {readonly string[]} texts before that @param {number} count @param {boolean} onward
    whether the place is before the next word */
function shifted(list, texts, count, onward) {
  const bare = (/** @type {string} */ text) => text.replace(/\s+/gu, "");
  let left = count, moved = 0;
  for (const w of list) {
    const old = bare(texts[w]), now = page.place[w] >= 0 ? bare(page.texts[w]) : "";
    if (left < old.length || (left === old.length && !onward)) {
      const head = old.slice(0, left), tail = old.slice(left);
      if (now.startsWith(head)) return moved + left;
      return moved + (now.endsWith(tail) ? now.length - tail.length : Math.min(left, now.length));
    }
    left -= old.length;
    moved += now.length;
  }
  return moved;
}

/** Return whether a word is the last one of its field. @param {number} w */
const endsField = (w) => page.blockOf[page.order[page.place[w] + 1]] !== page.blockOf[w];

/** Select the text between so many letters of some words and the caret. @param {readonly number[]} list @param {number} count */
function chooseFrom(list, count) {
  const selection = getSelection();
  let left = count;
  for (const w of list) {
    const here = letters(page.texts[w]), node = spans.get(w)?.firstChild;
    if (left < here) {
      if (node && selection?.focusNode) {
        selection.setBaseAndExtent(node, placeAfter(node.textContent ?? "", left, true), selection.focusNode, selection.focusOffset);
      }
      return;
    }
    left -= here;
  }
}

/** Put the caret into a word, after so many letters; after none it may be before the space or after it.
    @param {number} w @param {number} count @param {boolean} open @param {boolean} spaced */
export function putCaret(w, count, open = false, spaced = false) {
  if (!spans.has(w)) bringIntoView(page.blockOf[w]);
  const span = spans.get(w), node = span?.firstChild;
  if (!span || !node) return;
  const at = placeAfter(node.textContent ?? "", count, spaced);
  span.closest("p")?.focus({ preventScroll: true });
  if (open) {
    const space = document.createTextNode(" ");
    span.after(space);
    getSelection()?.collapse(space, 1);
  } else {
    getSelection()?.collapse(node, at);
  }
}

/** Return whether the end of the selection that moves is at the first or the last place of a field. @param {HTMLElement} said @param {boolean} last */
export function atEdge(said, last) {
  const selection = getSelection();
  return selection !== null && textTo(said, selection.focusNode, selection.focusOffset, last)?.trim() === "";
}

/** Return whether the end of the selection that moves is in the first or the last line of a field. @param {HTMLElement} said @param {boolean} last */
export function inOuterLine(said, last) {
  const selection = getSelection();
  if (!selection?.focusNode) return false;
  const range = document.createRange(), box = said.getBoundingClientRect();
  range.setStart(selection.focusNode, selection.focusOffset);
  const caret = range.getClientRects()[0];
  const line = parseFloat(getComputedStyle(said).lineHeight) || 28;
  return !caret || (last ? caret.bottom > box.bottom - line : caret.top < box.top + line);
}

/** The word with the caret, or -1. */
export function wordNow() {
  const field = fieldNow();
  const selection = getSelection();
  const text = field && selection && (before(field) ?? textTo(field, selection.focusNode, selection.focusOffset));
  if (!field || text === null) return -1;
  let left = letters(text);
  const list = wordsIn(field);
  for (const w of list) {
    left -= letters(page.texts[w]);
    if (left <= 0) return w;
  }
  return list[list.length - 1] ?? -1;
}
