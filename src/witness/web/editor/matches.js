// @ts-check
/* Searching in all words, and replacing them. */
import { above, piecesOf } from "./transcript.js";
import { checkText } from "./corrections.js";
/** @import { Correction } from "./corrections.js" */
/** @import { Derived } from "./derive.js" */
/** @import { Prepared } from "./transcript.js" */

/**
 * @typedef {[number, number]} Range the first and the last, places in reading order
 * @typedef {{ text: string, at: Float64Array }} Haystack all words in lower case, and where in it each of them begins
 */

/** @param {Pick<Derived, "order" | "texts" | "paragraphOf">} shown @returns {Haystack} */
export function haystackOf({ order, texts, paragraphOf }) {
  const at = new Float64Array(order.length + 1);
  /** @type {string[]} */
  const parts = [];
  let length = 0, paragraph = -1;
  order.forEach((w, n) => {
    let text = texts[w].toLocaleLowerCase();
    if (paragraphOf[w] !== paragraph) {
      paragraph = paragraphOf[w];
      text = `\n${text.trimStart()}`;
    }
    at[n] = length + text.length - text.trimStart().length;
    parts.push(text);
    length += text.length;
  });
  at[order.length] = length;
  return { text: parts.join(""), at };
}

/** Return the places of a text, in capitals or not; matches do not overlap. @param {Haystack} haystack @param {string} query */
export function matchesOf(haystack, query) {
  const wanted = query.trim().toLocaleLowerCase().replace(/\s+/g, " ");
  const count = haystack.at.length - 1;
  /** @type {Range[]} */
  const found = [];
  if (!wanted) return found;
  for (let at = haystack.text.indexOf(wanted); at >= 0; at = haystack.text.indexOf(wanted, at + 1)) {
    const first = Math.max(0, above(haystack.at, at, count) - 1);
    const end = Math.max(first, above(haystack.at, at + wanted.length - 1, count) - 1);
    if (!found.length || found[found.length - 1][1] < first) found.push([first, end]);
  }
  return found;
}

/** The match that the word at a place of the reading order belongs to, or -1.
    @param {readonly Range[]} matches @param {number} at */
export function matchAt(matches, at) {
  let low = 0, high = matches.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (matches[middle][1] < at) low = middle + 1; else high = middle;
  }
  return low < matches.length && matches[low][0] <= at ? low : -1;
}

/** Return the pattern that finds a text within a match. @param {string} query */
export function patternOf(query) {
  return new RegExp(query.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"), "giu");
}

const split = (/** @type {string} */ text) => text.split(/\s+/).filter(Boolean);

/** Return the corrections that replace the pattern in a match; none if they would change nothing.
    @param {Prepared} transcript @param {Pick<Derived, "order" | "texts">} shown @param {Range} match @param {RegExp} pattern
    @param {string} by @returns {Correction[]} */
export function replacing(transcript, { order, texts }, [first, end], pattern, by) {
  const list = order.slice(first, end + 1);
  const before = list.map((w) => texts[w]).join("").trim();
  const after = before.replace(pattern, () => by).trim();
  const each = split(after);
  if (after === before || checkText(after)) return [];
  const alike = each.length === list.length && list.every((w) => split(texts[w]).length === 1);
  if (!alike) return [{ kind: "text", text: after, pieces: piecesOf(transcript, list) }];
  const pairs = list.map((w, n) => /** @type {[number, string]} */ ([w, each[n]]));
  return pairs.filter(([w, text]) => text !== texts[w].trim())
    .map(([w, text]) => ({ kind: "text", text, pieces: piecesOf(transcript, [w]) })); // each keeps its time
}
