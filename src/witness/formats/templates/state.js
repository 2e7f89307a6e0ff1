/* The state of the page. Corrections are a list of steps, and all else follows from it as it does in
   `witness redo`. What people said, their names and those of files reach the document through textContent
   only. Times are milliseconds; speakers and words are numbers, their places in the lists of `data`. */

const data = JSON.parse($("data").textContent);
const { words, silent } = data;
const duration = data.end - data.start; // of the part of the recording that was transcribed

const ANCHORS = 10; // turns that a speaker is remembered by, as in witness/transcript/corrections.py
const UNSURE = 60; // percent; below it a word is marked
const OVERLAP = 1, UNSUPPORTED = 2; // flags of a word
const BLOCK = 240; // words of a long paragraph that are shown or removed together
const BEYOND = 900; // pixels above and below the window that are kept ready
const LONGEST_NAME = 100, LONGEST_TEXT = 10000;
const COLORS = 10; // of the style sheet; after them they are used again, with stripes

/* ---------- searching ---------- */

/** The first place in `sorted` whose value is greater than `value`. */
function above(sorted, value, length = sorted.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

/* ---------- speech without words ---------- */

/** Each stretch gets a place among the words, which is empty until somebody writes what was said. */
words.gap = words.text.map(() => -1); // word -> stretch, -1: a word that was recognized
const gapWord = []; // stretch -> word
if (data.listened) {
  silent.start.forEach((start, n) => {
    const place = { text: "", start, end: silent.end[n], speaker: silent.speaker[n], sure: -1, flags: 0,
      track: silent.track[n], gap: n };
    for (const [name, value] of Object.entries(place)) words[name].push(value);
  });
  const sorted = words.start.map((_, w) => w).sort((a, b) => words.start[a] - words.start[b] || a - b);
  for (const name of Object.keys(words)) words[name] = sorted.map((w) => words[name][w]);
  words.gap.forEach((n, w) => { if (n >= 0) gapWord[n] = w; });
}
const placeInTrack = []; // word -> its place among the words of its track
const wordsOfTrack = new Map();
words.track.forEach((track) => {
  placeInTrack.push(wordsOfTrack.get(track) ?? 0);
  wordsOfTrack.set(track, placeInTrack[placeInTrack.length - 1] + 1);
});

/* ---------- corrections ---------- */

let steps = []; // each a list of corrections that are taken and undone together
let undone = [];
let saved = 0; // the number of steps that were saved to a file
let lost = false; // whether a step that was saved has been undone and replaced

const middles = words.text.map((_, w) => (words.start[w] + words.end[w]) / 2);
const byMiddle = middles.map((_, w) => w).sort((a, b) => middles[a] - middles[b] || a - b);
const sortedMiddles = byMiddle.map((w) => middles[w]);
const rank = new Int32Array(middles.length); // word -> its place in byMiddle
byMiddle.forEach((w, n) => { rank[w] = n; });

/** What a speaker is recognized by later: the longest turns, in order, in seconds. */
function anchor(who) {
  const own = turns.speaker.map((speaker, turn) => turn).filter((turn) => turns.speaker[turn] === who);
  own.sort((a, b) => turns.end[b] - turns.start[b] - (turns.end[a] - turns.start[a]) || a - b);
  return own.slice(0, ANCHORS).sort((a, b) => turns.start[a] - turns.start[b] || turns.end[a] - turns.end[b])
    .map((turn) => [turns.start[turn] / 1000, turns.end[turn] / 1000]);
}

/** Pieces of time, in ms, that contain the middles of these words and of no others. */
function piecesOf(chosen) {
  const pieces = [];
  let before = -2;
  for (const at of chosen.map((w) => rank[w]).sort((a, b) => a - b)) {
    if (at === before + 1) pieces[pieces.length - 1][1] = sortedMiddles[at] + 1;
    else pieces.push([sortedMiddles[at] - 1, sortedMiddles[at] + 1]);
    before = at;
  }
  return pieces;
}

/** The words with their middle in the pieces, which are those that `witness redo` will find there. */
function wordsIn(pieces) {
  const inside = new Set();
  for (const [start, end] of pieces) {
    for (let place = above(sortedMiddles, start - 1e-6); place < byMiddle.length; place += 1) {
      if (sortedMiddles[place] > end) break;
      inside.add(byMiddle[place]);
    }
  }
  return [...inside].sort((a, b) => a - b);
}

/** The content of the file that `witness redo --corrections` reads. */
function correctionsFile() {
  const seconds = (pieces) => pieces.map(([a, b]) => [a / 1000, b / 1000]);
  const ofSpeaker = ["name", "merge", "move"];
  const corrections = steps.flat().map((made) => ({
    kind: made.kind,
    speaker: ofSpeaker.includes(made.kind) ? anchor(made.who) : [],
    name: made.name ?? null,
    other: made.kind === "merge" ? anchor(made.gone)
      : made.kind === "fill" ? seconds([[silent.start[made.gap], silent.end[made.gap]]])
        : seconds(made.pieces ?? []),
    text: made.text ?? null,
  })).filter((one) => // who has lost all speech to a new speaker can no longer be found
    (one.speaker.length || !ofSpeaker.includes(one.kind)) && (one.other.length || one.kind !== "merge"));
  const head = { schema: data.schema, sha256: data.sha256, recording: data.title };
  return `${JSON.stringify({ ...head, corrections }, null, 1)}\n`;
}

/* ---------- the state that follows from the corrections, in the order in which Witness applies them ---------- */

let turns; // {start, end, speaker}: columns, in order
let same; // speaker -> the speaker it was merged with, or itself
let names; // speaker -> name or null
let owner; // word -> speaker, -1: nobody
let texts; // word -> text, "" if it was removed
let heard; // word -> whether somebody was heard speaking
let touched; // the words that a step changed
let filled; // the stretches without words of which somebody wrote what was said
let speakers; // [{who, seconds, share}] of those who are left
let paragraphs; // [{start, end, who, words}]
let order, place; // the words in reading order; word -> its place in that order, -1: not shown
let paragraphOf; // word -> paragraph
let blocks; // [{paragraph, from, to}]
let blockOf; // word -> block

function last(who) {
  while (same[who] !== who) who = same[who];
  return who;
}

function derive() {
  const made = steps.flat();
  texts = words.text.slice();
  heard = words.flags.map((flags) => !(flags & UNSUPPORTED));
  touched = new Set();
  filled = new Set();
  for (const step of made) {
    if (step.kind !== "fill") continue;
    texts[gapWord[step.gap]] = ` ${step.text}`;
    touched.add(gapWord[step.gap]);
    filled.add(step.gap);
  }
  owner = words.speaker.slice();
  turns = data.turns;
  for (const step of made) if (step.kind === "new") addSpeaker(step);
  same = Array.from({ length: countAll(made) }, (_, who) => who);
  for (const step of made) {
    if (step.kind === "merge" && last(step.who) !== last(step.gone)) same[last(step.gone)] = last(step.who);
  }
  owner = owner.map((who) => (who < 0 ? -1 : last(who)));
  for (const step of made) {
    if (step.kind !== "move") continue;
    for (const w of wordsIn(step.pieces)) {
      owner[w] = last(step.who);
      heard[w] = true;
      touched.add(w);
    }
  }
  for (const step of made) {
    if (step.kind !== "text") continue;
    wordsIn(step.pieces).forEach((w, n) => {
      const space = words.text[w].slice(0, words.text[w].length - words.text[w].trimStart().length);
      texts[w] = n === 0 && step.text ? space + step.text : "";
      touched.add(w);
    });
  }
  names = same.map(() => null);
  data.speakers.forEach(([, name], who) => { if (name && names[last(who)] === null) names[last(who)] = name; });
  for (const step of made) if (step.kind === "name") names[last(step.who)] = step.name;
  countSpeakers();
  group();
}

/** The number of speakers, with those who were merged and those whom these corrections add. */
function countAll(made) {
  return data.speakers.length + made.filter((step) => step.kind === "new").length;
}

/** As corrections.add: they talk where their words are, and whoever had these words before does not. */
function addSpeaker({ who, pieces }) {
  const mine = wordsIn(pieces).sort((a, b) => words.track[a] - words.track[b] || placeInTrack[a] - placeInTrack[b]);
  const runs = [];
  for (const w of mine) {
    const before = runs[runs.length - 1]?.at(-1);
    const goesOn = before !== undefined && words.track[before] === words.track[w] && owner[before] === owner[w]
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
  turns = { start: left.map((turn) => turn[0]), end: left.map((turn) => turn[1]), speaker: left.map((turn) => turn[2]) };
  for (const w of mine) {
    owner[w] = who;
    heard[w] = true;
    touched.add(w);
  }
}

function countSpeakers() {
  const spoken = new Map();
  const end = new Map();
  turns.start.forEach((start, turn) => { // in order of their starts; what overlaps counts once
    const who = last(turns.speaker[turn]);
    const from = Math.max(start, end.get(who) ?? 0);
    spoken.set(who, (spoken.get(who) ?? 0) + Math.max(0, turns.end[turn] - from));
    end.set(who, Math.max(end.get(who) ?? 0, turns.end[turn]));
  });
  const total = [...spoken.values()].reduce((sum, ms) => sum + ms, 0) || 1;
  speakers = same.map((_, who) => who).filter((who) => same[who] === who && spoken.has(who))
    .map((who) => ({ who, seconds: spoken.get(who), share: spoken.get(who) / total }));
}

function endsSentence(w) {
  let end = texts[w].length;
  while (end > 0 && (data.grouping.closing.includes(texts[w][end - 1]))) end -= 1;
  return end > 0 && data.grouping.ends.includes(texts[w][end - 1]);
}

/** Whether it is a word: one that was recognized, or speech of which somebody wrote what was said. */
function isWord(w) {
  return words.gap[w] < 0 || filled.has(words.gap[w]);
}

/** Whether a word begins between two stretches without words of a track. */
function wordWithin(from, to, n) {
  for (let w = above(words.start, from - 1); w < texts.length && words.start[w] <= to; w += 1) {
    if (words.track[w] === silent.track[n] && isWord(w)) return true;
  }
  return false;
}

/** Parts of what one speaker says, as merging._paragraphs makes them. */
function parts(chosen) {
  const { shortest, longest } = data.grouping;
  const found = [];
  for (let from = 0; from < chosen.length;) {
    const start = words.start[chosen[from]];
    let cut = chosen.length;
    if (words.end[chosen[chosen.length - 1]] - start > longest) {
      let best = [-1, 0];
      for (let at = from + 1; at < chosen.length && words.end[chosen[at - 1]] - start <= longest; at += 1) {
        const before = chosen[at - 1];
        if (words.end[before] - start < shortest) continue;
        const one = [endsSentence(before) ? 1 : 0, words.start[chosen[at]] - words.end[before]];
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

/** Words -> paragraphs, by the rule of witness/transcript/merging.py: what a speaker says in one go. A phrase
    stays together; after it, a paragraph ends if somebody was heard in another track. */
function group() {
  const latest = new Map(); // track -> its latest run of words
  let open = new Set(); // tracks whose latest run may go on
  const runs = [];
  const { pause, phrase } = data.grouping;
  const breath = data.listened ? data.grouping.breath : 2; // without a recognizer there are no gaps between words
  for (let w = 0; w < texts.length; w += 1) {
    if (!isWord(w) || (texts[w] === "" && (words.text[w] !== "" || words.gap[w] >= 0))) continue;
    const track = words.track[w];
    const run = latest.get(track);
    const before = run && run[run.length - 1];
    const gap = run && owner[before] === owner[w] ? words.start[w] - words.end[before] : Infinity;
    if (gap < phrase && !endsSentence(before)) {
      run.push(w);
      continue;
    }
    if (gap < pause && open.has(track)) run.push(w);
    else {
      latest.set(track, [w]);
      runs.push(latest.get(track));
    }
    if (heard[w]) open = new Set();
    open.add(track);
  }
  paragraphs = runs.flatMap(parts).map((chosen) => ({
    start: words.start[chosen[0]], end: words.end[chosen[chosen.length - 1]], who: owner[chosen[0]], words: chosen,
  }));
  const quiet = new Map(); // track -> paragraph without words that may continue
  silent.start.forEach((start, n) => {
    if (filled.has(n)) return;
    const who = silent.speaker[n] < 0 ? -1 : last(silent.speaker[n]);
    const before = quiet.get(silent.track[n]);
    if (before && before.who === who && start - before.end < breath && !wordWithin(before.end, start, n)) {
      before.end = silent.end[n];
      return;
    }
    const fresh = { start, end: silent.end[n], who, words: [], gap: data.listened ? n : -1 };
    quiet.set(silent.track[n], fresh);
    paragraphs.push(fresh);
  });
  paragraphs.sort((a, b) => a.start - b.start || a.end - b.end);

  order = [];
  place = new Int32Array(texts.length).fill(-1);
  paragraphOf = new Int32Array(texts.length).fill(-1);
  blockOf = new Int32Array(texts.length).fill(-1);
  blocks = [];
  paragraphs.forEach((paragraph, number) => {
    for (let from = 0; from === 0 || from < paragraph.words.length; from += BLOCK) {
      const to = Math.min(from + BLOCK, paragraph.words.length);
      for (const w of paragraph.words.slice(from, to)) {
        place[w] = order.length;
        order.push(w);
        paragraphOf[w] = number;
        blockOf[w] = blocks.length;
      }
      paragraph.block ??= blocks.length;
      blocks.push({ number, paragraph, from, to });
    }
  });
}

/* ---------- names and colors ---------- */

function nameOf(who) {
  return who < 0 ? "nobody heard" : names[who] ?? `Speaker ${who + 1}`;
}

/** Who speaks in a paragraph; of speech without words that may not be known. */
function speakerOf(paragraph) {
  return paragraph.who < 0 && !paragraph.words.length ? "unknown" : nameOf(paragraph.who);
}

/** Up to two characters that stand for a speaker, beside the color. */
function initials(who) {
  if (who < 0) return "–";
  if (names[who]) {
    const parts = names[who].split(/[\s.\-]+/).filter(Boolean);
    return parts.slice(0, 2).map((part) => [...part][0]).join("").toUpperCase();
  }
  return String(who + 1);
}

function look(who) {
  if (who < 0) return "nobody";
  return `c${who % COLORS}${Math.floor(who / COLORS) % 2 ? " striped" : ""}`;
}

function chip(who) {
  const element = make("span", `chip ${look(who)}`, initials(who));
  element.setAttribute("aria-hidden", "true");
  return element;
}
