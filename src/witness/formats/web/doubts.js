// @ts-check
/* Words that the recognizer was not sure of. */
import { above } from "./arrays.js";
/** @import { Derived } from "./derive.js" */
/** @import { Prepared } from "./transcript.js" */

/** How many are marked, and below which probability, in percent: of those below 50 more are wrong than right
    (docs/benchmarks.md, "How sure a word is"). @type {[string, number][]} */
export const LEVELS = [["off", 0], ["few", 50], ["many", 80]];

/**
 * Whether a word is marked at a level. One that a person has rewritten is not doubtful any more.
 * @param {Pick<Derived, "texts">} page
 * @param {Prepared["words"]} words
 * @param {number} w
 * @param {number} level
 */
export function isDoubtful(page, words, w, level) {
  const told = words.probability[w];
  return told >= 0 && told < LEVELS[level][1] && page.texts[w] === words.text[w];
}

/**
 * The place in reading order of the next doubtful word after a moment, or with -1 of the last one before it; from
 * the end it goes on at the beginning. -1: there is none.
 * @param {Pick<Derived, "texts" | "order">} page
 * @param {Prepared["words"]} words
 * @param {number} level
 * @param {number} after a place in reading order, or between two
 * @param {number} by
 */
export function nextDoubtful(page, words, level, after, by) {
  const places = page.order.map((_, at) => at).filter((at) => isDoubtful(page, words, page.order[at], level));
  if (!places.length) return -1;
  const next = above(places, after); // places[next] is the first one after it
  const before = next > 0 && places[next - 1] === after ? next - 2 : next - 1;
  return places.at(by > 0 ? next % places.length : before) ?? -1;
}
