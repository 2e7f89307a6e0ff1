// @ts-check
/* Corrections that people make: questions to them, and steps of their answers. */
import { wordsAcross } from "./across.js";
import { wordNow } from "./caret.js";
import { clock } from "./clock.js";
import { shortened } from "./copying.js";
import { asDocument, BAD_NAME, checkName, countAll } from "./corrections.js";
import { ask, pick } from "./dialogs.js";
import { $, make, toast } from "./dom.js";
import { justHeard } from "./doubts.js";
import { showEdges } from "./edges.js";
import { keepDraft, data, edits, on, page, refused, take, tell, transcript, words } from "./state.js";
import { nameOf, speakerOf } from "./names.js";
import { chosenWords, meant, paragraphNow, unchoose } from "./selection.js";
import { audio } from "./sound.js";
import { reveal } from "./text.js";
import { piecesOf } from "./transcript.js";
import { settle, writeAt, writeIn } from "./writing.js";
/** @import { Correction } from "./corrections.js" */
/** @import { Paragraph } from "./derive.js" */

/** Return the corrections of all steps. */
export const corrections = () => asDocument(transcript, page.turns, edits.steps);

export function save() {
  if (page.desk) { page.desk.save(); return; }
  download();
}

/** Give the corrections away as a file. */
export function download() {
  if (!edits.steps.length) return;
  const file = new Blob([`${JSON.stringify(corrections(), null, 1)}\n`], { type: "application/json" });
  const a = make("a");
  a.href = URL.createObjectURL(file);
  a.download = `${data.title.replace(/[^\p{L}\p{N}._ -]/gu, "_").slice(0, 100)}.corrections.json`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
  edits.arrived(edits.steps.slice());
  keepDraft();
  $("save").classList.remove("main");
  toast(`Saved. To apply: witness redo TRANSCRIPT.json --corrections "${a.download}" -f html`);
}

/* ---------- speakers ---------- */

/** @param {number} who */
function speakerChoice(who) {
  return { value: who, who, label: nameOf(who) };
}

/** Name a speaker. Returns the fault of the name, or null. @param {number} who @param {string} text */
export function rename(who, text) {
  const name = checkName(text);
  if (name === null) return BAD_NAME;
  if (name !== page.names[who]) take({ kind: "name", who, name });
  return null;
}

/** @param {number} who */
export async function askName(who) {
  if (refused()) return;
  await ask(`Who is ${nameOf(who)}?`, "Name in the whole transcript", page.names[who] ?? "", (text) => rename(who, text));
}

/** @param {number} who */
export async function askMerge(who) {
  if (refused()) return;
  const others = page.speakers.filter((one) => one.who !== who);
  if (!others.length) { toast("There is no other speaker to merge with."); return; }
  const other = await pick(`Who is the same person as ${nameOf(who)}?`, "They become one speaker.",
    others.map((one) => speakerChoice(one.who)));
  if (other === null) return;
  /** @type {Correction[]} */
  const made = [{ kind: "merge", who: other, gone: who }];
  // Of two names Witness takes the later one: say which.
  const name = page.names[other];
  if (name) made.push({ kind: "name", who: other, name });
  take(...made);
}

/** @param {number[]} list @param {string} title */
export async function askMove(list, title) {
  if (refused()) return;
  if (!list.length) { toast("There are no words to give to another speaker."); return; }
  const now = new Set(list.map((w) => page.owner[w]));
  const others = page.speakers.filter((one) => now.size > 1 || !now.has(one.who));
  const who = await pick(title, shortened(list.map((w) => page.texts[w]).join("").trim()),
    [...others.map((one) => speakerChoice(one.who)), NEW_SPEAKER]);
  if (who !== null) await move(list, who);
}

/** Give words to a speaker, maybe a new one, after other corrections of them.
    @param {number[]} list @param {number} who @param {Correction[]} before */
async function move(list, who, ...before) {
  const pieces = piecesOf(transcript, list);
  if (who !== NEW) take(...before, { kind: "move", who, pieces });
  else {
    const name = await askNew();
    if (name === null) return;
    const fresh = countAll(transcript, edits.steps.flat()); // others may have added a speaker meanwhile
    /** @type {Correction[]} */
    const named = name ? [{ kind: "name", who: fresh, name }] : [];
    take(...before, { kind: "new", who: fresh, pieces }, ...named);
  }
  const w = list.find((one) => page.place[one] >= 0);
  if (w !== undefined) reveal(w);
}

const NEW = -2;
const NEW_SPEAKER = { value: NEW, label: "A new speaker…" };

/** Ask for the name of a new speaker, "" for none; null: no new speaker. */
async function askNew() {
  let name = /** @type {string | null} */ (null);
  await ask("Who is the new speaker?", "Name; leave it empty if you do not know it", "", (text) => {
    if (text.trim() && checkName(text) === null) return BAD_NAME;
    name = text.trim() && checkName(text);
    return null;
  });
  return name;
}

/** @param {number} number of a paragraph */
export async function speakerMenu(number) {
  if (refused()) return;
  const paragraph = page.paragraphs[number];
  const { who } = paragraph;
  /** @type {{ value: number | "fill" | "name" | "merge" | "edges", label: string, who?: number }[]} */
  const choices = [];
  if (!paragraph.words.length && paragraph.gap >= 0) choices.push({ value: "fill", label: "Write what was said…" });
  if (who >= 0) {
    choices.push({ value: "name", label: `Rename ${nameOf(who)} everywhere…` });
    if (page.speakers.length > 1) choices.push({ value: "merge", label: `Merge ${nameOf(who)} with…` });
  }
  if (paragraph.words.length) {
    for (const one of page.speakers) {
      if (one.who !== who) {
        choices.push({ ...speakerChoice(one.who), label: `${nameOf(one.who)} said this paragraph` });
      }
    }
    choices.push({ ...NEW_SPEAKER, label: "A new speaker said this paragraph…" });
    choices.push({ value: "edges", label: "Move its start and end on the timeline" });
  }
  if (!choices.length) { toast("No single speaker talks for most of this time."); return; }
  const done = await pick(`${speakerOf(paragraph)}, ${clock(paragraph.start)}`, "", choices);
  if (done === "fill") fillIn(paragraph);
  else if (done === "name") await askName(who);
  else if (done === "merge") await askMerge(who);
  else if (done === "edges") showEdges(number);
  else if (done !== null) await move(paragraph.words, done);
}

/* ---------- words ---------- */

/** Write what was said in speech without words. @param {Paragraph} paragraph */
export function fillIn(paragraph) {
  if (!refused()) writeIn(page.paragraphs.indexOf(paragraph));
}

on("ownerless", async (gap, text) => {
  const choices = [...page.speakers.map((one) => speakerChoice(one.who)), NEW_SPEAKER];
  const who = await pick("Who said it?", shortened(text), choices);
  if (who === null) { tell("steps", false); return; }
  await move([transcript.gapWord[gap]], who, { kind: "fill", gap, text });
});

/** Write where the first selected word is, or the one that is heard. */
export function fix() {
  if (refused()) return;
  const w = chosenWords()[0] ?? page.playing;
  const here = page.paragraphs[paragraphNow()];
  if (w < 0 && here && !here.words.length && here.gap >= 0) { fillIn(here); return; }
  const at = w >= 0 ? w : here?.words[0] ?? -1;
  if (at < 0) { toast("There are no words to correct."); return; }
  unchoose();
  writeAt(at);
}

/** The word to which the last press has led. */
let stoppedAt = -1;

/** Stop, and write at the word that was just heard; pressed again, at the one before it, or with 1 after it. @param {number} [by] */
export function fixHeard(by = -1) {
  if (refused()) return;
  settle();
  const { order, place } = page, w = wordNow(), again = audio.paused && w >= 0 && w === stoppedAt;
  stoppedAt = again ? order[Math.min(order.length - 1, Math.max(0, place[w] + by))]
    : justHeard(page, words, page.position, !audio.paused, page.doubts || 1);
  audio.pause();
  if (stoppedAt < 0) { toast("There are no words to correct."); return; }
  unchoose();
  writeAt(stoppedAt);
}

/** Give the words that are selected, written in or heard to a speaker, by the number in the list. @param {number} number */
export function give(number) {
  const one = page.speakers[number - 1];
  if (!one || refused()) return;
  settle();
  const w = wordNow(), some = wordsAcross();
  const list = some.length ? some : w >= 0 ? page.paragraphs[page.paragraphOf[w]].words : meant();
  if (!list.length || list.every((each) => page.owner[each] === one.who)) return;
  take({ kind: "move", who: one.who, pieces: piecesOf(transcript, list) });
  toast(`${nameOf(one.who)} said this.`);
}

/** Take out the selected words. */
export function erase() {
  const list = chosenWords();
  if (!list.length || refused()) return;
  take({ kind: "text", text: "", pieces: piecesOf(transcript, list) });
}
