// @ts-check
/* A word that was corrected, as a name that is misheard again and again, stands elsewhere, too: one key corrects it there. */
import { toast } from "./dom.js";
import { haystackOf, matchesOf, patternOf, replacing } from "./matches.js";
import { page, take, transcript, words } from "./state.js";
/** @import { Range } from "./matches.js" */

/** The latest correction. @type {{ before: string, after: string } | null} */
let latest = null;

/** A text without the signs around it. @param {string} text */
const bare = (text) => text.trim().replace(/^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$/gu, "");

/** Return the places of a text that stands by itself, written just so. @param {string} before @returns {Range[]} */
function places(before) {
  const { order, texts } = page;
  return matchesOf(haystackOf(page), before)
    .filter(([first, end]) => bare(order.slice(first, end + 1).map((w) => texts[w]).join("")) === before);
}

/** Offer to correct the same words elsewhere. Call it once the words have their new texts.
    @param {readonly number[]} list the words of a field @param {readonly string[]} had their texts before */
export function offerElsewhere(list, had) {
  latest = null;
  const changed = list.map((_, n) => n).filter((n) => page.texts[list[n]] !== had[n]);
  if (!changed.length) return;
  const first = changed[0], end = changed[changed.length - 1] + 1;
  const text = (/** @type {readonly string[]} */ all) => bare(all.slice(first, end).join(""));
  const after = text(list.map((w) => page.texts[w]));
  // Of a word that was typed with a pause in it, what the machine heard counts.
  const before = [text(had), text(list.map((w) => words.text[w]))].find((one) => one && one !== after && places(one).length);
  if (!before || !after) return;
  latest = { before, after };
  const count = places(before).length;
  toast(`“${before}” stands in ${count} other ${count === 1 ? "place" : "places"}: Alt+E writes “${after}” there, too.`);
}

/** Make the latest correction elsewhere, too. */
export function correctElsewhere() {
  if (!latest) { toast("Correct a word first: then what stood there is corrected everywhere."); return; }
  const { before, after } = latest;
  const pattern = patternOf(before);
  const made = places(before).map((match) => replacing(transcript, page, match, pattern, after)).filter((one) => one.length);
  latest = null;
  if (made.length) take(...made.flat());
  toast(`Corrected in ${made.length} other ${made.length === 1 ? "place" : "places"}; Undo takes it back.`);
}
