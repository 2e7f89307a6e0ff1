// @ts-check
/* Copying words as a quotation, and links to moments. */
import { clock, momentAt } from "./clock.js";
import { around, toast } from "./dom.js";
import { nameOf } from "./names.js";
import { chosenWords, meant } from "./selection.js";
import { page, words } from "./state.js";

/** @param {readonly number[]} list */
export function quotation(list) {
  /** @type {string[]} */
  const lines = [];
  let paragraph = -1;
  for (const w of list) {
    if (page.paragraphOf[w] !== paragraph) {
      paragraph = page.paragraphOf[w];
      lines.push(`[${clock(words.start[w])}] ${nameOf(page.owner[w])}: ${page.texts[w].trimStart()}`);
    } else {
      lines[lines.length - 1] += page.texts[w];
    }
  }
  return lines.join("\n");
}

/** @param {string} text */
export function shortened(text) {
  const letters = [...text];
  return letters.length > 80 ? `${letters.slice(0, 79).join("")}…` : text;
}

/** The text that a button or a key copies. @type {string | null} */
let clipping = null;
document.addEventListener("copy", (event) => {
  const selected = !around(event, "input") && page.chosen && getSelection()?.isCollapsed;
  const text = clipping ?? (selected ? quotation(chosenWords()) : null);
  if (text === null) return;
  event.clipboardData?.setData("text/plain", text);
  event.preventDefault();
});

/** @param {string} text @param {string} what the message */
async function copy(text, what) {
  clipping = text;
  let done = document.execCommand("copy"); // needs no permission, even from a file
  clipping = null;
  // Safari does this only if something is selected in the document.
  if (!done) done = await (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(() => true, () => false);
  toast(done ? what : "This browser could not copy.");
}

export function quote() {
  const list = meant();
  if (list.length) copy(quotation(list), `Copied: ${shortened(quotation(list))}`);
}

export function link() {
  const ms = page.chosen ? words.start[page.order[page.chosen[0]]] : page.position;
  history.replaceState(null, "", momentAt(ms));
  copy(location.href.replace(/#.*$/, "") + momentAt(ms), `Copied a link to ${clock(ms)}`);
}
