// @ts-check
/* Elements and lists, for the page of a transcript and for the desk. */

/**
 * The elements that are more than an HTMLElement, by their ids.
 * @typedef {{
 *   query: HTMLInputElement, by: HTMLInputElement, answer: HTMLInputElement, speaker: HTMLInputElement,
 *   doubts: HTMLInputElement, files: HTMLInputElement, folder: HTMLInputElement,
 *   rate: HTMLSelectElement, back: HTMLSelectElement, colors: HTMLSelectElement,
 *   timeline: HTMLCanvasElement, open: HTMLAnchorElement, project: HTMLAnchorElement, code: HTMLSelectElement,
 *   choose: HTMLDialogElement, ask: HTMLDialogElement, keys: HTMLDialogElement, voices: HTMLDialogElement, "own-keys": HTMLDialogElement,
 *   noting: HTMLDialogElement, "note-text": HTMLTextAreaElement, "note-codes": HTMLInputElement,
 *   undo: HTMLButtonElement, redo: HTMLButtonElement, save: HTMLButtonElement, next: HTMLButtonElement,
 *   previous: HTMLButtonElement, replace: HTMLButtonElement, "replace-all": HTMLButtonElement,
 *   wider: HTMLButtonElement, look: HTMLButtonElement, heard: HTMLInputElement, written: HTMLInputElement,
 *   replacing: HTMLDialogElement, "replacing-form": HTMLFormElement, export: HTMLButtonElement,
 *   "people-list": HTMLButtonElement, recording: HTMLDialogElement,
 *   "recording-name": HTMLInputElement, "recording-shared": HTMLInputElement,
 *   "recording-begin": HTMLButtonElement, "recording-end": HTMLButtonElement,
 *   shelf: HTMLDialogElement, trashed: HTMLDialogElement, "shelf-form": HTMLFormElement, "new-name": HTMLInputElement,
 *   "new-folder": HTMLInputElement, "new-tags": HTMLInputElement, throw: HTMLButtonElement, "empty-trash": HTMLButtonElement,
 *   filters: HTMLFormElement, "by-name": HTMLInputElement, "by-folder": HTMLSelectElement, "by-state": HTMLSelectElement,
 *   "by-tag": HTMLSelectElement, "by-speaker": HTMLSelectElement, since: HTMLInputElement, till: HTMLInputElement,
 *   "all-again": HTMLButtonElement, with: HTMLButtonElement, sort: HTMLSelectElement,
 * }} Known
 */

/**
 * The element of an id.
 * @template {string} Id
 * @param {Id} id
 * @returns {Id extends keyof Known ? Known[Id] : HTMLElement}
 */
export const $ = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [className]
 * @param {string} [text]
 */
export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/**
 * The element around what an event is about, or itself, that the selector names.
 * @param {Event} event
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function around(event, selector) {
  return event.target instanceof Element ? event.target.closest(selector) : null;
}

/** The place of an element in a list of them, or -1. @param {Iterable<Element>} list @param {Element | null} element */
export const placeIn = (list, element) => (element ? [...list].indexOf(element) : -1);

/** A name within a sentence, which keeps its direction to itself: U+2068 and U+2069 are what <bdi> is. @param {string} name */
export const isolated = (name) => `\u2068${name}\u2069`;

let toasted = 0;

/** @param {string} text */
export function toast(text) {
  $("toast").textContent = text;
  clearTimeout(toasted);
  toasted = setTimeout(() => { $("toast").textContent = ""; }, 6000);
}

/** What went wrong, in words. @param {unknown} error */
export const wordsOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Whether a key belongs to a word that is being composed, as in Japanese. Safari tells of the last one by its code.
 * @param {KeyboardEvent} event
 */
export const composes = (event) => event.isComposing || event.keyCode === 229;

/** @type {WeakMap<Element, unknown>} */
const keys = new WeakMap();

/**
 * Show things in a list, in this order. A thing keeps its element for as long as it is shown, so that news which
 * arrive while a button is pressed do not take it away before the click. `build` makes the element of a thing
 * that is new, and `fill` writes into it what is known of the thing now. Where the element with the focus goes,
 * the next one has it.
 * @template Thing
 * @template {HTMLElement} Shown
 * @param {HTMLElement} list
 * @param {readonly Thing[]} things
 * @param {(thing: Thing) => unknown} keyOf
 * @param {(thing: Thing) => Shown} build
 * @param {(element: Shown, thing: Thing) => void} fill
 */
export function showIn(list, things, keyOf, build, fill) {
  const focused = document.activeElement;
  const children = /** @type {Shown[]} */ ([...list.children]);
  const at = children.findIndex((element) => element.contains(focused));
  const before = new Map(children.map((element) => [keys.get(element), element]));
  const now = new Map(things.map((thing) => [keyOf(thing), thing]));
  for (const [key, element] of before) if (!now.has(key)) element.remove();
  [...now].forEach(([key, thing], n) => {
    const element = before.get(key) ?? build(thing);
    keys.set(element, key);
    fill(element, thing);
    if (list.children[n] !== element) list.insertBefore(element, list.children[n] ?? null);
  });
  if (at < 0 || list.contains(document.activeElement)) return;
  const next = list.contains(focused) ? focused : list.children[Math.min(at, list.children.length - 1)];
  if (!(next instanceof HTMLElement)) { focusMain(); return; }
  if (next !== focused) next.tabIndex = -1; // and not a button in it: Enter may be pressed twice
  next.focus({ preventScroll: true });
}

export function focusMain() {
  document.querySelector("main")?.focus({ preventScroll: true });
}

/**
 * Take the focus from what is about to be hidden or disabled: else whoever uses the keyboard begins again at the top.
 * @param {HTMLElement} element
 */
export function leaveFocus(element) {
  if (element.contains(document.activeElement)) focusMain();
}

/**
 * @param {HTMLButtonElement} button
 * @param {boolean} can
 */
export function enable(button, can) {
  if (!can) leaveFocus(button);
  button.disabled = !can;
}

/**
 * @param {HTMLElement} element
 * @param {boolean} [hidden]
 */
export function hide(element, hidden = true) {
  if (hidden) leaveFocus(element);
  element.hidden = hidden;
}

/**
 * Do something at a click on a button, once at a time: by the second click of two, something else may be under the
 * mouse. Meanwhile it is not `disabled`, which would drop the focus.
 * @param {HTMLButtonElement} button
 * @param {() => unknown} act
 */
export function press(button, act) {
  button.addEventListener("click", async (event) => {
    if (button.ariaDisabled || event.detail > 1) return;
    button.ariaDisabled = "true";
    try { await act(); } finally { button.ariaDisabled = null; }
  });
}

/**
 * Write on a button what it does, and for whoever does not see where it is, to what.
 * @param {HTMLButtonElement} button @param {string} text @param {string} what
 */
export function write(button, text, what) {
  button.textContent = text;
  button.setAttribute("aria-label", `${text}: ${what}`);
}

/** Choose a part of the text, or put the caret there. @param {Range} range */
export function select(range) {
  const selection = getSelection();
  selection?.removeAllRanges();
  selection?.addRange(range);
}
