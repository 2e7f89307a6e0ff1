// @ts-check
/* A selection across several paragraphs while a person writes. Each paragraph is a field, and a selection stays in its field;
   while it goes on in the next one, all of them are one field together, in which only the selection may be typed over. */
import { atEdge, blockOf, fieldOf, inOuterLine, textTo, wordsIn } from "./caret.js";
import { around } from "./dom.js";
import { page, tell } from "./state.js";
import { feed, pin } from "./text.js";
/** @import { Over } from "./retyped.js" */

let across = false, dragging = false;
/** The field in which the mouse was pressed. @type {HTMLElement | null} */
let pressed = null;

export const isAcross = () => across;

/** Let the selection go on in other fields. */
function enter() {
  if (across) return;
  tell("across");
  const selection = getSelection();
  if (!selection?.anchorNode || !selection.focusNode) return;
  const { anchorNode, anchorOffset, focusNode, focusOffset } = selection;
  across = true;
  feed.contentEditable = "true";
  feed.focus({ preventScroll: true });
  selection.setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
}

/** No longer; the fields are fields again. */
export function leave() {
  if (!across) return;
  across = false;
  pin(null);
  feed.contentEditable = "inherit";
}

/** Leave with the caret at one end of what was selected. @param {boolean} [last] */
export function collapse(last = true) {
  if (!across) return;
  const now = chosen();
  leave();
  if (!now) return;
  const { range, fields } = now, field = fields[last ? fields.length - 1 : 0];
  const node = last ? range.endContainer : range.startContainer, offset = last ? range.endOffset : range.startOffset;
  field.focus({ preventScroll: true });
  if (field.contains(node)) getSelection()?.collapse(node, offset);
  else getSelection()?.collapse(field, last ? field.childNodes.length : 0);
}

/** Return the fields with something selected, and the unselected text of the first and the last; null without a selection. */
function chosen() {
  const selection = getSelection();
  if (!selection?.rangeCount) return null;
  const range = selection.getRangeAt(0);
  const fields = [...feed.querySelectorAll(".said[contenteditable]")].filter((said) => said instanceof HTMLElement
    && range.intersectsNode(said) && wordsIn(said).length > 0).map((said) => /** @type {HTMLElement} */ (said));
  if (!fields.length) return null;
  return {
    range, fields, before: textTo(fields[0], range.startContainer, range.startOffset) ?? "",
    after: textTo(fields[fields.length - 1], range.endContainer, range.endOffset, true) ?? "",
  };
}

/** The words of all fields with something selected, if there are several. */
export const wordsAcross = () => (across ? chosen()?.fields.flatMap(wordsIn) ?? [] : []);

/** Return the selected text, a paragraph for each field. */
export function textAcross() {
  const now = chosen();
  if (!now) return "";
  return now.fields.map((said) => within(now.range, said).toString().trim()).filter(Boolean).join("\n\n");
}

/** The part of a range that is in a field. @param {Range} range @param {HTMLElement} said */
function within(range, said) {
  const part = range.cloneRange();
  if (!said.contains(part.startContainer)) part.setStart(said, 0);
  if (!said.contains(part.endContainer)) part.setEnd(said, said.childNodes.length);
  return part;
}

/** Take out the selection and leave: the caret is in its place. Returns the field with the caret, and the changes.
    @param {(fields: number[][], before: string, after: string) => Over} over */
export function takeOut(over) {
  const now = chosen();
  leave();
  if (!now) return null;
  const { range, fields } = now;
  const how = over(fields.map(wordsIn), now.before, now.after);
  const said = fields[how.into], last = fields[how.to];
  const here = within(range, said);
  here.deleteContents();
  if (how.rest) within(range, last).deleteContents();
  fields.slice(how.into + 1, how.rest ? how.to : how.to + 1).forEach((field) => field.closest("article")?.setAttribute("hidden", ""));
  if (last !== said && how.tail) said.append(how.tail);
  said.focus({ preventScroll: true });
  getSelection()?.collapse(here.startContainer, here.startOffset);
  return { said, how };
}

/* ---------- the mouse ---------- */

feed.addEventListener("pointerdown", (event) => {
  pressed = null;
  if (!page.writing || event.button || event.pointerType === "touch") return;
  const said = around(event, ".said[contenteditable]");
  if (!said) return;
  dragging = true;
  pressed = said;
});
/* With Shift, it goes on to where the mouse is; by itself, the browser would begin another one there. */
feed.addEventListener("mousedown", (event) => {
  const said = around(event, ".said[contenteditable]"), from = fieldOf(getSelection()?.anchorNode);
  if (!page.writing || event.button || !event.shiftKey || !said || !from || from === said) return;
  enter();
  const at = document.caretPositionFromPoint?.(event.clientX, event.clientY);
  if (at) getSelection()?.extend(at.offsetNode, at.offset);
  event.preventDefault();
});
document.addEventListener("pointermove", (event) => {
  if (!pressed || across || !(event.buttons & 1)) return;
  const box = pressed.getBoundingClientRect();
  if ((event.clientY < box.top || event.clientY > box.bottom) && fieldOf(getSelection()?.anchorNode) === pressed) enter();
});
for (const event of ["pointerup", "pointercancel"]) {
  window.addEventListener(event, () => {
    dragging = false;
    pressed = null;
    setTimeout(follow);
  });
}
feed.addEventListener("dragstart", (event) => { if (across) event.preventDefault(); });

/* ---------- the keyboard ---------- */

feed.addEventListener("keydown", (event) => {
  if (!page.writing || event.altKey) return;
  const { key, shiftKey } = event;
  const said = fieldOf(getSelection()?.focusNode);
  if (shiftKey && said && !across) {
    const up = ["ArrowUp", "PageUp"].includes(key), down = ["ArrowDown", "PageDown"].includes(key);
    const onward = (key === "ArrowRight") === (getComputedStyle(said).direction !== "rtl");
    if (["ArrowLeft", "ArrowRight"].includes(key) ? atEdge(said, onward) : (up || down) && inOuterLine(said, down)) enter();
  }
  if (!across || shiftKey) return;
  if (["ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"].includes(key)) collapse(key === "ArrowRight" || key === "ArrowDown");
  else if (event.code === "KeyA" && (event.ctrlKey || event.metaKey)) whole();
  else return;
  event.preventDefault();
});

/** Select the fields with a selection as a whole. */
function whole() {
  const now = chosen();
  if (!now) return;
  const last = now.fields[now.fields.length - 1];
  getSelection()?.setBaseAndExtent(now.fields[0], 0, last, last.childNodes.length);
}

/* ---------- how far it goes ---------- */

/** Keep the selection in the document; within one field, that is a field again. */
function follow() {
  if (!across) return;
  const selection = getSelection();
  const from = fieldOf(selection?.anchorNode), to = fieldOf(selection?.focusNode);
  if (from && to && from !== to) {
    const ends = [blockOf(from), blockOf(to)];
    pin([Math.min(...ends), Math.max(...ends)]);
  } else if (from && from === to && selection && !dragging) {
    const { anchorNode, anchorOffset, focusNode, focusOffset } = selection;
    leave();
    from.focus({ preventScroll: true });
    if (anchorNode && focusNode) selection.setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
  }
}
document.addEventListener("selectionchange", follow);
feed.addEventListener("focusout", (event) => { if (across && event.target === feed) leave(); });
