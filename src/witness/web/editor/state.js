// @ts-check
/* The state of the page: the transcript, the steps that were taken, the state that follows from them, and the selection,
   the matches and the position. What people said, their names and those of files reach the document through textContent only. */
import { derive } from "./derive.js";
import { $, toast } from "./dom.js";
import { Edits } from "./edits.js";
import { prepare } from "./transcript.js";
import { areSteps } from "./corrections.js";
import { keep, kept } from "./storage.js";
/** @import { Correction } from "./corrections.js" */
/** @import { Derived } from "./derive.js" */
/** @import { Mine, Review } from "./edits.js" */
/** @import { Range } from "./matches.js" */

/**
 * The server's part of the page, which saves the corrections in the transcript; a page that is a file has none.
 * @typedef {{
 *   soundless: string, readonly version: string, readonly refusal: string | null, readonly noting: boolean, open: (draft: Kept | null) => void,
 *   changed: () => void, save: () => void, voice: (words: number[]) => void, upTo: () => void,
 *   remember: (who: number) => Promise<void>, codes: () => Promise<string[]>,
 * }} Desk `soundless`: why there is no sound; `version`: of the transcript that this page has seen;
 *   `refusal`: why nothing can be saved, `noting`: but notes; `upTo`: note that all before here is corrected;
 *   `codes`: of all its transcripts
 */

export const transcript = prepare(JSON.parse($("data").textContent));
export const { data, words, silent } = transcript;
export const edits = new Edits();

/** The state that follows from the steps, once `deriveNow` has been called, and the view of it. */
export const page = /** @type {Derived & { [Key in keyof typeof shown]: (typeof shown)[Key] }} */ ({});
const shown = {
  desk: /** @type {Desk | null} */ (null),
  chosen: /** @type {Range | null} */ (null), // the selection, in reading order
  hits: /** @type {Range[]} */ ([]), // matches of the search
  hitNow: -1, // the one that is shown
  position: data.start, // ms in the recording, even without sound
  playing: -1, // the word that is being spoken
  doubts: 0, // how many doubtful words are marked: a place in LEVELS of doubts.js
  following: true, // scroll along with it
  hasSound: false,
  suggestions: /** @type {Map<number, { name: string, sure: boolean }>} */ (new Map()), // whom speakers sound like
  pending: /** @type {Correction[]} */ ([]), // the step that what is being typed would be
  typing: false, // whether something was typed that is not a step yet
  composing: false, // whether a word is being composed, as in Japanese
  adopting: false, // whether the steps of others are being shown
  writing: false, // whether the text is there to be written in
};
Object.assign(page, shown);

export function deriveNow() {
  Object.assign(page, derive(transcript, edits.steps));
}

/* ---------- events ---------- */

/**
 * Events of the page, with their values. `steps` were taken or undone, `onlyNames`: nothing but names changed; `position`: it
 * is another one in the sound; `drawn`: the timeline was; `across`: a selection is about to go on in another paragraph;
 * `ownerless`: a text was written without a known speaker; `saved`: corrections were.
 * @typedef {{ steps: [onlyNames: boolean], position: [], drawn: [], across: [], ownerless: [gap: number, text: string], saved: [] }} Events
 */

/** @type {Record<string, ((...values: any) => void)[]>} */
const listeners = {};

/** Do something at each event of a name. @template {keyof Events} Name @param {Name} name @param {(...values: Events[Name]) => void} act */
export function on(name, act) {
  (listeners[name] ??= []).push(act);
}

/** @template {keyof Events} Name @param {Name} name @param {Events[Name]} values */
export function tell(name, ...values) {
  for (const act of listeners[name] ?? []) act(...values);
}

/* ---------- steps ---------- */

/** Return whether this cannot be corrected, because it could not be saved; the person sees the reason.
    @param {boolean} [noting] whether it is a note, which more people may save */
export function refused(noting = false) {
  const why = noting && page.desk?.noting ? null : page.desk?.refusal;
  if (why) toast(why);
  return Boolean(why);
}

/** @param {Correction[]} made */
export function take(...made) {
  if (refused(made.every((one) => one.kind === "note"))) return;
  edits.take(made);
  tell("steps", made.every((one) => one.kind === "name"));
}

export function undo() {
  if (refused() || !edits.undo()) return;
  tell("steps", false);
  toast("Undone");
}

export function redo() {
  if (refused() || !edits.redo()) return;
  tell("steps", false);
  toast("Redone");
}

/** @typedef {Mine & { review?: Review, version?: string }} Kept */

const DRAFT = `witness-draft/${data.page}`;

let isKept = true;

/** Write what is not saved, and what is being typed as a step after it. */
export function writeDraft() {
  const { base, sent, review } = edits, steps = page.pending.length ? [...edits.steps, page.pending] : edits.steps;
  const wanted = steps !== edits.steps || edits.unsaved || sent.length > 0;
  isKept = keep(DRAFT, wanted ? JSON.stringify({ steps, base, sent, review, version: page.desk?.version }) : null);
}

export function keepDraft() {
  writeDraft();
  page.desk?.changed();
}

export function forgetDraft() {
  keep(DRAFT, null);
}

/** Take up the corrections that were not saved when the page was closed, and return what was kept, or null.
    @returns {Kept | null} */
export function restoreDraft() {
  try {
    const draft = JSON.parse(kept(DRAFT) ?? "null");
    if (!draft || ![draft.steps, draft.base, ...draft.sent].every((list) => areSteps(transcript, list))) return null;
    edits.adopt(draft.steps, [], draft.base);
    return draft;
  } catch {
    return null;
  }
}

window.addEventListener("beforeunload", (event) => {
  if (edits.unsaved && !isKept) event.preventDefault();
});
