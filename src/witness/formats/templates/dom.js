"use strict";
/* Elements, times and lists, for the page of a transcript and for the desk. Times are milliseconds. */

const $ = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function clock(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  return `${two(Math.floor(s / 3600))}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

function span(ms) {
  const s = Math.round(ms / 1000);
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
}

function toast(text) {
  $("toast").textContent = text;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").textContent = ""; }, 6000);
}

/** Whether a key belongs to a word that is being composed, as in Japanese. Safari tells of the last one by its code. */
const composes = (event) => event.isComposing || event.keyCode === 229;

/** Show things in a list, in this order. A thing keeps its element for as long as it is shown, so that news which
    arrive while a button is pressed do not take it away before the click. `build` makes the element of a thing
    that is new, and `fill` writes into it what is known of the thing now. Where the element with the focus goes,
    the next one has it. */
function showIn(list, things, keyOf, build, fill) {
  const focused = document.activeElement;
  const at = [...list.children].findIndex((element) => element.contains(focused));
  const before = new Map([...list.children].map((element) => [element.key, element]));
  const now = new Map(things.map((thing) => [keyOf(thing), thing]));
  for (const [key, element] of before) if (!now.has(key)) element.remove();
  [...now].forEach(([key, thing], n) => {
    const element = before.get(key) ?? Object.assign(build(thing), { key });
    fill(element, thing);
    if (list.children[n] !== element) list.insertBefore(element, list.children[n] ?? null);
  });
  if (at < 0 || list.contains(document.activeElement)) return;
  const next = list.contains(focused) ? focused : list.children[Math.min(at, list.children.length - 1)];
  if (next && next !== focused) next.tabIndex = -1; // and not a button in it: Enter may be pressed twice
  (next ?? document.querySelector("main")).focus({ preventScroll: true });
}

/** Take the focus from what is about to be hidden or disabled: else whoever uses the keyboard begins again at the top. */
function leaveFocus(element) {
  if (element.contains(document.activeElement)) document.querySelector("main").focus({ preventScroll: true });
}

function enable(button, can) {
  if (!can) leaveFocus(button);
  button.disabled = !can;
}

function hide(element, hidden = true) {
  if (hidden) leaveFocus(element);
  element.hidden = hidden;
}

/** Do something at a click on a button, once at a time: by the second click of two, something else may be under the
    mouse. Meanwhile it is not `disabled`, which would drop the focus. */
function press(button, act) {
  button.addEventListener("click", async (event) => {
    if (button.ariaDisabled || event.detail > 1) return;
    button.ariaDisabled = "true";
    try { await act(); } finally { button.ariaDisabled = null; }
  });
}
