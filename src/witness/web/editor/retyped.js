// @ts-check
/* The text typed over some words -> the new text of each word. Untouched words keep their times; typed words share
   the times of the words that they replace. */
import { piecesOf } from "./transcript.js";
/** @import { Correction } from "./corrections.js" */
/** @import { Derived } from "./derive.js" */
/** @import { Prepared } from "./transcript.js" */

const MOST = 250000; // pairs of words that are compared; of more, all are one passage
const ALONE = 0.7; // the cost of a word that went or came, where one that became another costs up to 1

/** @param {readonly string[]} before the text of each word, with the spaces before it; at least one @param {string} typed
    @returns {string[]} the text of each now, without spaces around it; "": it went */
export function retyped(before, typed) {
  const bare = before.map((text) => text.trim());
  const spaced = before.length < 2 || before.some((text, n) => n > 0 && text !== text.trimStart());
  /** The parts that are compared: without the spaces between them, or in a script without spaces the characters. @param {string} text */
  const split = (text) => (spaced ? text.split(/\s+/u).filter(Boolean) : [...text.replace(/\s+/gu, " ")]);
  const parts = bare.flatMap((text, n) => (text ? split(text) : [""]).map((part) => ({ part, n })));
  const old = parts.map(({ part }) => part), after = split(typed.trim());
  let first = 0, end = old.length, last = after.length; // equal parts at both ends are left out
  while (first < end && first < last && old[first] === after[first]) first += 1;
  while (end > first && last > first && old[end - 1] === after[last - 1]) { end -= 1; last -= 1; }
  if (first > 0) first -= 1; // parts that came belong to the one before
  else if (first === end && first < last) { end += 1; last += 1; }
  const between = spaced ? " " : "";
  const changed = [...old.slice(0, first), ...inPairs(old.slice(first, end), after.slice(first, last), between), ...old.slice(end)];
  /** @type {string[][]} */
  const texts = bare.map(() => []);
  const same = bare.map(() => true);
  parts.forEach(({ part, n }, at) => {
    if (changed[at]) texts[n].push(changed[at]);
    if (changed[at] !== part) same[n] = false;
  });
  return bare.map((text, n) => (same[n] ? text : texts[n].join(between).trim()));
}

/** Give words that came the place of the word before them, and those before all the place of the first that is left.
    @param {readonly string[]} before @param {readonly string[]} after @param {string} between words that share a place */
function inPairs(before, after, between) {
  const { became, came } = aligned(before, after), home = became.findIndex((text) => text !== "");
  return before.map((_, n) => [...(n === Math.max(home, 0) ? came[0] : []), ...(became[n] ? [became[n]] : []), ...came[n + 1]].join(between));
}

/** The cheapest way from some words to others: `became` has the new text of each, "" if it went; `came` has those that came before
    all and after each; words that came after one that went are with the one before it.
    @param {readonly string[]} before @param {readonly string[]} after */
function aligned(before, after) {
  const rows = before.length, columns = after.length, wide = columns + 1;
  const became = before.map(() => "");
  /** @type {string[][]} */
  const came = [[], ...before.map(() => [])];
  if (!rows || rows * columns > MOST) {
    came[0].push(...after);
    return { became, came };
  }
  const cost = new Float64Array((rows + 1) * wide);
  for (let r = rows; r >= 0; r -= 1) {
    for (let c = columns; c >= 0; c -= 1) {
      if (r === rows && c === columns) continue;
      const went = r < rows ? cost[(r + 1) * wide + c] + ALONE : Infinity;
      const arrived = c < columns ? cost[r * wide + c + 1] + ALONE : Infinity;
      const changed = r < rows && c < columns ? cost[(r + 1) * wide + c + 1] + unlike(before[r], after[c]) : Infinity;
      cost[r * wide + c] = Math.min(went, arrived, changed);
    }
  }
  let r = 0, c = 0, home = 0;
  while (r < rows || c < columns) {
    const here = cost[r * wide + c];
    if (r < rows && c < columns && here === cost[(r + 1) * wide + c + 1] + unlike(before[r], after[c])) {
      became[r] = after[c];
      r += 1;
      c += 1;
      home = r;
    } else if (r < rows && here === cost[(r + 1) * wide + c] + ALONE) {
      r += 1;
    } else {
      came[home].push(after[c]);
      c += 1;
    }
  }
  return { became, came };
}

/** Merge two new versions of a text by word: words that either added are there, and of a word that both changed mine stays.
    @param {string} before @param {string} theirs @param {string} mine */
export function merged(before, theirs, mine) {
  const split = (/** @type {string} */ text) => text.split(/\s+/u).filter(Boolean);
  if (theirs === before || theirs === mine) return mine;
  if (mine === before) return theirs;
  const old = split(before), they = aligned(old, split(theirs)), me = aligned(old, split(mine));
  const both = (/** @type {string[]} */ one, /** @type {string[]} */ other) => (one.join(" ") === other.join(" ") ? one : [...one, ...other]);
  const word = (/** @type {number} */ n) => {
    const [a, b] = [they.became[n], me.became[n]];
    return b === old[n] || (!b && a !== old[n]) || (a.startsWith(b) && a !== old[n]) ? a : b;
  };
  return old.reduce((all, _, n) => [...all, word(n), ...both(they.came[n + 1], me.came[n + 1])], both(they.came[0], me.came[0]))
    .filter(Boolean).join(" ");
}

/** Return the difference of two words, 0 to 1. @param {string} one @param {string} other */
function unlike(one, other) {
  if (one === other) return 0;
  const a = one.toLowerCase(), b = other.toLowerCase(), short = Math.min(a.length, b.length);
  let begin = 0, end = 0;
  while (begin < short && a[begin] === b[begin]) begin += 1;
  while (end < short - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  return 1 - 0.9 * ((begin + end) / Math.max(a.length, b.length));
}

/** Return the number of letters in a text. @param {string} text */
export const letters = (text) => text.replace(/\s+/gu, "").length;

/** Return the place in a text after so many letters; `spaced`: behind the space there.
    @param {string} text @param {number} count @param {boolean} spaced */
export function placeAfter(text, count, spaced) {
  let at = 0;
  for (let seen = 0; at < text.length && seen < count; at += 1) if (/\S/u.test(text[at])) seen += 1;
  while (spaced && at < text.length && /\s/u.test(text[at])) at += 1;
  return at;
}

/**
 * The rest of some fields, which show words of one speaker each. `into`: the field in which the text goes on;
 * `list`: the words whose place that has; `lead` and `tail`: the rest of their text; `inside`: whether both are parts
 * of a word; `rest`: the rest of the last field, if it stays apart; `gone`: all other words; `none`: whether only the
 * space between two fields is selected.
 * @typedef {{ fields: readonly (readonly number[])[], into: number, to: number, list: number[], lead: string, tail: string,
 *   inside: boolean, rest: { list: readonly number[], text: string } | null, gone: number[], apart: boolean, none: boolean }} Over
 */

/** @param {Prepared} transcript @param {Pick<Derived, "texts" | "owner">} page
    @param {readonly (readonly number[])[]} fields the words of each
    @param {string} before the text of the first field that is not selected @param {string} after that of the last one
    @param {boolean} [apart] whether the rest of the last one stays a paragraph @returns {Over} */
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

/** Return the corrections that give words these texts. A text has the time of all the words in whose place it is.
    @param {Prepared} transcript @param {readonly string[]} texts of all words now @param {readonly ReadonlyMap<number, string>[]} segments
    the words of a paragraph each, in order @returns {Correction[]} */
export function rewriting(transcript, texts, ...segments) {
  /** @type {{ text: string, list: number[] }[]} */
  const made = [];
  /** @type {number[]} */
  const gone = [];
  for (const wanted of segments) {
    let list = /** @type {number[] | null} */ (null);
    for (const [w, text] of wanted) {
      if (text === texts[w].trim()) list = null;
      else if (text) made.push({ text, list: list = [w] });
      else (list ?? gone).push(w);
    }
  }
  return [...made, ...(gone.length ? [{ text: "", list: gone }] : [])]
    .map(({ text, list }) => ({ kind: "text", text, pieces: piecesOf(transcript, list) }));
}

/** Return a text without the characters that break lines or command a terminal; those that Persian, Hindi and emoji need stay. @param {string} text */
export const printed = (text) => text.replace(/[\p{Cc}\p{Cs}]+/gu, (run) => (/\s/u.test(run) ? " " : "")).replace(/\s+/gu, " ").trim();

/** Return the new text of each word once their text is another. @param {readonly string[]} texts @param {readonly number[]} list @param {string} text */
export function respelled(texts, list, text) {
  const old = list.map((w) => texts[w].trim()), now = retyped(list.map((w) => texts[w]), text);
  now.forEach((_, n) => { // a text begins where the first word began that it replaces
    const first = now.findIndex((each, at) => at >= n && (each || old[at] === each));
    if (now[n] || old[n] === now[n] || (n > 0 && old[n - 1] !== now[n - 1]) || first < 0 || now[first] === old[first]) return;
    [now[n], now[first]] = [now[first], ""];
  });
  return new Map(list.map((w, n) => [w, now[n] === texts[w].trim() ? now[n] : printed(now[n])]));
}

/** Return the new texts, merged with those that others have given the same words since the field was filled.
    @param {readonly string[]} had then @param {readonly string[]} texts now @param {ReadonlyMap<number, string>} wanted */
export const mergedWith = (had, texts, wanted) => new Map([...wanted]
  .map(([w, text]) => [w, merged(had[w].trim(), texts[w].trim(), text)]));

/** Return the corrections once the field says `text`: the words of the same speaker before and after it become one paragraph.
    @param {Prepared} transcript @param {Pick<Derived, "texts" | "owner" | "paragraphOf">} page when the field was filled @param {Over} given
    @param {string} text @param {readonly string[]} [present] the texts of all words now @returns {Correction[]} */
export function overtyped(transcript, { texts, owner, paragraphOf }, given, text, present = texts) {
  const { track } = transcript.words;
  const wanted = new Map([...respelled(texts, given.list, text), ...given.gone.map((w) => /** @type {const} */ ([w, ""])),
    ...given.rest ? respelled(texts, given.rest.list, given.rest.text) : []]);
  const textOf = (/** @type {number} */ w) => wanted.get(w) ?? texts[w].trim();
  const begins = given.apart ? beginning(given, textOf) : -1;
  const left = given.fields.flat().filter((w) => textOf(w));
  const all = [...mergedWith(texts, present, wanted)], mine = new Set(given.list);
  const made = rewriting(transcript, present, ...[true, false].map((first) => new Map(all.filter(([w]) => mine.has(w) === first))));
  left.slice(1).forEach((w, n) => {
    const alike = owner[w] === owner[left[n]] && track[w] === track[left[n]];
    const meant = given.apart ? w === begins : paragraphOf[w] !== paragraphOf[left[n]];
    if (alike && meant) made.push({ kind: given.apart ? "split" : "join", pieces: piecesOf(transcript, [w]) });
  });
  return made;
}

/** Return the texts of two lists of words once some letters of the first are moved into the second, which may be the same.
    @param {string} from @param {string} to @param {boolean} same
    @param {[number, number]} cut letters before and after which it is cut @param {number} at letters before it arrives */
export function carried(from, to, same, [first, end], at) {
  const cuts = [first, end].map((count) => placeAfter(from, count, true)), text = from.slice(...cuts).trim();
  const rest = from.slice(0, cuts[0]) + from.slice(cuts[1]);
  if (!same) return [rest, inserted(to, text, at)];
  const both = inserted(rest, text, at > first ? Math.max(first, at - letters(text)) : at);
  return [both, both];
}

/** Return a text with another one in it, apart from the words around it. @param {string} into @param {string} text @param {number} at letters before it */
export function inserted(into, text, at) {
  const place = placeAfter(into, at, true), before = into.slice(0, place), after = into.slice(place);
  const within = /\S$/u.test(before) && /^\S/u.test(after);
  return within ? before + text + after : `${before.trimEnd()} ${text} ${after.trimStart()}`.trim();
}
