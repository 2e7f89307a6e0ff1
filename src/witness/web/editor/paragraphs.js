// @ts-check
/* Words -> paragraphs, by the rules of witness/transcript/corrections.py. tests/data/page_cases.json holds the two equal. */
import { above } from "./arrays.js";
/** @import { Grouping, Prepared } from "./transcript.js" */

/**
 * @typedef {{
 *   texts: readonly string[], owner: readonly number[], heard: readonly boolean[], filled: ReadonlySet<number>,
 *   same: readonly number[], begins: ReadonlyMap<number, boolean>,
 * }} Said word -> its text, speaker, and whether somebody was heard; the stretches that are filled; who was merged
 * @typedef {{
 *   start: number, end: number, who: number, words: number[], gap: number, mark: string, block: number,
 * }} Paragraph `gap`: the stretch without words that somebody may fill, or -1; `mark`: in the place of words, or "";
 *   `block`: its first one
 */

/**
 * What a speaker says in one go. A phrase stays together; after it, a paragraph ends if somebody was heard in another
 * track.
 * @param {Prepared} transcript
 * @param {Said} said
 */
export function group(transcript, said) {
  const { data, words } = transcript;
  const { texts, owner, heard } = said;
  /** Track -> its latest run of words. @type {Map<number, number[]>} */
  const latest = new Map();
  /** Tracks whose latest run may go on. @type {Set<number>} */
  let open = new Set();
  /** @type {number[][]} */
  const runs = [];
  const { pause, phrase } = data.grouping;
  for (let w = 0; w < texts.length; w += 1) {
    if (!isWord(transcript, said, w) || (texts[w] === "" && (words.text[w] !== "" || words.gap[w] >= 0))) continue;
    const track = words.track[w];
    const run = latest.get(track);
    const before = run ? run[run.length - 1] : -1;
    const gap = run && owner[before] === owner[w] ? words.start[w] - words.end[before] : Infinity;
    const begins = said.begins.get(w);
    if (run && !begins && gap < phrase && !endsSentence(data.grouping, texts[before])) {
      run.push(w);
      continue;
    }
    if (run && !begins && gap < Infinity && ((gap < pause && open.has(track)) || begins === false)) run.push(w);
    else {
      const fresh = [w];
      latest.set(track, fresh);
      runs.push(fresh);
    }
    if (heard[w]) open = new Set();
    open.add(track);
  }
  const spoken = runs.flatMap((run) => parts(transcript, said, run)).map((chosen) => ({
    start: words.start[chosen[0]], end: words.end[chosen[chosen.length - 1]], who: owner[chosen[0]], words: chosen,
    gap: -1, mark: "", block: -1,
  }));
  return [...spoken, ...quiet(transcript, said)].sort((a, b) => a.start - b.start || a.end - b.end);
}

/**
 * Paragraphs of speech without words.
 * @param {Prepared} transcript
 * @param {Said} said
 */
function quiet(transcript, said) {
  const { data, silent } = transcript;
  const breath = data.listened ? data.grouping.breath : 2; // without a recognizer there are no gaps between words
  /** Track -> the paragraph that may go on. @type {Map<number, Paragraph>} */
  const latest = new Map();
  /** @type {Paragraph[]} */
  const found = [];
  silent.start.forEach((start, n) => {
    if (said.filled.has(n)) return;
    let who = silent.speaker[n];
    while (who >= 0 && said.same[who] !== who) who = said.same[who];
    const before = latest.get(silent.track[n]);
    if (before && before.who === who && start - before.end < breath
      && !wordWithin(transcript, said, before.end, start, silent.track[n])) {
      before.end = silent.end[n];
      return;
    }
    const mark = data.listened ? silent.mark[n] : "";
    const fresh = { start, end: silent.end[n], who, words: [], gap: data.listened ? n : -1, mark, block: -1 };
    latest.set(silent.track[n], fresh);
    found.push(fresh);
  });
  return found;
}

/**
 * Whether it is a word: one that was recognized, or speech of which somebody wrote what was said.
 * @param {Prepared} transcript
 * @param {Said} said
 * @param {number} w
 */
function isWord({ words }, said, w) {
  return words.gap[w] < 0 || said.filled.has(words.gap[w]);
}

/**
 * Whether a word begins between two stretches without words of a track.
 * @param {Prepared} transcript
 * @param {Said} said
 * @param {number} from
 * @param {number} to
 * @param {number} track
 */
function wordWithin(transcript, said, from, to, track) {
  const { words } = transcript;
  for (let w = above(words.start, from - 1); w < said.texts.length && words.start[w] <= to; w += 1) {
    if (words.track[w] === track && isWord(transcript, said, w)) return true;
  }
  return false;
}

/**
 * @param {Grouping} grouping
 * @param {string} text
 */
function endsSentence({ closing, ends }, text) {
  let end = text.length;
  while (end > 0 && closing.includes(text[end - 1])) end -= 1;
  return end > 0 && ends.includes(text[end - 1]);
}

/**
 * Parts of what one speaker says that can be read, as merging._paragraphs makes them.
 * @param {Prepared} transcript
 * @param {Said} said
 * @param {readonly number[]} chosen words
 */
function parts({ data, words }, said, chosen) {
  const { shortest, longest } = data.grouping;
  const found = [];
  for (let from = 0; from < chosen.length;) {
    const start = words.start[chosen[from]];
    let cut = chosen.length;
    if (words.end[chosen[chosen.length - 1]] - start > longest) {
      let best = [-1, 0];
      for (let at = from + 1; at < chosen.length && words.end[chosen[at - 1]] - start <= longest; at += 1) {
        const before = chosen[at - 1];
        if (words.end[before] - start < shortest || said.begins.get(chosen[at]) === false) continue;
        const ends = endsSentence(data.grouping, said.texts[before]) ? 1 : 0;
        const one = [ends, words.start[chosen[at]] - words.end[before]];
        if (one[0] > best[0] || (one[0] === best[0] && one[1] > best[1])) {
          best = one;
          cut = at;
        }
      }
    }
    found.push(chosen.slice(from, cut));
    from = cut;
  }
  return found;
}
