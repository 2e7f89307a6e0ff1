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
  $("all-codes").replaceChildren(...all.map((code) => {
    const option = make("option");
    option.value = code;
    return option;
  }));
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
    const row = make("li");
    const go = make("button", "flat note");
    go.type = "button";
    go.dataset.note = String(n);
    go.append(make("span", "time", clock(note.pieces[0][0])));
    const quote = make("span", "quote", shortened(quotation(note.words)) || "[taken out]");
    quote.dir = "auto";
    go.append(quote);
    for (const code of note.codes) go.append(make("bdi", "code", code));
    if (note.text) {
      const text = make("span", "about", note.text);
      text.dir = "auto";
      go.append(text);
    }
    const edit = make("button", "flat small", "Edit…");
    edit.type = "button";
    edit.dataset.edit = String(n);
    edit.setAttribute("aria-label", `Edit the note at ${clock(note.pieces[0][0])}`);
    row.append(go, edit);
    return row;
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

/** What is noted of a word, for whoever points at it. @param {number} w */
export const notedOf = (w) => page.notes.filter((note) => note.words.includes(w))
  .map((note) => [note.codes.join(", "), note.text].filter(Boolean).join(": ")).filter(Boolean);

$("feed").addEventListener("pointerover", (event) => {
  const span = around(event, ".noted");
  if (span && !span.title) span.title = notedOf(Number(span.dataset.w)).join("; ") || `noted at ${clock(words.start[Number(span.dataset.w)])}`;
});
