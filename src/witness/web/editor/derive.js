// @ts-check
/* Corrections are a list of steps, and all else follows from it as it does in `witness redo`: in the order of
   witness/transcript/corrections.py (`apply`). tests/data/page_cases.json holds the two
   equal. */
import { countAll } from "./corrections.js";
import { group } from "./paragraphs.js";
import { inReadingOrder } from "./reading.js";
import { JOINED, SPLIT, UNSUPPORTED, wordsIn } from "./transcript.js";
/** @import { Correction, Step } from "./corrections.js" */
/** @import { Paragraph } from "./paragraphs.js" */
/** @import { Pieces, Prepared, Turns } from "./transcript.js" */

/** @typedef {ReturnType<typeof derive>} Derived */

/**
 * The speaker whom somebody was merged with, or they themselves.
 * @param {ArrayLike<number>} same speaker -> the speaker it was merged with, or itself
 * @param {number} who
 */
export function last(same, who) {
  let found = who;
  while (same[found] !== found) found = same[found];
  return found;
}

/**
 * @param {Prepared} transcript
 * @param {readonly Step[]} steps
 */
export function derive(transcript, steps) {
  const { data, words, gapWord } = transcript;
  const made = steps.flat();
  const texts = words.text.slice(); // word -> text, "" if it was removed
  const heard = words.flags.map((flags) => !(flags & UNSUPPORTED)); // word -> whether somebody was heard speaking
  /** The words that a step changed. @type {Set<number>} */
  const touched = new Set();
  /** The stretches without words of which somebody wrote what was said. @type {Set<number>} */
  const filled = new Set();
  for (const one of made) {
    if (one.kind !== "fill") continue;
    texts[gapWord[one.gap]] = ` ${one.text}`;
    touched.add(gapWord[one.gap]);
    filled.add(one.gap);
  }
  let owner = words.speaker.slice(); // word -> speaker, -1: nobody
  let { turns } = data;
  /** The words there that are some: recognized, or written by somebody. @param {Pieces} pieces */
  const said = (pieces) => wordsIn(transcript, pieces).filter((w) => words.gap[w] < 0 || filled.has(words.gap[w]));
  const tracks = made.some((one) => one.kind === "new") ? [...new Set(words.track)].sort((a, b) => a - b) : [];
  for (const track of tracks) {
    for (const one of made) {
      if (one.kind !== "new") continue;
      const mine = said(one.pieces).filter((w) => words.track[w] === track);
      turns = withSpeaker(transcript, turns, owner, mine, one.who);
      for (const w of mine) {
        owner[w] = one.who;
        heard[w] = true;
        touched.add(w);
      }
    }
  }
  const same = Array.from({ length: countAll(transcript, made) }, (_, who) => who);
  for (const one of made) {
    if (one.kind !== "merge") continue;
    const stays = last(same, one.who), goes = last(same, one.gone);
    if (stays !== goes) same[goes] = stays;
  }
  owner = owner.map((who) => (who < 0 ? -1 : last(same, who)));
  for (const one of made) {
    if (one.kind !== "move") continue;
    for (const w of said(one.pieces)) {
      owner[w] = last(same, one.who);
      heard[w] = true;
      touched.add(w);
    }
  }
  for (const one of made) {
    if (one.kind !== "text") continue;
    const begun = new Set(); // tracks: words of two that are said at once cannot be told apart by their times
    for (const w of said(one.pieces)) {
      const text = words.gap[w] < 0 ? words.text[w] : " "; // what somebody wrote begins with one
      const space = text.slice(0, text.length - text.trimStart().length);
      texts[w] = one.text && !begun.has(words.track[w]) ? space + one.text : "";
      begun.add(words.track[w]);
      touched.add(w);
    }
  }
  /** Word -> whether somebody said that a paragraph begins with it, or that none does. @type {Map<number, boolean>} */
  const begins = new Map();
  words.flags.forEach((flags, w) => { if (flags & (SPLIT | JOINED)) begins.set(w, Boolean(flags & SPLIT)); });
  for (const one of made) {
    if (one.kind !== "split" && one.kind !== "join") continue;
    const marked = new Set(); // tracks
    for (const w of said(one.pieces)) {
      if (!marked.has(words.track[w])) begins.set(w, one.kind === "split");
      marked.add(words.track[w]);
    }
  }
  const names = /** @type {(string | null)[]} */ (same.map(() => null));
  data.speakers.forEach(([, name], who) => {
    if (name && names[last(same, who)] === null) names[last(same, who)] = name;
  });
  for (const one of made) if (one.kind === "name") names[last(same, one.who)] = one.name;
  const speakers = shares(turns, same);
  const all = [...(data.before ?? []), ...made];
  const paragraphs = group(transcript, { texts, owner, heard, filled, same, begins });
  retime(paragraphs, all, said);
  const notes = notesOf(all, said);
  const noted = new Set(notes.flatMap((note) => note.words));
  const reading = inReadingOrder(paragraphs, texts.length);
  return { turns, same, names, owner, texts, heard, touched, filled, speakers, paragraphs, notes, noted, ...reading };
}

/**
 * Let paragraphs begin and end where somebody said, as corrections.timed does.
 * @param {Paragraph[]} paragraphs
 * @param {readonly Correction[]} made
 * @param {(pieces: Pieces) => number[]} said
 */
function retime(paragraphs, made, said) {
  if (!made.some(({ kind }) => kind === "start" || kind === "end")) return;
  for (const kind of /** @type {const} */ (["start", "end"])) {
    const edges = new Map(paragraphs.map((one) => [one.words.at(kind === "start" ? 0 : -1) ?? -1, one]));
    for (const one of made) {
      if (one.kind !== kind) continue;
      const paragraph = edges.get(said(one.pieces).find((w) => edges.has(w)) ?? -2);
      if (!paragraph) continue;
      if (kind === "start") paragraph.start = Math.min(one.at, paragraph.end);
      else paragraph.end = Math.max(one.at, paragraph.start);
    }
  }
  paragraphs.sort((a, b) => a.start - b.start || a.end - b.end);
}

/**
 * What somebody noted of words; of several notes on the same words the last one counts.
 * @typedef {{ words: number[], pieces: Pieces, text: string, codes: string[] }} Note
 * @param {readonly Correction[]} made
 * @param {(pieces: Pieces) => number[]} said
 */
function notesOf(made, said) {
  /** @type {Map<string, Note>} */
  const latest = new Map();
  for (const one of made) {
    if (one.kind !== "note") continue;
    const some = said(one.pieces), key = JSON.stringify(some.length ? some : one.pieces);
    latest.delete(key);
    if (one.text !== null) latest.set(key, { words: some, pieces: one.pieces, text: one.text, codes: one.codes });
  }
  return [...latest.values()].sort((a, b) => a.pieces[0][0] - b.pieces[0][0]);
}

/**
 * The turns with a speaker who was missing, as corrections.add has it: they talk where their words are, and whoever
 * had these words before does not.
 * @param {Prepared} transcript
 * @param {Turns} turns
 * @param {readonly number[]} owner of each word, before
 * @param {readonly number[]} mine the words, of one track
 * @param {number} who
 * @returns {Turns}
 */
function withSpeaker({ data, words, placeInTrack }, turns, owner, mine, who) {
  /** @type {number[][]} */
  const runs = [];
  for (const w of mine) {
    const before = runs.at(-1)?.at(-1);
    const goesOn = before !== undefined && owner[before] === owner[w]
      && placeInTrack[before] + 1 === placeInTrack[w] && words.start[w] - words.end[before] < data.grouping.breath;
    if (goesOn) runs[runs.length - 1].push(w); else runs.push([w]);
  }
  let left = turns.start.map((start, n) => [start, turns.end[n], turns.speaker[n]]);
  for (const run of runs) {
    const start = words.start[run[0]];
    const end = Math.max(words.end[run[run.length - 1]], start + 1);
    left = left.flatMap(([from, to, speaker]) => (speaker !== owner[run[0]] ? [[from, to, speaker]]
      : [[from, Math.min(start, to), speaker], [Math.max(end, from), to, speaker]].filter(([a, b]) => a < b)));
    left.push([start, end, who]);
  }
  left.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return { start: left.map((turn) => turn[0]), end: left.map((turn) => turn[1]), speaker: left.map((turn) => turn[2]) };
}

/**
 * Those who are left, with how long they speak, in ms, and their share of it.
 * @param {Turns} turns
 * @param {readonly number[]} same
 */
function shares(turns, same) {
  /** @type {Map<number, number>} */
  const spoken = new Map();
  const end = new Map();
  turns.start.forEach((start, turn) => { // in order of their starts; what overlaps counts once
    const who = last(same, turns.speaker[turn]);
    const from = Math.max(start, end.get(who) ?? 0);
    spoken.set(who, (spoken.get(who) ?? 0) + Math.max(0, turns.end[turn] - from));
    end.set(who, Math.max(end.get(who) ?? 0, turns.end[turn]));
  });
  const total = [...spoken.values()].reduce((sum, ms) => sum + ms, 0) || 1;
  return same.map((_, who) => who).filter((who) => same[who] === who && spoken.has(who)).map((who) => {
    const ms = spoken.get(who) ?? 0;
    return { who, ms, share: ms / total };
  });
}
