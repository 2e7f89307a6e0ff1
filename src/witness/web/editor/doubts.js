// @ts-check
/* Words whose text or speaker is uncertain. */
import { above } from "./transcript.js";
/** @import { Derived } from "./derive.js" */
/** @import { Prepared } from "./transcript.js" */

/** Levels of marking, and the probabilities below which they mark a word, in percent: of those below 50 more are wrong than right
    (docs/benchmarks.md, "How sure a word is"). @type {[string, number][]} */
export const LEVELS = [["off", 0], ["few", 50], ["many", 80]];
const UNSURE = 60; // percent; below it a word is marked

/** Return whether a word is marked at a level. A word that a person has rewritten is not doubtful anymore.
    @param {Pick<Derived, "texts">} page @param {Prepared["words"]} words @param {number} w @param {number} level */
export function isDoubtful(page, words, w, level) {
  const told = words.probability[w];
  return told >= 0 && told < LEVELS[level][1] && page.texts[w] === words.text[w];
}

/** Return whether a word's speaker is uncertain and not corrected yet.
    @param {Pick<Derived, "touched">} page @param {Prepared["words"]} words @param {number} w */
export function isUnsure(page, words, w) {
  return words.sure[w] >= 0 && words.sure[w] < UNSURE && !page.touched.has(w);
}

/** The places of doubtful words in reading order.
    @param {Pick<Derived, "texts" | "order">} page @param {Prepared["words"]} words @param {number} level */
export function doubtfulPlaces(page, words, level) {
  return page.order.map((_, at) => at).filter((at) => isDoubtful(page, words, page.order[at], level));
}

/** Return the places in reading order of words with an uncertain speaker, of several in a row the first.
    @param {Pick<Derived, "touched" | "order" | "paragraphOf">} page @param {Prepared["words"]} words */
export function unsurePlaces(page, words) {
  const { order, paragraphOf } = page;
  const unsure = order.map((w) => isUnsure(page, words, w));
  return order.map((_, at) => at).filter((at) => unsure[at]
    && !(at > 0 && unsure[at - 1] && paragraphOf[order[at - 1]] === paragraphOf[order[at]]));
}

/** Return the first of some places after another, or with -1 the last before it, in a circle; -1 without places.
    @param {readonly number[]} places rising @param {number} after a place, or between two @param {number} by */
export function nextPlace(places, after, by) {
  if (!places.length) return -1;
  const next = above(places, after); // places[next] is the first one after it
  const before = next > 0 && places[next - 1] === after ? next - 2 : next - 1;
  return places.at(by > 0 ? next % places.length : before) ?? -1;
}

/** ms from the end of a word until a person who stops because of it presses a key, and by how much nearer a doubtful word counts
    (docs/decisions/2026-11-24-typist.md). */
const REACTION = 600, DOUBT = 600;

/** Return the word for which a person stops the sound: its end is nearest to the time at which they must have heard it.
    -1: there are no words.
    @param {Pick<Derived, "texts" | "order">} page @param {Prepared["words"]} words @param {number} ms where the sound is
    @param {boolean} playing whether it ran until now; if it stands still, it is about what was said last
    @param {number} level of doubt */
export function justHeard(page, words, ms, playing, level) {
  let found = -1, least = Infinity;
  for (const w of page.order) {
    if (words.start[w] > ms) continue;
    const away = playing ? Math.abs(ms - REACTION - words.end[w]) : Math.max(0, ms - words.end[w]);
    const counted = away - (isDoubtful(page, words, w, level) ? DOUBT : 0);
    if (counted > least) continue;
    found = w;
    least = counted;
  }
  return found >= 0 ? found : page.order[0] ?? -1;
}
