// @ts-check
/* The state of the page from its list of corrections, and words -> paragraphs. The order and the rules are those of
   `witness redo`, in witness/transcript/corrections.py; tests/data/page_cases.json keeps the two equal. */
import { countAll } from "./corrections.js";
import { JOINED, SPLIT, UNSUPPORTED, wordsIn, above } from "./transcript.js";
/** @import { Correction, Step } from "./corrections.js" */
/** @import { Grouping, Pieces, Prepared, Turns } from "./transcript.js" */

/** @typedef {ReturnType<typeof derive>} Derived */

/** Follow the merges of a speaker.
    @param {ArrayLike<number>} same speaker -> the speaker it was merged with, or itself @param {number} who */
export function last(same, who) {
  let found = who;
  while (same[found] !== found) found = same[found];
  return found;
}

/** @param {Prepared} transcript @param {readonly Step[]} steps */
export function derive(transcript, steps) {
  const { data, words, gapWord } = transcript;
  const made = steps.flat();
  const texts = words.text.slice(); // word -> text, "" if it was removed
  const heard = words.flags.map((flags) => !(flags & UNSUPPORTED)); // word -> true if the diarizer heard speech
  /** The words that a step changed. @type {Set<number>} */
  const touched = new Set();
  /** The stretches without words that a person filled in. @type {Set<number>} */
  const filled = new Set();
  for (const one of made) {
    if (one.kind !== "fill") continue;
    texts[gapWord[one.gap]] = ` ${one.text}`;
    touched.add(gapWord[one.gap]);
    filled.add(one.gap);
  }
  let owner = words.speaker.slice(); // word -> speaker, -1: none
  let { turns } = data;
  /** The recognized or filled-in words in some pieces. @param {Pieces} pieces */
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
  const whole = texts.slice();
  /** Word -> those whose place its text takes, too. @type {Map<number, Set<number>>} */
  const replaced = new Map();
  for (const one of made) {
    if (one.kind !== "text") continue;
    /** Track -> its first word: times do not distinguish simultaneous words of two tracks. @type {Map<number, number>} */
    const begun = new Map();
    for (const w of said(one.pieces)) {
      const text = words.gap[w] < 0 ? words.text[w] : " "; // a filled-in text begins with a space
      const space = text.slice(0, text.length - text.trimStart().length);
      texts[w] = one.text && !begun.has(words.track[w]) ? space + one.text : "";
      const first = begun.get(words.track[w]);
      if (first === undefined) begun.set(words.track[w], w);
      else if (one.text) replaced.set(first, (replaced.get(first) ?? new Set()).add(w));
      touched.add(w);
    }
  }
  const ends = words.end.slice();
  for (const [first, more] of replaced) {
    for (const w of [...more].sort((a, b) => a - b)) {
      if (texts[w]) break;
      ends[first] = Math.max(ends[first], words.end[w]);
    }
  }
  /** Word -> a person's decision that a paragraph begins with it, or does not. @type {Map<number, boolean>} */
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
  keepTogether(transcript, { texts, owner, heard, filled, same, begins, ends }, whole);
  const names = /** @type {(string | null)[]} */ (same.map(() => null));
  data.speakers.forEach(([, name], who) => {
    if (name && names[last(same, who)] === null) names[last(same, who)] = name;
  });
  for (const one of made) if (one.kind === "name") names[last(same, one.who)] = one.name;
  const speakers = shares(turns, same);
  const all = [...(data.before ?? []), ...made];
  const paragraphs = group(transcript, { texts, owner, heard, filled, same, begins, ends });
  retime(paragraphs, all, said);
  const notes = notesOf(all, said);
  const noted = new Set(notes.flatMap((note) => note.words));
  const reading = inReadingOrder(paragraphs, texts.length);
  return { turns, same, names, owner, texts, heard, touched, filled, speakers, paragraphs, notes, noted, ...reading };
}

/** Move the starts and ends of paragraphs that a person corrected.
    @param {Paragraph[]} paragraphs @param {readonly Correction[]} made @param {(pieces: Pieces) => number[]} said */
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
 * The notes; of several notes on the same words the last one counts.
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

/** Add a missing speaker to the turns: they talk during their words, and the earlier speaker of these does not.
    @param {Prepared} transcript @param {Turns} turns @param {readonly number[]} owner of each word, before
    @param {readonly number[]} mine the words, of one track @param {number} who @returns {Turns} */
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

/** The remaining speakers, with their speaking time in ms and their share of it.
    @param {Turns} turns @param {readonly number[]} same */
function shares(turns, same) {
  /** @type {Map<number, number>} */
  const spoken = new Map();
  const end = new Map();
  turns.start.forEach((start, turn) => { // in order of their starts; overlaps count once
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

/**
 * @typedef {{
 *   texts: readonly string[], owner: readonly number[], heard: readonly boolean[], filled: ReadonlySet<number>,
 *   same: readonly number[], begins: Map<number, boolean>, ends: readonly number[],
 * }} Said word -> its text, speaker, speech, and end; the filled-in stretches; the merges
 * @typedef {{
 *   start: number, end: number, who: number, words: number[], gap: number, mark: string, block: number,
 * }} Paragraph `gap`: the stretch without words that a person may fill in, or -1; `mark`: in place of words, or "";
 *   `block`: the first block
 */

/** Join words again between which only a deletion made a pause. @param {Prepared} transcript @param {Said} said
    @param {readonly string[]} whole the texts before that */
function keepTogether(transcript, said, whole) {
  const { words, data } = transcript, gone = said.texts.map((_, w) => isWord(transcript, said, w) && isGone(transcript, said, w));
  if (!gone.includes(true)) return;
  const texts = said.texts.map((text, w) => (gone[w] ? whole[w] : text));
  const { paragraphOf } = inReadingOrder(group(transcript, { ...said, texts, ends: words.end }), texts.length);
  /** Track -> its latest word, and whether words after it are gone. @type {Map<number, [number, boolean]>} */
  const latest = new Map();
  texts.forEach((_, w) => {
    if (!isWord(transcript, said, w)) return;
    const [before, parted] = latest.get(words.track[w]) ?? [-1, false];
    if (!gone[w] && parted && before >= 0 && paragraphOf[before] === paragraphOf[w] && said.begins.get(w) === undefined
      && words.start[w] - said.ends[before] >= data.grouping.phrase) said.begins.set(w, false);
    latest.set(words.track[w], gone[w] ? [before, true] : [w, false]);
  });
}

/** Return whether a person deleted a word. @param {Prepared} transcript @param {Said} said @param {number} w */
const isGone = ({ words }, { texts }, w) => texts[w] === "" && (words.text[w] !== "" || words.gap[w] >= 0);

/** Group words into paragraphs. A phrase stays together; after it, speech in another track ends the paragraph.
    @param {Prepared} transcript @param {Said} said */
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
    if (!isWord(transcript, said, w) || isGone(transcript, said, w)) continue;
    const track = words.track[w];
    const run = latest.get(track);
    const before = run ? run[run.length - 1] : -1;
    const gap = run && owner[before] === owner[w] ? words.start[w] - said.ends[before] : Infinity;
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
    start: words.start[chosen[0]], end: said.ends[chosen[chosen.length - 1]], who: owner[chosen[0]], words: chosen,
    gap: -1, mark: "", block: -1,
  }));
  return [...spoken, ...quiet(transcript, said)].sort((a, b) => a.start - b.start || a.end - b.end);
}

/** Paragraphs of speech without words. @param {Prepared} transcript @param {Said} said */
function quiet(transcript, said) {
  const { data, silent } = transcript;
  const breath = data.listened ? data.grouping.breath : 2; // without a recognizer there are no gaps between words
  /** Track -> the paragraph that may go on. @type {Map<number, Paragraph>} */
  const latest = new Map();
  /** @type {Paragraph[]} */
  const found = [];
  silent.start.forEach((start, n) => {
    if (said.filled.has(n)) return;
    const who = silent.speaker[n] < 0 ? -1 : last(said.same, silent.speaker[n]);
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

/** True for a recognized or filled-in word. @param {Prepared} transcript @param {Said} said @param {number} w */
function isWord({ words }, said, w) {
  return words.gap[w] < 0 || said.filled.has(words.gap[w]);
}

/** True if a word begins between two stretches without words of a track.
    @param {Prepared} transcript @param {Said} said @param {number} from @param {number} to @param {number} track */
function wordWithin(transcript, said, from, to, track) {
  const { words } = transcript;
  for (let w = above(words.start, from - 1); w < said.texts.length && words.start[w] <= to; w += 1) {
    if (words.track[w] === track && isWord(transcript, said, w)) return true;
  }
  return false;
}

/** @param {Grouping} grouping @param {string} text */
function endsSentence({ closing, ends }, text) {
  let end = text.length;
  while (end > 0 && closing.includes(text[end - 1])) end -= 1;
  return end > 0 && ends.includes(text[end - 1]);
}

/** Divide the words of one speaker into parts of readable length.
    @param {Prepared} transcript @param {Said} said @param {readonly number[]} chosen words */
function parts({ data, words }, said, chosen) {
  const { shortest, longest } = data.grouping;
  const found = [];
  for (let from = 0; from < chosen.length;) {
    const start = words.start[chosen[from]];
    let cut = chosen.length;
    if (said.ends[chosen[chosen.length - 1]] - start > longest) {
      let best = [-1, 0];
      for (let at = from + 1; at < chosen.length && said.ends[chosen[at - 1]] - start <= longest; at += 1) {
        const before = chosen[at - 1];
        if (said.ends[before] - start < shortest || said.begins.get(chosen[at]) === false) continue;
        const ends = endsSentence(data.grouping, said.texts[before]) ? 1 : 0;
        const one = [ends, words.start[chosen[at]] - said.ends[before]];
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

const BLOCK = 240; // words of a long paragraph that are a block

/** @typedef {{ number: number, paragraph: Paragraph, from: number, to: number }} Block a part of a paragraph's words */

/** @param {Paragraph[]} paragraphs @param {number} count of all words */
export function inReadingOrder(paragraphs, count) {
  /** @type {number[]} */
  const order = []; // the words in reading order
  const place = new Int32Array(count).fill(-1); // word -> its place in that order, -1: not shown
  const paragraphOf = new Int32Array(count).fill(-1); // word -> paragraph
  const blockOf = new Int32Array(count).fill(-1); // word -> block
  /** @type {Block[]} */
  const blocks = [];
  paragraphs.forEach((paragraph, number) => {
    paragraph.block = blocks.length;
    for (let from = 0; from === 0 || from < paragraph.words.length; from += BLOCK) {
      const to = Math.min(from + BLOCK, paragraph.words.length);
      for (const w of paragraph.words.slice(from, to)) {
        place[w] = order.length;
        order.push(w);
        paragraphOf[w] = number;
        blockOf[w] = blocks.length;
      }
      blocks.push({ number, paragraph, from, to });
    }
  });
  return { order, place, paragraphOf, blockOf, blocks };
}

const SHORTEST = 100; // ms

/** The least and the most, in ms: paragraphs stay in their order, and what one person says does not run into what they say before
    or after. Where it does already, it stays possible.
    @param {{ start: number, end: number }} part of the recording
    @param {readonly Pick<Paragraph, "start" | "end" | "who">[]} paragraphs in order @param {number} n which one
    @param {"start" | "end"} kind @returns {[number, number]} */
export function bounds(part, paragraphs, n, kind) {
  const { start, end, who } = paragraphs[n];
  const theirs = (/** @type {{ who: number }} */ one) => who >= 0 && one.who === who;
  if (kind === "start") {
    const before = Math.max(part.start, ...paragraphs.slice(Math.max(0, n - 1), n).map((one) => one.start + 1),
      paragraphs.slice(0, n).reverse().find(theirs)?.end ?? 0);
    const next = paragraphs[n + 1] ? paragraphs[n + 1].start - 1 : Infinity;
    return [Math.min(start, before), Math.max(start, Math.min(end - SHORTEST, next))];
  }
  const after = Math.min(part.end, paragraphs.slice(n + 1).find(theirs)?.start ?? Infinity);
  return [Math.min(end, start + SHORTEST), Math.max(end, after)];
}
