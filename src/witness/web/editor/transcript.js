// @ts-check
/* The data of the file, made ready for corrections. Times are milliseconds; speakers and words are numbers, their
   places in the lists of the data. */
/** @import { Correction } from "./corrections.js" */

/** The first place in `sorted` whose value is greater than `value`.
    @param {ArrayLike<number>} sorted @param {number} value @param {number} [length] of the part of it that counts */
export function above(sorted, value, length = sorted.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

/**
 * @typedef {{ start: number[], end: number[], speaker: number[] }} Turns columns, in order
 * @typedef {Turns & { text: string[], sure: number[], flags: number[], track: number[], probability: number[],
 *   language: number[] }} Words columns, in order; `sure`: percent, who said it; `probability`: percent, that it is
 *   right; `language`: its place in the list of languages; -1: not known
 * @typedef {Turns & { track: number[], mark: string[] }} Silent speech without words, columns; `mark`: what is in
 *   their place
 * @typedef {{ pause: number, phrase: number, shortest: number, longest: number, breath: number, ends: string,
 *   closing: string }} Grouping
 * @typedef {{
 *   title: string, schema: string, sha256: string, page: string, start: number, end: number,
 *   languages: [string, boolean][], listened: boolean, speakers: [string, string | null][],
 *   first: number, next: number, grouping: Grouping,
 *   turns: Turns, words: Words, silent: Silent, before?: Correction[], peaks: string | null, link: string | null,
 *   served?: Record<string, any>,
 * }} Data as formats/html.py writes it
 * @typedef {[number, number][]} Pieces of time, in ms
 * @typedef {ReturnType<typeof prepare>} Prepared
 */

/* Flags of a word. */
export const OVERLAP = 1;
export const UNSUPPORTED = 2;
export const SPLIT = 4; // a person began a paragraph with it
export const JOINED = 8; // or joined it with the one before

/** The words with a place for each stretch of speech without words, which is empty until a person fills it in.
    @param {Data} data */
export function prepare(data) {
  const { silent } = data;
  const gaps = data.listened ? silent.start.length : 0;
  const many = data.words.text.length;
  const columns = {
    ...data.words,
    /** Word -> stretch; -1: a word that was recognized. */
    gap: /** @type {number[]} */ (Array(many).fill(-1)),
  };
  const words = gaps ? inOrder(columns, silent, gaps) : columns;
  const gapWord = /** @type {number[]} */ (Array(gaps).fill(-1)); // stretch -> word
  words.gap.forEach((n, w) => { if (n >= 0) gapWord[n] = w; });

  /** @type {number[]} */
  const placeInTrack = []; // word -> its place among the words of its track
  const wordsOfTrack = new Map();
  for (const track of words.track) {
    const count = wordsOfTrack.get(track) ?? 0;
    placeInTrack.push(count);
    wordsOfTrack.set(track, count + 1);
  }
  const middles = words.text.map((_, w) => (words.start[w] + words.end[w]) / 2);
  const byMiddle = middles.map((_, w) => w).sort((a, b) => middles[a] - middles[b] || a - b);
  const sortedMiddles = byMiddle.map((w) => middles[w]);
  const rank = new Int32Array(middles.length); // word -> its place in byMiddle
  byMiddle.forEach((w, n) => { rank[w] = n; });
  return { data, words, silent, gapWord, placeInTrack, byMiddle, sortedMiddles, rank };
}

/**
 * @template {Words & { gap: number[] }} Columns
 * @param {Columns} columns
 * @param {Silent} silent
 * @param {number} gaps
 * @returns {Columns}
 */
function inOrder(columns, silent, gaps) {
  const empty = Array(gaps).fill(0);
  const places = {
    text: empty.map(() => ""), start: silent.start, end: silent.end, speaker: silent.speaker,
    sure: empty.map(() => -1), flags: empty, track: silent.track, gap: empty.map((_, n) => n),
    probability: empty.map(() => -1), language: empty.map(() => -1),
  };
  const start = [...columns.start, ...places.start];
  const sorted = start.map((_, w) => w).sort((a, b) => start[a] - start[b] || a - b);
  const merged = Object.entries(places).map(([name, more]) => {
    const all = [.../** @type {any} */ (columns)[name], ...more];
    return [name, sorted.map((w) => all[w])];
  });
  return Object.fromEntries(merged);
}

/** The language of most of these words, its place in the list of languages; of two as frequent the first; -1: none.
    @param {Prepared} transcript @param {readonly number[]} chosen words */
export function languageOf({ words }, chosen) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const w of chosen) {
    const language = words.language[w];
    if (language >= 0) counts.set(language, (counts.get(language) ?? 0) + 1);
  }
  return [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), [-1, 0])[0];
}

/** Pieces of time that contain the middles of these words and of no others.
    @param {Prepared} transcript @param {readonly number[]} chosen words */
export function piecesOf({ rank, sortedMiddles }, chosen) {
  /** @type {Pieces} */
  const pieces = [];
  let before = -2;
  for (const at of chosen.map((w) => rank[w]).sort((a, b) => a - b)) {
    if (at === before + 1) pieces[pieces.length - 1][1] = sortedMiddles[at] + 1;
    else pieces.push([sortedMiddles[at] - 1, sortedMiddles[at] + 1]);
    before = at;
  }
  return pieces;
}

/** The words with their middle in the pieces, which are those that `witness redo` will find there.
    @param {Prepared} transcript @param {Pieces} pieces */
export function wordsIn({ byMiddle, sortedMiddles }, pieces) {
  /** @type {Set<number>} */
  const inside = new Set();
  for (const [start, end] of pieces) {
    for (let place = above(sortedMiddles, start - 1e-6); place < byMiddle.length; place += 1) {
      if (sortedMiddles[place] > end) break;
      inside.add(byMiddle[place]);
    }
  }
  return [...inside].sort((a, b) => a - b);
}

/** Return the label of a speaker: `Speaker 1` for SPEAKER_01. @param {string} id */
export const called = (id) => id.replace(/^(?:CH\d+_)?SPEAKER_0*(\d+)$/, "Speaker $1");
