// @ts-check
/* Notes, highlights and codes on words: how they are made, and the list of those of this transcript. */
import { wordsAcross } from "./across.js";
import { wordNow } from "./caret.js";
import { clock } from "./clock.js";
import { quotation, shortened } from "./copying.js";
import { checkName, checkText } from "./corrections.js";
import { $, around, make, toast } from "./dom.js";
import { choose, meant } from "./selection.js";
import { seek } from "./sound.js";
import { page, refused, take, transcript, words } from "./state.js";
import { bringIntoView, focusing } from "./text.js";
import { piecesOf } from "./transcript.js";
import { settle } from "./writing.js";
/** @import { Note } from "./derive.js" */

/** The words that a note would be about: those that are selected, or of the paragraph that is written in or heard. */
function here() {
  settle();
  const w = wordNow(), some = wordsAcross();
  if (some.length) return some;
  return w >= 0 && !page.chosen ? page.paragraphs[page.paragraphOf[w]].words.slice() : meant();
}

/** The note on exactly these words. @param {readonly number[]} list */
const noteOn = (list) => {
  const key = JSON.stringify(list.slice().sort((a, b) => a - b));
  return page.notes.find((note) => JSON.stringify(note.words) === key);
};

/** Highlight words, or take the highlight away. */
export function highlight() {
  const list = here();
  if (!list.length || refused(true)) return;
  const note = noteOn(list);
  if (note && (note.text || note.codes.length)) { askNote(); return; }
  take({ kind: "note", pieces: note?.pieces ?? piecesOf(transcript, list), text: note ? null : "", codes: [] });
}

/** Offer all codes that are used in this transcript, and these. @param {readonly string[]} [others] */
function offerCodes(others = []) {
  const all = [...new Set([...page.notes.flatMap(({ codes }) => codes), ...others])].sort((a, b) => a.localeCompare(b));
  $("all-codes").replaceChildren(...all.map((code) => new Option("", code)));
}

/** Write a note on words, with codes. @param {Note} [given] */
export function askNote(given) {
  if (refused(true)) return;
  const list = given?.words ?? here();
  if (!list.length && !given) { toast("There are no words to note something of."); return; }
  const note = given ?? noteOn(list);
  const pieces = note?.pieces ?? piecesOf(transcript, list);
  const dialog = $("noting"), focus = focusing();
  $("noting-about").textContent = shortened(quotation(list));
  $("note-text").value = note?.text ?? "";
  $("note-codes").value = note?.codes.join(", ") ?? "";
  $("note-trouble").textContent = "";
  $("note-remove").hidden = !note;
  offerCodes();
  page.desk?.codes().then(offerCodes, () => {}); // without them one can write, too
  $("noting-form").onsubmit = (event) => {
    event.preventDefault();
    const text = $("note-text").value.trim(), codes = $("note-codes").value.split(",").map((code) => code.trim()).filter(Boolean);
    const named = codes.map(checkName);
    const trouble = named.includes(null) ? "A code has 1 to 100 printable characters." : checkText(text.replaceAll("\n", ""));
    $("note-trouble").textContent = trouble ?? "";
    if (trouble) return;
    dialog.close();
    focus();
    take({ kind: "note", pieces, text, codes: [...new Set(/** @type {string[]} */ (named))] });
  };
  $("note-remove").onclick = () => {
    dialog.close();
    focus();
    take({ kind: "note", pieces, text: null, codes: [] });
  };
  dialog.showModal();
  $("note-text").focus();
}

/** The list beside the text. */
export function showNotes() {
  $("notes-title").hidden = !page.notes.length;
  $("notes").replaceChildren(...page.notes.map((note, n) => {
    const time = clock(note.pieces[0][0]);
    const go = make("button", "flat note", [
      make("span", "time", time), make("span", "quote", shortened(quotation(note.words)) || "[taken out]", { dir: "auto" }),
      ...note.codes.map((code) => make("bdi", "code", code)),
      ...(note.text ? [make("span", "about", note.text, { dir: "auto" })] : []),
    ], { dataset: { note: String(n) } });
    return make("li", "", [
      go, make("button", "flat small", "Edit…", { dataset: { edit: String(n) }, ariaLabel: `Edit the note at ${time}` }),
    ]);
  }));
}

$("notes").addEventListener("click", (event) => {
  const button = around(event, "button");
  const note = page.notes[Number(button?.dataset.note ?? button?.dataset.edit ?? -1)];
  if (!note) return;
  if (button?.dataset.edit !== undefined) { askNote(note); return; }
  seek(note.pieces[0][0]);
  const places = note.words.map((w) => page.place[w]).filter((at) => at >= 0);
  if (!places.length) return;
  bringIntoView(page.blockOf[page.order[Math.min(...places)]]);
  choose(Math.min(...places), Math.max(...places));
});

/** Return the notes on a word, as its tooltip. @param {number} w */
export const notedOf = (w) => page.notes.filter((note) => note.words.includes(w))
  .map((note) => [note.codes.join(", "), note.text].filter(Boolean).join(": ")).filter(Boolean);

$("feed").addEventListener("pointerover", (event) => {
  const span = around(event, ".noted");
  if (span && !span.title) span.title = notedOf(Number(span.dataset.w)).join("; ") || `noted at ${clock(words.start[Number(span.dataset.w)])}`;
});
