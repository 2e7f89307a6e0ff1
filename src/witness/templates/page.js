"use strict";
/* The page of a transcript. What people said, and how they and files are called, reaches the document through
   textContent only. Times are milliseconds, speakers and words are numbers: places in the lists of `data`. */
(() => {

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const { words, turns, silent } = data;

const ANCHORS = 10; // turns that a speaker is remembered by, as in witness/corrections.py
const UNSURE = 60; // per cent; below it a word is marked
const OVERLAP = 1, UNSUPPORTED = 2; // flags of a word
const BLOCK = 240; // words of a paragraph that are shown or not shown together
const BEYOND = 900; // pixels above and below the window that are kept ready
const LONGEST_NAME = 100, LONGEST_TEXT = 10000;
const COLOURS = 10; // of the style sheet; then they come again with stripes

/* ---------- small things ---------- */

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

/* ---------- what was corrected: a list of steps, from which all else follows ---------- */

let steps = []; // each a list of corrections that are made and undone together
let undone = [];
let saved = 0; // steps that are in a file
let lost = false; // a step that is in the file was undone and replaced

const middles = words.text.map((_, w) => (words.start[w] + words.end[w]) / 2);
const byMiddle = middles.map((_, w) => w).sort((a, b) => middles[a] - middles[b] || a - b);
const sortedMiddles = byMiddle.map((w) => middles[w]);

/** Where a speaker is found again: the longest turns, in order, in seconds. */
function anchor(who) {
  const own = turns.speaker.map((speaker, turn) => turn).filter((turn) => turns.speaker[turn] === who);
  own.sort((a, b) => turns.end[b] - turns.start[b] - (turns.end[a] - turns.start[a]) || a - b);
  return own.slice(0, ANCHORS).sort((a, b) => turns.start[a] - turns.start[b] || turns.end[a] - turns.end[b])
    .map((turn) => [turns.start[turn] / 1000, turns.end[turn] / 1000]);
}

/** Pieces of time, in ms, that hold the middles of these words and of no others. */
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

/** The words with their middle in the pieces: what `witness redo` will find there. */
function wordsIn(pieces) {
  const found = new Set();
  for (const [start, end] of pieces) {
    for (let place = above(sortedMiddles, start - 1e-6); place < byMiddle.length; place += 1) {
      if (sortedMiddles[place] > end) break;
      found.add(byMiddle[place]);
    }
  }
  return [...found].sort((a, b) => a - b);
}

/** The file that `witness redo --corrections` reads. */
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

/* ---------- the state that follows from the steps, in the order in which witness applies them ---------- */

let same; // speaker -> the speaker who it is
let names; // speaker -> name or null
let owner; // word -> speaker, -1: nobody
let texts; // word -> text, "" if it is gone
let heard; // word -> whether somebody was heard speaking
let touched; // word -> whether a step changed it
let speakers; // [{id, seconds, share}] of those who are left
let paragraphs; // [{start, end, who, words}]
let order, place; // reading place -> word, and back (-1: not shown)
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
    const found = wordsIn(step.pieces);
    found.forEach((w, n) => {
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

/** Whether a word begins between two wordless passages of a track. */
function wordWithin(from, to, n) {
  for (let w = above(words.start, from - 1); w < texts.length && words.start[w] <= to; w += 1) {
    if (words.track[w] === silent.track[n]) return true;
  }
  return false;
}

/** Words -> paragraphs, by the rule of witness/merging.py: what one speaker says in one go. */
function group() {
  const open = new Map(); // track -> paragraph
  const { pause, long } = data.grouping;
  const breath = data.listened ? data.grouping.breath : 2; // what is no word has no gaps to begin with
  paragraphs = [];
  for (let w = 0; w < texts.length; w += 1) {
    if (texts[w] === "" && words.text[w] !== "") continue;
    const current = open.get(words.track[w]);
    if (current) {
      const before = current.words[current.words.length - 1];
      const full = words.end[before] - current.start > long && endsSentence(before);
      if (current.who === owner[w] && words.start[w] - words.end[before] < pause && !full) {
        current.words.push(w);
        current.end = words.end[w];
        continue;
      }
    }
    const fresh = { start: words.start[w], end: words.end[w], who: owner[w], words: [w] };
    open.set(words.track[w], fresh);
    paragraphs.push(fresh);
  }
  const quiet = new Map(); // track -> wordless paragraph that may go on
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

/* ---------- names and colours ---------- */

function nameOf(who) {
  return who < 0 ? "nobody heard" : names[who] ?? data.speakers[who][0];
}

/** Two signs that stand for a speaker beside the colour. */
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
  return `c${who % COLOURS}${Math.floor(who / COLOURS) % 2 ? " striped" : ""}`;
}

function chip(who) {
  const element = make("span", `chip ${look(who)}`, initials(who));
  element.setAttribute("aria-hidden", "true");
  return element;
}

/* ---------- the list: only what is near the window is in the document ---------- */

const feed = $("feed"), main = $("text");
const shown = new Map(); // block -> article
const spans = new Map(); // word -> span, of what is shown
let heights, known, tops; // of each block, whether it was measured, and where it begins
let printing = false;
let perLine = 70, lineHeight = 28;

function measureType() {
  const probe = make("article", "p");
  const text = make("p", "said", "x");
  probe.append(make("header"), text);
  feed.append(probe);
  const style = getComputedStyle(text);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font || `${style.fontSize} ${style.fontFamily}`;
  const letter = pen.measureText("The quick brown fox jumps over the lazy dog, said she.").width / 54;
  perLine = Math.max(10, text.getBoundingClientRect().width / letter);
  lineHeight = parseFloat(style.lineHeight) || 28;
  measureType.rest = probe.getBoundingClientRect().height - lineHeight;
  probe.remove();
}

function estimate({ paragraph, from, to }) {
  let letters = 0;
  for (let n = from; n < to; n += 1) letters += texts[paragraph.words[n]].length;
  return measureType.rest + Math.max(1, Math.ceil((letters / perLine) * 1.03)) * lineHeight;
}

function layOut() {
  measureType();
  heights = Float64Array.from(blocks, estimate);
  known = new Uint8Array(blocks.length);
  tops = new Float64Array(blocks.length + 1);
  addUp(0);
}

function addUp(from) {
  for (let n = from; n < blocks.length; n += 1) tops[n + 1] = tops[n] + heights[n];
}

function clear() {
  for (const element of shown.values()) element.remove();
  shown.clear();
  spans.clear();
}

function listTop() {
  return $("before").getBoundingClientRect().top + window.scrollY;
}

/** Show what is near the window; measure it, and keep what people see where it is. */
function render() {
  if (printing || !blocks.length) return;
  for (let round = 0; round < 4; round += 1) {
    const y = window.scrollY - listTop();
    const first = Math.max(0, above(tops, y - BEYOND, blocks.length) - 1);
    const end = Math.min(blocks.length, above(tops, y + window.innerHeight + BEYOND, blocks.length));
    const anchored = Math.min(blocks.length - 1, Math.max(0, above(tops, y, blocks.length) - 1));
    for (const [n, element] of shown) {
      if (n < first || n >= end) {
        if (element.contains(document.activeElement)) main.focus({ preventScroll: true });
        for (const w of element.words) spans.delete(w);
        element.remove();
        shown.delete(n);
      }
    }
    let after = feed.firstElementChild;
    for (let n = first; n < end; n += 1) {
      let element = shown.get(n);
      if (!element) {
        element = article(n);
        shown.set(n, element);
        feed.insertBefore(element, after);
      }
      after = element.nextElementSibling;
    }
    $("before").style.height = `${tops[first]}px`;
    $("after").style.height = `${tops[blocks.length] - tops[end]}px`;
    const anchoredTop = tops[anchored];
    let changed = -1;
    for (let n = end - 1; n >= first; n -= 1) {
      if (known[n]) continue;
      const height = shown.get(n).getBoundingClientRect().height;
      known[n] = 1;
      if (Math.abs(height - heights[n]) > 0.5) { heights[n] = height; changed = n; }
    }
    if (changed < 0) return;
    addUp(changed);
    $("before").style.height = `${tops[first]}px`;
    $("after").style.height = `${tops[blocks.length] - tops[end]}px`;
    const moved = tops[anchored] - anchoredTop;
    if (y > 0 && Math.abs(moved) > 0.5) window.scrollBy({ top: moved, behavior: "instant" });
  }
}

let waiting = 0;
function soon() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; render(); });
}

function article(n) {
  const { paragraph, number, from, to } = blocks[n];
  const who = paragraph.who;
  const element = make("article", `p ${look(who)}${from ? " more" : ""}${who < 0 ? " ghosts" : ""}`);
  element.words = paragraph.words.slice(from, to);
  element.tabIndex = -1;
  element.setAttribute("aria-posinset", n + 1);
  element.setAttribute("aria-setsize", blocks.length);
  element.dataset.paragraph = number;
  const head = make("header");
  if (!from) {
    const button = make("button", "who");
    button.type = "button";
    button.dataset.paragraph = number;
    button.title = "Rename, merge, or give this paragraph to somebody else";
    const name = make("span", "name", nameOf(who));
    name.dir = "auto";
    button.append(chip(who), name);
    const time = make("a", "time", clock(paragraph.start));
    time.href = `#t=${(paragraph.start / 1000).toFixed(1)}`;
    time.dataset.time = paragraph.start;
    time.title = "Play from here";
    head.append(button, time);
    element.setAttribute("aria-label", `${nameOf(who)}, ${clock(paragraph.start)}`);
  }
  const said = make("p", "said");
  said.dir = "auto";
  if (data.language) said.lang = data.language;
  if (!paragraph.words.length) {
    const mark = make("span", data.listened ? "inaudible" : "quiet",
      data.listened ? `[inaudible] ${span(paragraph.end - paragraph.start)}`
        : `until ${clock(paragraph.end)}`);
    mark.lang = "en";
    mark.dataset.time = paragraph.start;
    said.append(mark);
  }
  for (const w of element.words) {
    const text = texts[w], bare = text.trimStart();
    if (bare.length < text.length) said.append(text.slice(0, text.length - bare.length));
    const word = make("span", classOf(w), bare);
    word.dataset.w = w;
    if (words.sure[w] >= 0 && words.sure[w] < UNSURE && owner[w] === words.speaker[w]) {
      word.title = `speaker ${words.sure[w]} % certain`;
    }
    spans.set(w, word);
    said.append(word);
  }
  element.append(head, said);
  return element;
}

function classOf(w) {
  let name = "w";
  const sure = words.sure[w];
  if (touched.has(w)) name += " fixed";
  else if (sure >= 0 && sure < UNSURE) name += " unsure";
  if (words.flags[w] & OVERLAP) name += " both";
  if (!heard[w]) name += " ghost";
  if (chosen && place[w] >= chosen[0] && place[w] <= chosen[1]) name += " chosen";
  if (w === playing) name += " playing";
  const hit = found.length ? hitAt(place[w]) : -1;
  if (hit >= 0) name += hit === foundNow ? " hit now" : " hit";
  return name;
}

function paint() {
  for (const [w, element] of spans) {
    const name = classOf(w);
    if (element.className !== name) element.className = name;
  }
}

/** Everything anew after a step; what was at the top of the window stays there. */
function refresh() {
  const y = window.scrollY - listTop();
  const seen = blocks.length && y > 0 ? blocks[Math.max(0, above(tops, y, blocks.length) - 1)] : null;
  const from = seen ? y - tops[blocks.indexOf(seen)] : 0;
  derive();
  chosen = null;
  search(false);
  clear();
  layOut();
  if (seen) {
    const at = paragraphs.findIndex((paragraph) => paragraph.end > seen.paragraph.start);
    if (at >= 0) window.scrollTo({ top: listTop() + tops[paragraphs[at].block] + from, behavior: "instant" });
  }
  showSpeakers();
  render();
  drawTimeline();
  const dirty = lost || steps.length !== saved;
  $("undo").disabled = !steps.length;
  $("save").disabled = !steps.length;
  $("save").classList.toggle("main", dirty && steps.length > 0);
  $("empty").hidden = blocks.length > 0;
  if (!blocks.length) $("empty").textContent = "No speech was found in this recording.";
}

function bringIntoView(block, part = 0.3) {
  window.scrollTo({ top: listTop() + tops[block] - barHeight() - window.innerHeight * part * 0.4,
    behavior: "instant" });
  render();
}

function barHeight() {
  const bar = $("bar");
  return getComputedStyle(bar).position === "sticky" ? bar.getBoundingClientRect().height : 0;
}

/** Scroll so that a word can be read. */
function reveal(w, always) {
  if (blockOf[w] < 0) return;
  if (!spans.has(w)) bringIntoView(blockOf[w]);
  const element = spans.get(w);
  if (!element) return;
  const box = element.getBoundingClientRect();
  const top = barHeight() + 20, bottom = window.innerHeight - 80;
  if (always || box.top < top || box.bottom > bottom) {
    window.scrollBy({ top: box.top - top - (bottom - top) * 0.25, behavior: always ? "instant" : glide() });
  }
}

const still = matchMedia("(prefers-reduced-motion: reduce)");
function glide() {
  return still.matches ? "instant" : "smooth";
}

/* ---------- sound ---------- */

const audio = new Audio();
let position = 0; // ms, also where there is no sound
let playing = -1; // the word that is spoken now
let following = true;
let hasSound = false;

function openSound() {
  const embedded = $("sound");
  if (embedded) {
    const parts = [];
    const text = embedded.textContent;
    for (let from = 0; from < text.length; from += 1 << 20) {
      const piece = atob(text.slice(from, from + (1 << 20)));
      const bytes = new Uint8Array(piece.length);
      for (let n = 0; n < piece.length; n += 1) bytes[n] = piece.charCodeAt(n);
      parts.push(bytes);
    }
    audio.src = URL.createObjectURL(new Blob(parts, { type: "audio/webm; codecs=opus" }));
    embedded.remove();
  } else if (data.link) {
    audio.src = data.link;
  }
  hasSound = Boolean(audio.src);
  audio.preload = "metadata";
  if (position) audio.currentTime = position / 1000;
  showSound();
}

function showSound() {
  $("play").hidden = $("rate").parentElement.hidden = !hasSound;
  $("soundless").hidden = hasSound;
  const pause = hasSound && !audio.paused;
  $("play").classList.toggle("pause", pause);
  $("play").setAttribute("aria-label", pause ? "Pause" : "Play");
}

audio.addEventListener("error", () => {
  hasSound = false;
  $("soundless").textContent = data.link
    ? `the recording is not at ${safely(data.link)}, or this browser cannot play it`
    : "this browser cannot play the sound";
  showSound();
});
for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, () => { showSound(); tick(); });
audio.addEventListener("seeked", tick);

function safely(url) {
  try { return decodeURIComponent(url); } catch { return url; }
}

function toggle() {
  if (!hasSound) return;
  following = true;
  if (audio.paused) audio.play().catch(() => {}); else audio.pause();
}

function seek(ms, play) {
  position = Math.min(Math.max(0, ms), data.duration);
  following = true;
  if (hasSound) {
    audio.currentTime = position / 1000;
    if (play) audio.play().catch(() => {});
  }
  showPosition();
}

/** The word spoken at a time; of several, the one that began last. */
function wordAt(ms) {
  const next = above(words.start, ms);
  for (let w = next - 1; w >= Math.max(0, next - 8); w -= 1) {
    if (place[w] >= 0 && ms < Math.max(words.end[w], words.start[w] + 1)) return w;
  }
  return -1;
}

function showPosition() {
  $("now").textContent = clock(position);
  const w = wordAt(position);
  if (w !== playing) {
    const before = playing;
    playing = w;
    for (const one of [before, w]) if (spans.has(one)) spans.get(one).className = classOf(one);
    if (w >= 0 && following && hasSound && !audio.paused) reveal(w);
  }
  followTimeline();
  drawPlayhead();
}

let ticking = false;
function tick() {
  if (hasSound && !audio.seeking) position = audio.currentTime * 1000;
  showPosition();
  if (!audio.paused && !ticking) {
    ticking = true;
    requestAnimationFrame(() => { ticking = false; tick(); });
  }
}

/* ---------- choosing words ---------- */

let chosen = null; // [first, last] reading places
let fixedEnd = 0; // the end of it that stays where it is
let movingEnd = 0;

function choose(from, to = from, { view = true } = {}) {
  fixedEnd = from;
  movingEnd = to;
  chosen = [Math.min(from, to), Math.max(from, to)];
  paint();
  if (view) reveal(order[to]);
  showTools();
}

function unchoose() {
  chosen = null;
  paint();
  showTools();
}

function chosenWords() {
  return chosen ? order.slice(chosen[0], chosen[1] + 1) : [];
}

/** The chosen words, or those of the paragraph that is being read or heard. */
function meant() {
  if (chosen) return chosenWords();
  const paragraph = paragraphs[paragraphNow()];
  return paragraph ? paragraph.words.slice() : [];
}

function paragraphNow() {
  if (chosen) return paragraphOf[order[chosen[0]]];
  const focused = document.activeElement?.closest?.("article.p");
  if (focused) return Number(focused.dataset.paragraph);
  let at = playing >= 0 ? paragraphOf[playing] : -1;
  if (at < 0) {
    at = paragraphs.length - 1;
    while (at > 0 && paragraphs[at].start > position) at -= 1;
  }
  return at;
}

function showTools() {
  const tools = $("tools");
  const ends = chosen && [order[chosen[0]], order[chosen[1]]].map((w) => spans.get(w)).filter(Boolean);
  // A single word was clicked to hear it: nothing should cover its neighbours then.
  tools.hidden = !ends || !ends.length || chosen[0] === chosen[1];
  if (tools.hidden) return;
  const box = ends[0].getBoundingClientRect();
  const width = tools.offsetWidth, height = tools.offsetHeight;
  const below = box.top - height - 8 < barHeight();
  const line = below ? ends[ends.length - 1].getBoundingClientRect().bottom + 8 : box.top - height - 8;
  const left = Math.min(Math.max(8, box.left), document.documentElement.clientWidth - width - 8);
  tools.style.left = `${left + window.scrollX}px`;
  tools.style.top = `${line + window.scrollY}px`;
}

feed.addEventListener("click", (event) => {
  const target = event.target.closest("[data-w], [data-time], button.who");
  if (!target) { unchoose(); return; }
  if (target.matches("button.who")) { speakerMenu(Number(target.dataset.paragraph)); return; }
  if (target.dataset.time !== undefined) {
    event.preventDefault();
    unchoose();
    history.replaceState(null, "", `#t=${(target.dataset.time / 1000).toFixed(1)}`);
    seek(Number(target.dataset.time), true);
    return;
  }
  const dragged = getSelection();
  if (!dragged.isCollapsed) return; // seen to when the pointer went up
  const w = Number(target.dataset.w);
  if (event.shiftKey && chosen) { choose(fixedEnd, place[w], { view: false }); return; }
  choose(place[w], place[w], { view: false });
  seek(words.start[w], event.detail < 2);
});
feed.addEventListener("dblclick", (event) => {
  if (!event.target.closest("[data-w]")) return;
  getSelection().removeAllRanges();
  audio.pause();
  fix();
});
document.addEventListener("pointerup", () => setTimeout(() => {
  const dragged = getSelection();
  if (dragged.isCollapsed || !dragged.rangeCount) return;
  const range = dragged.getRangeAt(0);
  if (!feed.contains(range.commonAncestorContainer)) return;
  const inside = [...spans].filter(([, element]) => range.intersectsNode(element)).map(([w]) => place[w]);
  if (inside.length < 2) return; // a double click
  dragged.removeAllRanges();
  choose(Math.min(...inside), Math.max(...inside), { view: false });
}, 0));

/* ---------- quoting ---------- */

function quotation(list) {
  const lines = [];
  let paragraph = -1;
  for (const w of list) {
    if (paragraphOf[w] !== paragraph) {
      paragraph = paragraphOf[w];
      lines.push(`[${clock(words.start[w])}] ${nameOf(owner[w])}: `);
      lines[lines.length - 1] += texts[w].trimStart();
    } else {
      lines[lines.length - 1] += texts[w];
    }
  }
  return lines.join("\n");
}

let clipping = null;
document.addEventListener("copy", (event) => {
  const typing = event.target.closest?.("input");
  const text = clipping ?? (!typing && chosen && getSelection().isCollapsed ? quotation(chosenWords()) : null);
  if (text === null) return;
  event.clipboardData.setData("text/plain", text);
  event.preventDefault();
});

async function copy(text, what) {
  clipping = text;
  let done = document.execCommand("copy"); // needs no permission, also from a file
  clipping = null;
  // Safari copies so only where something is selected.
  if (!done) done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  toast(done ? what : "this browser did not copy");
}

function quote() {
  const list = meant();
  if (list.length) copy(quotation(list), `Copied: ${shortened(quotation(list))}`);
}

function link() {
  const ms = chosen ? words.start[order[chosen[0]]] : position;
  const hash = `#t=${(ms / 1000).toFixed(1)}`;
  history.replaceState(null, "", hash);
  copy(location.href.replace(/#.*$/, "") + hash, `Copied: link to ${clock(ms)}`);
}

function shortened(text) {
  const letters = [...text];
  return letters.length > 80 ? `${letters.slice(0, 79).join("")}…` : text;
}

function followHash() {
  const match = /^#t=(\d+(?:\.\d+)?)$/.exec(location.hash);
  if (!match) return;
  seek(Number(match[1]) * 1000, false);
  showMoment(true);
}

/** Scroll to what is said at the position, or next after it. */
function showMoment(mark) {
  if (!order.length) {
    if (paragraphs.length) bringIntoView(paragraphs[Math.max(0, paragraphNow())].block);
    return;
  }
  let w = wordAt(position);
  if (w < 0) w = Math.min(texts.length - 1, above(words.start, position));
  while (w < texts.length && place[w] < 0) w += 1;
  if (w >= texts.length) w = order[order.length - 1];
  bringIntoView(blockOf[w]);
  reveal(w, true);
  if (mark) choose(place[w]);
}

/* ---------- correcting ---------- */

function take(...made) {
  if (steps.length < saved) lost = true;
  steps.push(made);
  undone = [];
  refresh();
}

function undo() {
  if (!steps.length) return;
  undone.push(steps.pop());
  refresh();
  toast("Undone");
}

function again() {
  if (!undone.length) return;
  steps.push(undone.pop());
  refresh();
  toast("Done again");
}

function save() {
  if (!steps.length) return;
  const file = new Blob([correctionsFile()], { type: "application/json" });
  const a = make("a");
  a.href = URL.createObjectURL(file);
  a.download = `${data.title.replace(/[^\p{L}\p{N}._ -]/gu, "_").slice(0, 100)}.corrections.json`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
  saved = steps.length;
  lost = false;
  $("save").classList.remove("main");
  toast(`Saved as ${a.download}. witness redo TRANSCRIPT.json --corrections that file -f html applies it.`);
}

window.addEventListener("beforeunload", (event) => {
  if (lost || steps.length !== saved) event.preventDefault();
});

/** The name as witness takes it, or null. */
function checkName(text) {
  const name = text.normalize("NFC").trim();
  const bad = !name || [...name].length > LONGEST_NAME || /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(name);
  return bad ? null : name;
}

function rename(who, text) {
  const name = checkName(text);
  if (name === null) return `A name has 1 to ${LONGEST_NAME} printable characters.`;
  if (name !== names[who]) take({ kind: "name", who, name });
  return null;
}

async function askName(who) {
  await ask(`Who is ${nameOf(who)}?`, "Name, everywhere in this transcript", names[who] ?? "",
    (text) => rename(who, text));
}

async function askMerge(who) {
  const others = speakers.filter((one) => one.who !== who);
  if (!others.length) { toast("There is nobody else to merge with."); return; }
  const other = await pick(`Who is the same person as ${nameOf(who)}?`, "The two become one speaker.",
    others.map((one) => speakerChoice(one.who)));
  if (other === null) return;
  const made = [{ kind: "merge", who: other, gone: who }];
  // Of two names the later one counts for witness: say which.
  if (names[other]) made.push({ kind: "name", who: other, name: names[other] });
  take(...made);
}

function speakerChoice(who) {
  return { value: who, who, label: nameOf(who) };
}

async function askMove(list, title) {
  if (!list.length) { toast("There are no words to give to somebody else."); return; }
  const now = new Set(list.map((w) => owner[w]));
  const others = speakers.filter((one) => now.size > 1 || !now.has(one.who));
  if (!others.length) { toast("There is no other speaker."); return; }
  const who = await pick(title, shortened(list.map((w) => texts[w]).join("").trim()),
    others.map((one) => speakerChoice(one.who)));
  if (who !== null) move(list, who);
}

function move(list, who) {
  take({ kind: "move", who, pieces: piecesOf(list) });
  const w = list.find((one) => place[one] >= 0);
  if (w !== undefined) reveal(w);
}

async function fix() {
  let list = chosenWords();
  if (!list.length && playing >= 0) list = [playing];
  if (!list.length) { toast("Choose a word first: click it, or use the arrow keys."); return; }
  list = list.filter((w) => paragraphOf[w] === paragraphOf[list[0]]);
  const before = list.map((w) => texts[w]).join("").trim();
  await ask("What was said?", "Leave it empty if nothing was.", before, (given) => {
    const text = given.trim();
    if ([...text].length > LONGEST_TEXT || /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text)) {
      return `At most ${LONGEST_TEXT} characters, and no line breaks.`;
    }
    if (text !== before) take({ kind: "text", text, pieces: piecesOf(list) });
    if (place[list[0]] >= 0) choose(place[list[0]]);
    return null;
  });
}

async function speakerMenu(number) {
  const paragraph = paragraphs[number];
  const who = paragraph.who;
  const choices = [];
  if (who >= 0) {
    choices.push({ value: "name", label: `Rename ${nameOf(who)}, everywhere…` });
    if (speakers.length > 1) choices.push({ value: "merge", label: `${nameOf(who)} is the same person as…` });
  }
  if (paragraph.words.length) {
    for (const one of speakers) {
      if (one.who !== who) {
        choices.push({ ...speakerChoice(one.who), label: `${nameOf(one.who)} said this paragraph` });
      }
    }
  }
  const done = await pick(`${nameOf(who)}, ${clock(paragraph.start)}`, "", choices);
  if (done === "name") await askName(who);
  else if (done === "merge") await askMerge(who);
  else if (done !== null) move(paragraph.words, done);
}

/* ---------- dialogs ---------- */

function pick(title, about, choices) {
  const dialog = $("choose"), list = $("choices");
  $("choose-title").textContent = title;
  $("choose-about").textContent = about;
  list.replaceChildren();
  return new Promise((done) => {
    choices.forEach((choice, n) => {
      const button = make("button", "choice");
      button.type = "button";
      const label = make("span", "name", choice.label);
      label.dir = "auto";
      if (choice.who !== undefined) button.append(chip(choice.who));
      button.append(label);
      if (n < 9) button.append(make("kbd", "", n + 1));
      button.addEventListener("click", () => { dialog.close(); done(choice.value); });
      const item = make("li");
      item.append(button);
      list.append(item);
    });
    dialog.onkeydown = (event) => {
      const buttons = [...list.querySelectorAll("button")];
      const at = buttons.indexOf(document.activeElement);
      if (/^[1-9]$/.test(event.key)) buttons[event.key - 1]?.click();
      else if (event.key === "ArrowDown") buttons[(at + 1) % buttons.length]?.focus();
      else if (event.key === "ArrowUp") buttons[(at - 1 + buttons.length) % buttons.length]?.focus();
      else return;
      event.preventDefault();
    };
    dialog.onclose = () => done(null); // which changes nothing if there was a choice
    dialog.showModal();
    list.querySelector("button")?.focus();
  });
}

function ask(title, label, value, accept) {
  const dialog = $("ask"), answer = $("answer");
  $("ask-title").textContent = title;
  $("ask-label").textContent = label;
  $("ask-trouble").textContent = "";
  answer.value = value;
  return new Promise((done) => {
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      const trouble = accept(answer.value);
      $("ask-trouble").textContent = trouble ?? "";
      if (!trouble) dialog.close();
    };
    dialog.onclose = () => done();
    dialog.showModal();
    answer.select();
  });
}

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector("[data-close]")?.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

/* ---------- speakers ---------- */

function showSpeakers() {
  const list = $("speakers");
  list.replaceChildren(...speakers.map(({ who, seconds, share }) => {
    const item = make("li", look(who));
    const row = make("div", "row");
    const name = make("button", "name", nameOf(who));
    name.type = "button";
    name.dir = "auto";
    name.title = "Rename";
    name.setAttribute("aria-label", `Rename ${nameOf(who)}`);
    name.addEventListener("click", () => renameHere(name, who));
    row.append(chip(who), name);
    if (speakers.length > 1) {
      const merge = make("button", "flat small", "merge");
      merge.type = "button";
      merge.setAttribute("aria-label", `${nameOf(who)} is the same person as another speaker`);
      merge.title = "The same person as another speaker";
      merge.addEventListener("click", () => askMerge(who));
      row.append(merge);
    }
    const bar = make("div", "share");
    const filled = make("span");
    filled.style.width = `${(100 * share).toFixed(1)}%`;
    bar.append(filled);
    item.append(row, bar, make("p", "quiet", `${Math.round(100 * share)} % · ${span(seconds)}`));
    return item;
  }));
  $("speakers-title").textContent = speakers.length === 1 ? "1 speaker" : `${speakers.length} speakers`;
}

function renameHere(button, who) {
  const field = make("input", "name");
  field.value = names[who] ?? "";
  field.placeholder = data.speakers[who][0];
  field.dir = "auto";
  field.setAttribute("aria-label", `Name of ${nameOf(who)}`);
  let done = false;
  const finish = (keep) => {
    if (done) return;
    done = true;
    const trouble = keep && field.value.trim() ? rename(who, field.value) : null;
    if (trouble) toast(trouble);
    if (field.isConnected) field.replaceWith(button);
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "Escape") {
      finish(event.key === "Enter");
      const item = $("speakers").children[speakers.findIndex((one) => one.who === who)];
      item?.querySelector("button.name")?.focus();
    }
  });
  field.addEventListener("blur", () => finish(true));
  button.replaceWith(field);
  field.select();
  field.focus();
}

/* ---------- search ---------- */

let found = []; // [first, last] reading places
let foundNow = -1;
let haystack = null; // {text, at}: everything in small letters, and where each reading place begins

function index() {
  const at = new Float64Array(order.length + 1);
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
  haystack = { text: parts.join(""), at };
}

function search(anew = true) {
  const wanted = $("query").value.trim().toLocaleLowerCase().replace(/\s+/g, " ");
  const before = foundNow;
  found = [];
  foundNow = -1;
  haystack = anew ? haystack : null;
  if (wanted) {
    if (!haystack) index();
    for (let at = haystack.text.indexOf(wanted); at >= 0; at = haystack.text.indexOf(wanted, at + 1)) {
      const first = Math.max(0, above(haystack.at, at, order.length) - 1);
      const end = Math.max(first, above(haystack.at, at + wanted.length - 1, order.length) - 1);
      if (!found.length || found[found.length - 1][1] < first) found.push([first, end]);
    }
    if (!anew) foundNow = Math.min(before, found.length - 1);
  }
  $("next").disabled = $("previous").disabled = !found.length;
  showHits(wanted);
  if (anew) {
    paint();
    drawTimeline();
  }
}

function showHits(wanted = $("query").value.trim()) {
  $("hits").textContent = !wanted ? "" : !found.length ? "none"
    : foundNow < 0 ? `${found.length}` : `${foundNow + 1} of ${found.length}`;
}

/** The match that a reading place belongs to, or -1. */
function hitAt(at) {
  let low = 0, high = found.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (found[middle][1] < at) low = middle + 1; else high = middle;
  }
  return low < found.length && found[low][0] <= at ? low : -1;
}

function goTo(step) {
  if (!found.length) return;
  if (foundNow < 0) {
    const here = above(words.start, position);
    foundNow = found.findIndex(([first]) => order[first] >= here - 1);
    if (foundNow < 0) foundNow = 0;
    if (step < 0) foundNow = (foundNow - 1 + found.length) % found.length;
  } else {
    foundNow = (foundNow + step + found.length) % found.length;
  }
  const w = order[found[foundNow][0]];
  bringIntoView(blockOf[w]);
  reveal(w, true);
  showHits();
  paint();
  drawTimeline();
}

let typed = 0;
$("query").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => { search(); goTo(1); }, 150);
});
$("search").addEventListener("submit", (event) => event.preventDefault());
$("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); goTo(event.shiftKey ? -1 : 1); }
  if (event.key === "Escape") { $("query").value = ""; search(); main.focus({ preventScroll: true }); }
});
$("next").addEventListener("click", () => goTo(1));
$("previous").addEventListener("click", () => goTo(-1));

/* ---------- timeline ---------- */

const canvas = $("timeline"), pen = canvas.getContext("2d");
const backdrop = document.createElement("canvas"), ink = backdrop.getContext("2d"); // all but the playhead
const peaks = data.peaks ? Uint8Array.from(atob(data.peaks), (sign) => sign.charCodeAt(0)) : null;
const AXIS = 16;
let view = [0, data.duration || 1];
let geometry = null;

function timelineLayout() {
  const width = canvas.clientWidth;
  const narrow = width < 600;
  const wave = peaks ? (narrow ? 26 : 36) : 0;
  const lane = Math.max(narrow ? 6 : 7, Math.min(16, Math.floor((narrow ? 84 : 132) / Math.max(1, speakers.length))));
  const label = narrow ? 26 : 104;
  const height = wave + (wave ? 6 : 0) + lane * speakers.length + AXIS + 2;
  const scale = window.devicePixelRatio || 1;
  for (const each of [canvas, backdrop]) {
    each.width = Math.round(width * scale);
    each.height = Math.round(height * scale);
  }
  canvas.style.height = `${height}px`;
  return { width, height, wave, lane, label, scale, narrow, right: 8, lanes: wave + (wave ? 6 : 0) };
}

function across(ms) {
  const { width, label, right } = geometry;
  return label + ((ms - view[0]) / (view[1] - view[0])) * (width - label - right);
}

function timeAcross(x) {
  const { width, label, right } = geometry;
  return view[0] + ((x - label) / (width - label - right)) * (view[1] - view[0]);
}

function stripes(colour, paper) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = colour;
  brush.fillRect(0, 0, 6, 6);
  brush.fillStyle = paper;
  brush.fillRect(0, 0, 2, 6);
  return ink.createPattern(tile, "repeat");
}

function drawTimeline() {
  geometry = timelineLayout();
  const { width, height, wave, lane, label, scale, lanes, right, narrow } = geometry;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const paper = colour("--paper");
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.clearRect(0, 0, width, height);
  ink.save();
  ink.beginPath();
  ink.rect(label, 0, width - label - right, height);
  ink.clip();
  if (peaks) {
    ink.fillStyle = colour("--wave");
    for (let x = label; x < width - right; x += 1) {
      const from = Math.floor((timeAcross(x) / data.duration) * peaks.length);
      const to = Math.max(from + 1, Math.ceil((timeAcross(x + 1) / data.duration) * peaks.length));
      let most = 0;
      for (let n = Math.max(0, from); n < Math.min(to, peaks.length); n += 1) most = Math.max(most, peaks[n]);
      const tall = Math.max(0.5, (most / 255) ** 0.75 * (wave / 2 - 1));
      ink.fillRect(x, wave / 2 - tall, 0.8, 2 * tall);
    }
  }
  speakers.forEach((_, row) => {
    ink.fillStyle = colour("--lane");
    ink.fillRect(label, lanes + row * lane + 1, width - label - right, lane - 2);
  });
  const rows = new Map(speakers.map(({ who }, row) => [who, row]));
  const fills = new Map(speakers.map(({ who }) => {
    const plain = colour(`--c${who % COLOURS}`);
    return [who, Math.floor(who / COLOURS) % 2 ? stripes(plain, paper) : plain];
  }));
  for (let turn = 0; turn < turns.start.length; turn += 1) {
    if (turns.end[turn] < view[0] || turns.start[turn] > view[1]) continue;
    const who = last(turns.speaker[turn]);
    const x = across(turns.start[turn]);
    ink.fillStyle = fills.get(who);
    ink.fillRect(x, lanes + rows.get(who) * lane + 1, Math.max(1, across(turns.end[turn]) - x), lane - 2);
  }
  ink.fillStyle = colour("--mark");
  for (const [first] of found) {
    const x = across(words.start[order[first]]);
    if (x >= label) ink.fillRect(x - 1, 0, 2, lanes + lane * speakers.length);
  }
  ink.restore();
  ink.textBaseline = "middle";
  ink.font = `${Math.min(11, lane)}px ${style.getPropertyValue("--sans")}`;
  speakers.forEach(({ who }, row) => {
    ink.fillStyle = colour("--ink");
    let text = narrow ? initials(who) : nameOf(who);
    if (lane < 9 && row % 2) text = "";
    const letters = [...text];
    while (letters.length > 1 && ink.measureText(text).width > label - 12) {
      letters.pop();
      text = `${letters.join("")}…`;
    }
    ink.fillText(text, 0, lanes + row * lane + lane / 2 + 0.5);
  });
  drawAxis(colour);
  document.documentElement.style.setProperty("--bar", `${barHeight()}px`);
  $("whole").textContent = ` / ${clock(data.duration)}`;
  $("wider").disabled = view[1] - view[0] >= data.duration;
  drawPlayhead();
}

function drawAxis(colour) {
  const { width, height, label, right } = geometry;
  const seconds = (view[1] - view[0]) / 1000;
  const most = Math.max(2, Math.floor((width - label - right) / 90));
  const sizes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];
  const step = (sizes.find((size) => seconds / size <= most) ?? 28800) * 1000;
  ink.fillStyle = colour("--faint");
  ink.font = `10px ${colour("--sans")}`;
  ink.textBaseline = "alphabetic";
  for (let ms = Math.ceil(view[0] / step) * step; ms <= view[1]; ms += step) {
    const x = across(ms);
    ink.fillRect(x, height - AXIS, 1, 4);
    const text = data.duration >= 3600000 ? clock(ms) : clock(ms).slice(3);
    if (x + ink.measureText(text).width < width) ink.fillText(text, x + 3, height - 3);
  }
}

function drawPlayhead() {
  if (!geometry) return;
  const { width, height, scale, label, right } = geometry;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(backdrop, 0, 0);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const x = across(position);
  if (x >= label - 1 && x <= width - right + 1) {
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue("--accent");
    pen.fillRect(x - 1, 0, 2, height - AXIS + 2);
    pen.beginPath();
    pen.arc(x, 3, 3.5, 0, 7);
    pen.fill();
  }
  canvas.setAttribute("aria-valuemax", Math.round(data.duration / 1000));
  canvas.setAttribute("aria-valuenow", Math.round(position / 1000));
  canvas.setAttribute("aria-valuetext", clock(position));
}

/** Who talks at a time. */
function talking(ms) {
  const who = new Set();
  for (let turn = 0; turn < turns.start.length && turns.start[turn] <= ms; turn += 1) {
    if (turns.end[turn] > ms) who.add(last(turns.speaker[turn]));
  }
  return [...who].map(nameOf);
}

function zoom(factor, centre = position) {
  const least = Math.min(data.duration, 10000);
  const size = Math.min(data.duration, Math.max(least, (view[1] - view[0]) * factor));
  const share = Math.min(1, Math.max(0, (centre - view[0]) / (view[1] - view[0])));
  const start = Math.min(Math.max(0, centre - share * size), data.duration - size);
  view = [start, start + size];
  drawTimeline();
}

function followTimeline() {
  if (position >= view[0] && position <= view[1]) return;
  const size = view[1] - view[0];
  const start = Math.min(Math.max(0, position - 0.1 * size), data.duration - size);
  view = [start, start + size];
  drawTimeline();
}

let pressed = false;
canvas.addEventListener("pointerdown", (event) => {
  pressed = true;
  canvas.setPointerCapture(event.pointerId);
  seek(timeAcross(event.offsetX), false);
});
canvas.addEventListener("pointermove", (event) => {
  const ms = timeAcross(event.offsetX);
  const hint = $("hint");
  hint.hidden = ms < view[0] || ms > view[1];
  if (!hint.hidden) {
    hint.textContent = [clock(ms), ...talking(ms)].join(" · ");
    hint.style.left = `${Math.min(event.offsetX, geometry.width - hint.offsetWidth - 4)}px`;
  }
  if (pressed) seek(ms, false);
});
canvas.addEventListener("pointerup", () => {
  if (!pressed) return;
  pressed = false;
  unchoose();
  if (hasSound) audio.play().catch(() => {});
  showMoment(false);
});
canvas.addEventListener("pointercancel", () => { pressed = false; });
canvas.addEventListener("pointerleave", () => { $("hint").hidden = true; });
canvas.addEventListener("wheel", (event) => {
  if (event.ctrlKey) {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, timeAcross(event.offsetX));
  } else if (event.deltaX || event.shiftKey) {
    event.preventDefault();
    const size = view[1] - view[0];
    const step = ((event.deltaX || event.deltaY) / geometry.width) * size;
    const start = Math.min(Math.max(0, view[0] + step), data.duration - size);
    view = [start, start + size];
    drawTimeline();
  }
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const jump = { ArrowLeft: -5, ArrowRight: 5, ArrowDown: -5, ArrowUp: 5, PageDown: -60, PageUp: 60 }[event.key];
  if (event.key === "Home") seek(0);
  else if (event.key === "End") seek(data.duration);
  else if (jump) seek(position + jump * 1000);
  else return;
  showMoment(false);
  event.preventDefault();
  event.stopPropagation();
});

/* ---------- keys and buttons ---------- */

function step(by, extend) {
  if (!order.length) return;
  let at;
  if (chosen) {
    at = Math.min(order.length - 1, Math.max(0, movingEnd + by));
  } else {
    const w = wordAt(position);
    at = w >= 0 ? place[w] : Math.max(0, place[Math.max(0, above(words.start, position) - 1)]);
  }
  choose(extend && chosen ? fixedEnd : at, at);
  if (!extend) seek(words.start[order[at]], false);
  $("announce").textContent = `${texts[order[at]].trim()}, ${nameOf(owner[order[at]])}`;
}

function stepParagraph(by) {
  const wordy = paragraphs.map((paragraph, n) => n).filter((n) => paragraphs[n].words.length);
  const now = paragraphNow();
  if (!wordy.length) {
    const next = paragraphs[Math.min(paragraphs.length - 1, Math.max(0, now + by))];
    if (next) { seek(next.start, false); bringIntoView(next.block); }
    return;
  }
  const at = wordy.indexOf(now);
  const next = paragraphs[wordy[Math.min(wordy.length - 1, Math.max(0, at + by))]];
  choose(place[next.words[0]]);
  seek(next.start, false);
  $("announce").textContent = `${nameOf(next.who)}, ${clock(next.start)}: ${shortened(quotation(next.words))}`;
}

const actions = {
  copy: quote, link, move: () => askMove(meant(), "Who said this?"), fix,
};
const keys = {
  " ": toggle,
  c: quote,
  l: link,
  e: fix,
  F2: fix,
  m: actions.move,
  r: () => withSpeaker(askName),
  g: () => withSpeaker(askMerge),
  n: () => goTo(1),
  N: () => goTo(-1),
  "/": () => $("query").select(),
  "?": () => $("keys").showModal(),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  ",": () => seek(position - 5000),
  ".": () => seek(position + 5000),
  Escape: unchoose,
};

/** Whether the words go on to the left where we are. */
function rightToLeft() {
  const here = spans.get(chosen ? order[movingEnd] : playing) ?? spans.values().next().value;
  return Boolean(here) && getComputedStyle(here).direction === "rtl";
}

function withSpeaker(action) {
  const paragraph = paragraphs[paragraphNow()];
  if (paragraph && paragraph.who >= 0) action(paragraph.who);
}

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.altKey || event.isComposing) return;
  const key = event.key.length === 1 && event.key !== "N" ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) {
    if (key === "z" && !event.target.closest("input")) { if (event.shiftKey) again(); else undo(); }
    else if (key === "y" && !event.target.closest("input")) again();
    else if (key === "s") save();
    else if (key === "f" && document.activeElement !== $("query")) $("query").select();
    else return;
    event.preventDefault();
    return;
  }
  if (event.target.closest("input, select, textarea")) return;
  const onButton = event.target.closest("button, a");
  if (onButton && (key === " " || key === "Enter")) return;
  const way = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (way) step(rightToLeft() ? -way : way, event.shiftKey);
  else if (key === "ArrowUp" || key === "ArrowDown") stepParagraph(key === "ArrowUp" ? -1 : 1);
  else if (keys[key]) keys[key]();
  else return;
  event.preventDefault();
});

$("play").addEventListener("click", toggle);
$("rate").addEventListener("change", () => { audio.playbackRate = Number($("rate").value); });
$("undo").addEventListener("click", undo);
$("save").addEventListener("click", save);
$("help").addEventListener("click", () => $("keys").showModal());
$("closer").addEventListener("click", () => zoom(0.5));
$("wider").addEventListener("click", () => zoom(2));
$("tools").addEventListener("click", (event) => actions[event.target.closest("button")?.dataset.do]?.());

for (const event of ["wheel", "touchmove"]) {
  window.addEventListener(event, () => { following = false; }, { passive: true });
}
window.addEventListener("scroll", soon, { passive: true });
let lastWidth = window.innerWidth;
window.addEventListener("resize", () => {
  drawTimeline();
  if (window.innerWidth === lastWidth) { soon(); return; }
  lastWidth = window.innerWidth;
  clear();
  layOut();
  render();
  showTools();
});
window.addEventListener("hashchange", followHash);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);

window.addEventListener("beforeprint", () => {
  printing = true;
  clear();
  $("before").style.height = $("after").style.height = "0";
  for (const paragraph of paragraphs) {
    const element = make("article", "p printed");
    const name = make("span", "name", nameOf(paragraph.who));
    name.dir = "auto";
    const head = make("header");
    head.append(name, make("span", "time", clock(paragraph.start)));
    const text = paragraph.words.map((w) => texts[w]).join("").trim();
    const said = make("p", "said", text || (data.listened ? "[inaudible]" : `until ${clock(paragraph.end)}`));
    said.dir = "auto";
    element.append(head, said);
    if (paragraph.who < 0) element.classList.add("ghosts");
    feed.append(element);
  }
});
window.addEventListener("afterprint", () => {
  feed.replaceChildren();
  printing = false;
  clear();
  layOut();
  render();
});

const announce = make("p", "hidden");
announce.id = "announce";
announce.setAttribute("aria-live", "polite");
document.body.append(announce);

derive();
layOut();
refresh();
openSound();
followHash();
document.documentElement.dataset.ready = "yes";
})();
