// @ts-check
/* Corrections in the terms of the page, and as the file that `witness redo --corrections` reads. */
/** @import { Pieces, Prepared, Turns } from "./transcript.js" */

/**
 * @typedef {{ kind: "name", who: number, name: string }
 *   | { kind: "merge", who: number, gone: number }
 *   | { kind: "move" | "new", who: number, pieces: Pieces }
 *   | { kind: "text", text: string, pieces: Pieces }
 *   | { kind: "split" | "join", pieces: Pieces }
 *   | { kind: "start" | "end", pieces: Pieces, at: number }
 *   | { kind: "note", pieces: Pieces, text: string | null, codes: string[] }
 *   | { kind: "fill", gap: number, text: string }} Correction
 * @typedef {Correction[]} Step corrections that are taken and undone together
 */

const ANCHORS = 10; // turns that a speaker is remembered by, as in witness/transcript/corrections.py
const LONGEST_NAME = 100, LONGEST_TEXT = 10000;
export const BAD_NAME = `A name has 1 to ${LONGEST_NAME} printable characters.`;

/** The name as Witness accepts it, or null. @param {string} text */
export function checkName(text) {
  const name = text.normalize("NFC").trim();
  const bad = !name || [...name].length > LONGEST_NAME || /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(name);
  return bad ? null : name;
}

/** Return the fault of a text that a person wrote, or null. @param {string} text */
export function checkText(text) {
  const bad = [...text].length > LONGEST_TEXT || /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text);
  return bad ? `No more than ${LONGEST_TEXT} characters, and no line breaks.` : null;
}

/** The number of speakers, with those who were merged and those whom these corrections add.
    @param {Prepared} transcript @param {readonly Correction[]} made */
export function countAll({ data }, made) {
  return data.speakers.length + made.filter((one) => one.kind === "new").length;
}

/** @param {unknown} n @param {number} end */
export function isWhole(n, end) {
  return Number.isInteger(n) && Number(n) >= 0 && Number(n) < end;
}

/** Return whether these are steps of this page: other files may write in this one's storage of the browser, and other programs in that of the
    desk keeps.
    @param {Prepared} transcript @param {any} list @returns {list is Step[]} */
export function areSteps({ data, gapWord }, list) {
  let count = data.speakers.length;
  const isCorrection = (/** @type {any} */ made) => {
    const places = Array.isArray(made.pieces) && made.pieces.length > 0
      && made.pieces.every((/** @type {any} */ piece) => piece.length === 2 && piece.every(Number.isFinite));
    switch (made.kind) {
      case "name": return isWhole(made.who, count) && checkName(made.name) === made.name;
      case "merge": return isWhole(made.who, count) && isWhole(made.gone, count);
      case "move": return isWhole(made.who, count) && places;
      case "new": count += 1; return made.who === count - 1 && places;
      case "split": case "join": return places;
      case "start": case "end": return places && Number.isFinite(made.at) && made.at >= 0;
      case "note": return places && made.codes.every((/** @type {any} */ code) => checkName(code) === code)
        && (made.text === null || checkText(made.text.replaceAll("\n", "")) === null);
      case "text": return checkText(made.text) === null && places;
      case "fill": return isWhole(made.gap, gapWord.length) && made.text !== "" && checkText(made.text) === null;
      default: return false;
    }
  };
  try {
    return list.every((/** @type {any} */ step) => step.every(isCorrection));
  } catch {
    return false;
  }
}

/** Return the longest turns of a speaker, by which they are recognized later, in order, in seconds. @param {Turns} turns @param {number} who */
function anchor(turns, who) {
  const own = turns.speaker.map((_, turn) => turn).filter((turn) => turns.speaker[turn] === who);
  own.sort((a, b) => turns.end[b] - turns.start[b] - (turns.end[a] - turns.start[a]) || a - b);
  return own.slice(0, ANCHORS).sort((a, b) => turns.start[a] - turns.start[b] || turns.end[a] - turns.end[b])
    .map((turn) => [turns.start[turn] / 1000, turns.end[turn] / 1000]);
}

/** Return the corrections of these steps, as `witness redo --corrections` reads them.
    @param {Prepared} transcript @param {Turns} turns with those of the speakers whom the steps add
    @param {readonly Step[]} steps */
export function asDocument({ data, silent }, turns, steps) {
  const seconds = (/** @type {Pieces} */ pieces) => pieces.map(([a, b]) => [a / 1000, b / 1000]);
  const ofSpeaker = ["name", "merge", "move"];
  const corrections = steps.flat().map((made) => ({
    kind: made.kind,
    speaker: made.kind === "name" || made.kind === "merge" || made.kind === "move" ? anchor(turns, made.who) : [],
    name: made.kind === "name" ? made.name : null,
    other: made.kind === "merge" ? anchor(turns, made.gone)
      : made.kind === "fill" ? seconds([[silent.start[made.gap], silent.end[made.gap]]])
        : made.kind === "name" ? [] : seconds(made.pieces),
    text: made.kind === "text" || made.kind === "fill" || made.kind === "note" ? made.text : null,
    ...(made.kind === "note" ? { codes: made.codes } : {}),
    ...(made.kind === "start" || made.kind === "end" ? { at: made.at / 1000 } : {}),
  })).filter((one) => // who has lost all speech to a new speaker can no longer be found
    (one.speaker.length || !ofSpeaker.includes(one.kind)) && (one.other.length || one.kind !== "merge"));
  return { schema: data.schema, sha256: data.sha256, recording: data.title, corrections };
}
