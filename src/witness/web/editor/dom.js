// @ts-check
/* Elements and lists, for the page of a transcript and for the desk. */

/**
 * The elements that are more than an HTMLElement, by their ids.
 * @typedef {Record<"answer" | "by" | "by-name" | "doubts" | "files" | "folder" | "heard" | "new-folder" | "new-name" | "new-tags"
 *     | "note-codes" | "query" | "recording-name" | "recording-shared" | "seek" | "since" | "speaker" | "till" | "written", HTMLInputElement>
 *   & Record<"back" | "by-folder" | "by-speaker" | "by-state" | "by-tag" | "code" | "colors" | "rate" | "sort", HTMLSelectElement>
 *   & Record<"act" | "all-again" | "empty-trash" | "export" | "look" | "next" | "people-list" | "previous" | "recording-begin"
 *     | "recording-end" | "redo" | "replace" | "replace-all" | "save" | "throw" | "trash" | "undo" | "wider" | "with", HTMLButtonElement>
 *   & Record<"ask" | "choose" | "keys" | "noting" | "own-keys" | "recording" | "replacing" | "shelf" | "trashed" | "voices",
 *     HTMLDialogElement>
 *   & Record<"filters" | "replacing-form" | "shelf-form", HTMLFormElement> & Record<"open" | "project", HTMLAnchorElement>
 *   & { "note-text": HTMLTextAreaElement, share: HTMLProgressElement, timeline: HTMLCanvasElement }} Known
 */

/**
 * The element of an id.
 * @template {string} Id
 * @param {Id} id
 * @returns {Id extends keyof Known ? Known[Id] : HTMLElement}
 */
export const $ = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * Make an element; a button with the type "button", which sends no form.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [className]
 * @param {string | readonly (Node | string)[]} [content]
 * @param {Partial<HTMLElementTagNameMap[Tag]>} [properties]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, className = "", content = [], properties = {}) {
  const element = document.createElement(tag), { dataset, ...others } = properties;
  if (element instanceof HTMLButtonElement) element.type = "button";
  if (className) element.className = className;
  if (content) element.append(...[content].flat());
  Object.assign(element.dataset, dataset);
  return Object.assign(element, others);
}

/** Make a button that does something at a click.
    @param {string} className @param {string} text @param {() => unknown} act @param {Partial<HTMLButtonElement>} [properties] */
export function button(className, text, act, properties) {
  const element = make("button", className, text, properties);
  press(element, act);
  return element;
}

/** The element around what an event is about, or itself, that the selector names.
    @param {Event} event @param {string} selector @returns {HTMLElement | null} */
export function around(event, selector) {
  return event.target instanceof Element ? event.target.closest(selector) : null;
}

/** The place of an element in a list of them, or -1. @param {Iterable<Element>} list @param {Element | null} element */
export const placeIn = (list, element) => (element ? [...list].indexOf(element) : -1);

/** A name within a sentence, which keeps its direction to itself: U+2068 and U+2069 are what <bdi> is. @param {string} name */
export const isolated = (name) => `\u2068${name}\u2069`;

/** Return an error in words. @param {unknown} error */
export const wordsOf = (error) => (error instanceof Error ? error.message : String(error));

let toasted = 0;

/** Tell the person something for a moment, also what went wrong. @param {unknown} text */
export function toast(text) {
  $("toast").textContent = wordsOf(text);
  clearTimeout(toasted);
  toasted = setTimeout(() => { $("toast").textContent = ""; }, 6000);
}

/** Return whether a key belongs to a word that is being composed, as in Japanese. Safari marks the last one by its code.
    @param {KeyboardEvent} event */
export const composes = (event) => event.isComposing || event.keyCode === 229;

/** @type {WeakMap<Element, unknown>} */
const keys = new WeakMap();

/**
 * Show things in a list, in this order. A thing keeps its element for as long as it is shown, so that news which
 * arrive while a button is pressed do not take it away before the click. `build` makes the element of a thing
 * that is new, and `fill` writes the thing's present state into it. Where the element with the focus goes,
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

/** Take the focus from an element that is about to be hidden or disabled: else the keyboard begins again at the top.
    @param {HTMLElement} element */
export function leaveFocus(element) {
  if (element.contains(document.activeElement)) focusMain();
}

/** @param {HTMLButtonElement} element @param {boolean} can */
export function enable(element, can) {
  if (!can) leaveFocus(element);
  element.disabled = !can;
}

/** @param {HTMLElement} element @param {boolean} [hidden] */
export function hide(element, hidden = true) {
  if (hidden) leaveFocus(element);
  element.hidden = hidden;
}

/** Do something at a click on a button, once at a time: by the second click of two, something else may be under the mouse.
    Meanwhile it is not `disabled`, which would drop the focus. An error is shown.
    @param {HTMLButtonElement} element @param {() => unknown} act */
export function press(element, act) {
  element.addEventListener("click", async (event) => {
    if (element.ariaDisabled || event.detail > 1) return;
    element.ariaDisabled = "true";
    try { await act(); } catch (error) { toast(error); } finally { element.ariaDisabled = null; }
  });
}

document.addEventListener("click", (event) => around(event, "[data-close]")?.closest("dialog")?.close());

/** Write a button's action on it, and for screen readers its object, too.
    @param {HTMLButtonElement} element @param {string} text @param {string} what */
export function write(element, text, what) {
  element.textContent = text;
  element.ariaLabel = `${text}: ${what}`;
}
