// @ts-check
/* What somebody typed in the place of some words -> the text that each of these words has now, so that the words which
   were left alone keep their times, and typed ones share those of the words whose place they took. */

const MOST = 250000; // pairs of words that are compared; of more, all are one passage
const ALONE = 0.7; // the cost of a word that went or came, where one that became another costs up to 1

/**
 * @param {readonly string[]} before the text of each word, with the spaces before it; at least one
 * @param {string} typed
 * @returns {string[]} the text of each now, without spaces around it; "": it went
 */
export function retyped(before, typed) {
  const bare = before.map((text) => text.trim());
  const after = typed.trim().split(/\s+/u).filter(Boolean);
  const spaced = before.some((text, n) => n > 0 && text !== text.trimStart());
  if (!spaced && before.length > 1) return unspaced(bare, after.join(" "));
  let first = 0, end = bare.length, last = after.length; // what is the same at both ends is left out
  while (first < end && first < last && bare[first] === after[first]) first += 1;
  while (end > first && last > first && bare[end - 1] === after[last - 1]) { end -= 1; last -= 1; }
  if (first > 0) first -= 1; // words that came belong to the one before
  else if (first === end && first < last) { end += 1; last += 1; }
  const changed = inPairs(bare.slice(first, end), after.slice(first, last));
  return [...bare.slice(0, first), ...changed, ...bare.slice(end)];
}

/**
 * Of a script without spaces: all between what is the same at both ends is one passage.
 * @param {readonly string[]} bare
 * @param {string} typed
 */
function unspaced(bare, typed) {
  let first = 0, end = bare.length, from = 0, to = typed.length;
  while (first < end && typed.startsWith(bare[first], from)) { from += bare[first].length; first += 1; }
  while (end > first && typed.slice(from, to).endsWith(bare[end - 1])) { end -= 1; to -= bare[end].length; }
  const now = [...bare];
  if (first === end && from < to) {
    if (first > 0) { first -= 1; from -= bare[first].length; } else { end += 1; to += bare[first].length; }
  }
  for (let n = first; n < end; n += 1) now[n] = n === first ? typed.slice(from, to).trim() : "";
  return now;
}

/**
 * The cheapest way from some words to others: which became which, which went, and which came.
 * @param {readonly string[]} before
 * @param {readonly string[]} after
 */
function inPairs(before, after) {
  const rows = before.length, columns = after.length, wide = columns + 1;
  if (!rows || rows * columns > MOST) return before.map((_, n) => (n ? "" : after.join(" ")));
  const cost = new Float64Array((rows + 1) * wide);
  for (let r = rows; r >= 0; r -= 1) {
    for (let c = columns; c >= 0; c -= 1) {
      if (r === rows && c === columns) continue;
      const went = r < rows ? cost[(r + 1) * wide + c] + ALONE : Infinity;
      const came = c < columns ? cost[r * wide + c + 1] + ALONE : Infinity;
      const changed = r < rows && c < columns ? cost[(r + 1) * wide + c + 1] + unlike(before[r], after[c]) : Infinity;
      cost[r * wide + c] = Math.min(went, came, changed);
    }
  }
  /** @type {string[][]} */
  const now = before.map(() => []);
  /** @type {string[]} */
  const ahead = []; // words that came before the first one that is left
  let r = 0, c = 0, home = -1;
  while (r < rows || c < columns) {
    const here = cost[r * wide + c];
    if (r < rows && c < columns && here === cost[(r + 1) * wide + c + 1] + unlike(before[r], after[c])) {
      home = r;
      now[r].push(...ahead.splice(0), after[c]);
      r += 1;
      c += 1;
    } else if (r < rows && here === cost[(r + 1) * wide + c] + ALONE) {
      r += 1;
    } else {
      (home < 0 ? ahead : now[home]).push(after[c]);
      c += 1;
    }
  }
  if (ahead.length) now[0].push(...ahead);
  return now.map((texts) => texts.join(" "));
}

/** How different two words are, 0 to 1. @param {string} one @param {string} other */
function unlike(one, other) {
  if (one === other) return 0;
  const a = one.toLowerCase(), b = other.toLowerCase(), short = Math.min(a.length, b.length);
  let begin = 0, end = 0;
  while (begin < short && a[begin] === b[begin]) begin += 1;
  while (end < short - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  return 1 - 0.9 * ((begin + end) / Math.max(a.length, b.length));
}

/** How many letters a text has. @param {string} text */
export const letters = (text) => text.replace(/\s+/gu, "").length;

/** Where in a text so many letters have been; `spaced`: behind the space that it may begin with.
    @param {string} text @param {number} count @param {boolean} spaced */
export function placeAfter(text, count, spaced) {
  let at = spaced && !count ? text.length - text.trimStart().length : 0;
  for (let seen = 0; at < text.length && seen < count; at += 1) if (/\S/u.test(text[at])) seen += 1;
  return at;
}
