"use strict";
/* The state of the page. Corrections are a list of steps, and all else follows from it as it does in
   `witness redo`. What people said, their names and those of files reach the document through textContent
   only. Times are milliseconds; speakers and words are numbers, their places in the lists of `data`. */

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const { words, turns, silent } = data;
const duration = data.end - data.start; // of the part of the recording that was transcribed

const ANCHORS = 10; // turns that a speaker is remembered by, as in witness/transcript/corrections.py
const UNSURE = 60; // percent; below it a word is marked
const OVERLAP = 1, UNSUPPORTED = 2; // flags of a word
const BLOCK = 240; // words of a long paragraph that are shown or removed together
const BEYOND = 900; // pixels above and below the window that are kept ready
const LONGEST_NAME = 100, LONGEST_TEXT = 10000;
const COLORS = 10; // of the style sheet; after them they are used again, with stripes

/* ---------- helpers ---------- */

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function clock(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  return `${two(Math.floor(s / 3600))}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

function span(ms) {
  const s = Math.round(ms / 1000);
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
}

/** The first place in `sorted` whose value is greater than `value`. */
function above(sorted, value, length = sorted.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

function toast(text) {
  $("toast").textContent = text;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").textContent = ""; }, 6000);
}

/* ---------- corrections ---------- */

let steps = []; // each a list of corrections that are taken and undone together
let undone = [];
let saved = 0; // the number of steps that were saved to a file
let lost = false; // whether a step that was saved has been undone and replaced

const middles = words.text.map((_, w) => (words.start[w] + words.end[w]) / 2);
const byMiddle = middles.map((_, w) => w).sort((a, b) => middles[a] - middles[b] || a - b);
const sortedMiddles = byMiddle.map((w) => middles[w]);

/** What a speaker is recognized by later: the longest turns, in order, in seconds. */
function anchor(who) {
  const own = turns.speaker.map((speaker, turn) => turn).filter((turn) => turns.speaker[turn] === who);
  own.sort((a, b) => turns.end[b] - turns.start[b] - (turns.end[a] - turns.start[a]) || a - b);
  return own.slice(0, ANCHORS).sort((a, b) => turns.start[a] - turns.start[b] || turns.end[a] - turns.end[b])
    .map((turn) => [turns.start[turn] / 1000, turns.end[turn] / 1000]);
}

/** Pieces of time, in ms, that contain the middles of these words and of no others. */
function piecesOf(chosen) {
  const mine = new Set(chosen);
  const pieces = [];
  let open = false;
  byMiddle.forEach((w) => {
    if (!mine.has(w)) { open = false; return; }
    if (open) pieces[pieces.length - 1][1] = middles[w] + 1;
    else pieces.push([middles[w] - 1, middles[w] + 1]);
    open = true;
  });
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
  const corrections = steps.flat().map((made) => ({
    kind: made.kind,
    speaker: made.kind === "text" ? [] : anchor(made.who),
    name: made.kind === "name" ? made.name : null,
    other: made.kind === "merge" ? anchor(made.gone) : made.pieces ? seconds(made.pieces) : [],
    text: made.kind === "text" ? made.text : null,
  }));
  const head = { schema: data.schema, sha256: data.sha256, recording: data.title };
  return `${JSON.stringify({ ...head, corrections }, null, 1)}\n`;
}

/* ---------- the state that follows from the corrections, in the order in which Witness applies them ---------- */

let same; // speaker -> the speaker it was merged with, or itself
let names; // speaker -> name or null
let owner; // word -> speaker, -1: nobody
let texts; // word -> text, "" if it was removed
let heard; // word -> whether somebody was heard speaking
let touched; // word -> whether a step changed it
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
  same = data.speakers.map((_, who) => who);
  for (const step of made) {
    if (step.kind === "merge" && last(step.who) !== last(step.gone)) same[last(step.gone)] = last(step.who);
  }
  owner = words.speaker.map((who) => (who < 0 ? -1 : last(who)));
  texts = words.text.slice();
  heard = words.flags.map((flags) => !(flags & UNSUPPORTED));
  touched = new Set();
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
  names = data.speakers.map(() => null);
  data.speakers.forEach(([, name], who) => { if (name && names[last(who)] === null) names[last(who)] = name; });
  for (const step of made) if (step.kind === "name") names[last(step.who)] = step.name;
  countSpeakers();
  group();
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
  speakers = data.speakers.map((_, who) => who).filter((who) => same[who] === who)
    .map((who) => ({ who, seconds: spoken.get(who) ?? 0, share: (spoken.get(who) ?? 0) / total }));
}

function endsSentence(w) {
  let end = texts[w].length;
  while (end > 0 && (data.grouping.closing.includes(texts[w][end - 1]))) end -= 1;
  return end > 0 && data.grouping.ends.includes(texts[w][end - 1]);
}

/** Whether a word begins between two stretches without words of a track. */
function wordWithin(from, to, n) {
  for (let w = above(words.start, from - 1); w < texts.length && words.start[w] <= to; w += 1) {
    if (words.track[w] === silent.track[n]) return true;
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
    if (texts[w] === "" && words.text[w] !== "") continue;
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
    const who = silent.speaker[n] < 0 ? -1 : last(silent.speaker[n]);
    const before = quiet.get(silent.track[n]);
    if (before && before.who === who && start - before.end < breath && !wordWithin(before.end, start, n)) {
      before.end = silent.end[n];
      return;
    }
    const fresh = { start, end: silent.end[n], who, words: [] };
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
  return who < 0 ? "nobody heard" : names[who] ?? data.speakers[who][0];
}

/** Who speaks in a paragraph; of speech without words that may not be known. */
function speakerOf(paragraph) {
  return paragraph.who < 0 && !paragraph.words.length ? "several or unknown" : nameOf(paragraph.who);
}

/** Up to two characters that stand for a speaker, beside the color. */
function initials(who) {
  if (who < 0) return "–";
  if (names[who]) {
    const parts = names[who].split(/[\s.\-]+/).filter(Boolean);
    return parts.slice(0, 2).map((part) => [...part][0]).join("").toUpperCase();
  }
  return (/(\d+)$/.exec(data.speakers[who][0]) ?? [])[1] ?? "?";
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
