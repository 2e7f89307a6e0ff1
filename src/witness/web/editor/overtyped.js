// @ts-check
/* What is typed over words of several paragraphs -> the corrections that it comes to. */
import { letters, retyped } from "./retyped.js";
import { piecesOf } from "./transcript.js";
/** @import { Correction } from "./corrections.js" */
/** @import { Derived } from "./derive.js" */
/** @import { Prepared } from "./transcript.js" */

/**
 * What is left of some fields, each of which shows words of one speaker. `into`: the field in which the text goes on;
 * `list`: the words whose place that has; `lead` and `tail`: what is left of their text; `inside`: whether both are parts
 * of a word; `rest`: what is left of the last field, if it stays apart; `gone`: all other words; `none`: whether nothing but
 * what is between two fields is selected.
 * @typedef {{ fields: readonly (readonly number[])[], into: number, to: number, list: number[], lead: string, tail: string,
 *   inside: boolean, rest: { list: readonly number[], text: string } | null, gone: number[], apart: boolean, none: boolean }} Over
 */

/**
 * @param {Prepared} transcript
 * @param {Pick<Derived, "texts" | "owner">} page
 * @param {readonly (readonly number[])[]} fields the words of each
 * @param {string} before what is not selected of the first field
 * @param {string} after what is not selected of the last one
 * @param {boolean} [apart] whether what is left of the last one stays a paragraph
 * @returns {Over}
 */
export function over({ words }, { texts, owner }, fields, before, after, apart = false) {
  const textOf = (/** @type {number} */ n) => fields[n].map((w) => texts[w]).join("").trimStart();
  const whole = (/** @type {number} */ n, /** @type {string} */ left) => letters(left) >= letters(textOf(n));
  let into = 0, to = fields.length - 1, lead = before, tail = after;
  if (to > 0 && whole(0, lead)) { into = 1; lead = ""; } // nothing of it is selected
  if (to > 0 && whole(to, tail)) { to -= 1; tail = ""; }
  const none = into > to;
  if (none) { into = 0; to = 0; lead = before; }
  const first = fields[into][0];
  const mine = (/** @type {number} */ w) => owner[w] === owner[first] && words.track[w] === words.track[first];
  const parted = to > into && (apart || !mine(fields[to][0]));
  const some = fields.slice(into, parted ? to : to + 1).flat();
  return {
    fields, into, to, lead, tail: parted ? "" : tail, apart, none,
    inside: /^\S/u.test(textOf(into).slice(lead.length)) && /\S$/u.test(textOf(to).slice(0, -tail.length || undefined)),
    list: some.filter(mine), gone: some.filter((w) => !mine(w)),
    rest: parted ? { list: fields[to], text: tail } : null,
  };
}

/** The word with which a paragraph is to begin; undefined: none is left. @param {Over} given @param {(w: number) => string} textOf */
export function beginning({ fields, into, lead }, textOf) {
  let left = letters(lead);
  return fields.slice(into).flat().find((w) => {
    const here = left <= 0 && textOf(w) !== "";
    left -= letters(textOf(w));
    return here;
  });
}

/**
 * What makes these texts of words.
 * @param {Prepared} transcript
 * @param {readonly string[]} texts of all words now
 * @param {ReadonlyMap<number, string>} wanted
 * @returns {Correction[]}
 */
export function rewriting(transcript, texts, wanted) {
  const changed = [...wanted].filter(([w, text]) => text !== texts[w].trim());
  const gone = changed.filter(([, text]) => !text).map(([w]) => w);
  /** @type {Correction[]} */
  const made = changed.filter(([, text]) => text)
    .map(([w, text]) => ({ kind: "text", text, pieces: piecesOf(transcript, [w]) }));
  return gone.length ? [...made, { kind: "text", text: "", pieces: piecesOf(transcript, gone) }] : made;
}

/** Words -> what each of them is once their text is another. @param {readonly string[]} texts @param {readonly number[]} list @param {string} text */
export function respelled(texts, list, text) {
  const now = retyped(list.map((w) => texts[w]), text);
  return new Map(list.map((w, n) => [w, now[n]]));
}

/**
 * What it comes to once the field says `text`: what the same person says before and after is one paragraph then.
 * @param {Prepared} transcript
 * @param {Pick<Derived, "texts" | "owner" | "paragraphOf">} page
 * @param {Over} given
 * @param {string} text
 * @returns {Correction[]}
 */
export function overtyped(transcript, { texts, owner, paragraphOf }, given, text) {
  const { track } = transcript.words;
  const wanted = new Map([...respelled(texts, given.list, text), ...given.gone.map((w) => /** @type {const} */ ([w, ""])),
    ...given.rest ? respelled(texts, given.rest.list, given.rest.text) : []]);
  const textOf = (/** @type {number} */ w) => wanted.get(w) ?? texts[w].trim();
  const begins = given.apart ? beginning(given, textOf) : -1;
  const left = given.fields.flat().filter((w) => textOf(w));
  const made = rewriting(transcript, texts, wanted);
  left.slice(1).forEach((w, n) => {
    const alike = owner[w] === owner[left[n]] && track[w] === track[left[n]];
    const meant = given.apart ? w === begins : paragraphOf[w] !== paragraphOf[left[n]];
    if (alike && meant) made.push({ kind: given.apart ? "split" : "join", pieces: piecesOf(transcript, [w]) });
  });
  return made;
}
