// @ts-check
/* The timeline: a lane per speaker, below the outline of the sound. */
import { clock } from "./clock.js";
import { last } from "./derive.js";
import { $, enable } from "./dom.js";
import { COLORS, isStriped } from "./colors.js";
import { initials, nameOf } from "./names.js";
import { showMoment, unchoose } from "./selection.js";
import { play, seek } from "./sound.js";
import { data, edits, on, page, tell, words } from "./state.js";
import { barHeight } from "./text.js";

const AXIS = 16;
const LEGIBLE = 11; // pixels of a lane, if each has a name
const duration = data.end - data.start; // of the part of the recording that was transcribed
/* The canvas stays in its place while its box is scrolled; the element below it only makes the box as long as all lanes. */
const box = $("lanes"), canvas = $("timeline"), pen = pencil(canvas);
const backdrop = document.createElement("canvas"), ink = pencil(backdrop); // everything but the playhead
let peaks = data.peaks ? Uint8Array.from(atob(data.peaks), (sign) => sign.charCodeAt(0)) : null;
let outlined = peaks !== null || data.served !== undefined; // or it is on its way, and nothing is to move when it comes
let view = [data.start, data.start + (duration || 1)];

/** @typedef {ReturnType<typeof timelineLayout>} Geometry @type {Geometry | null} */
let geometry = null;

/** @param {HTMLCanvasElement} paper */
function pencil(paper) {
  const found = paper.getContext("2d");
  if (!found) throw new Error("this browser cannot draw");
  return found;
}

/** Draw this outline of the sound, a byte a peak; null: there is none. @param {Uint8Array<ArrayBuffer> | null} given */
export function setPeaks(given) {
  peaks = given;
  outlined = given !== null;
  drawTimeline();
}

function timelineLayout() {
  const narrow = box.clientWidth < 600;
  const rows = page.speakers.length;
  const wave = outlined ? (narrow ? 26 : 36) : 0;
  const room = Math.min(narrow ? 84 : 132, Math.max(4 * LEGIBLE, Math.round(0.15 * window.innerHeight)));
  const fitting = Math.min(16, Math.floor(room / Math.max(1, rows)));
  const scrolls = fitting < (narrow ? 6 : 7); // the lanes, below the outline and above the times
  const lane = scrolls ? LEGIBLE : fitting;
  const label = narrow ? 26 : 104;
  const above = wave + (wave ? 6 : 0);
  const shown = scrolls ? LEGIBLE * (Math.floor(room / LEGIBLE) - 0.5) : lane * rows; // half a lane says that there are more
  const height = above + shown + AXIS + 2;
  box.style.height = `${height}px`;
  $("below").style.height = `${lane * rows - shown}px`;
  if (scrolls) {
    for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", `${rows} speakers`]]) box.setAttribute(name, value);
  } else for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
  const width = canvas.clientWidth;
  const scale = window.devicePixelRatio || 1;
  for (const each of [canvas, backdrop]) {
    each.width = Math.round(width * scale);
    each.height = Math.round(height * scale);
  }
  canvas.style.height = `${height}px`;
  return { width, height, wave, lane, label, scale, narrow, right: 8, above, lanes: above - box.scrollTop };
}

/** @param {Geometry} geometry @param {number} ms */
function across({ width, label, right }, ms) {
  return label + ((ms - view[0]) / (view[1] - view[0])) * (width - label - right);
}

/** @param {Geometry} geometry @param {number} x */
function timeAcross({ width, label, right }, x) {
  return view[0] + ((x - label) / (width - label - right)) * (view[1] - view[0]);
}

/** Return the place of a time on the canvas, in pixels from its left; null: it is outside the part that is shown. @param {number} ms */
export function xOf(ms) {
  return geometry && ms >= view[0] && ms <= view[1] ? across(geometry, ms) : null;
}

/** The time at a place of the canvas. @param {number} x */
export const timeAt = (x) => (geometry ? timeAcross(geometry, x) : data.start);

/** @param {string} color @param {string} paper */
function stripes(color, paper) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = pencil(tile);
  brush.fillStyle = color;
  brush.fillRect(0, 0, 6, 6);
  brush.fillStyle = paper;
  brush.fillRect(0, 0, 2, 6);
  return ink.createPattern(tile, "repeat") ?? color;
}

export function drawTimeline() {
  geometry = canvas.clientWidth ? timelineLayout() : null; // nothing to draw on while printing
  if (!geometry) return;
  const { width, height, label, scale, right } = geometry;
  const style = getComputedStyle(document.documentElement);
  const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.clearRect(0, 0, width, height);
  ink.save();
  ink.beginPath();
  ink.rect(label, 0, width - label - right, height);
  ink.clip();
  drawOutline(geometry, color("--wave"));
  ink.save();
  clipLanes(geometry);
  drawTurns(geometry, color);
  ink.restore();
  ink.fillStyle = color("--focus");
  ink.fillRect(across(geometry, data.start), 0, across(geometry, 1000 * edits.review.until) - across(geometry, data.start), 2);
  ink.fillStyle = color("--mark");
  for (const [first] of page.hits) {
    const x = across(geometry, words.start[page.order[first]]);
    if (x >= label) ink.fillRect(x - 1, 0, 2, height - AXIS - 2);
  }
  ink.restore();
  ink.save();
  clipLanes(geometry);
  drawNames(geometry, color);
  ink.restore();
  drawAxis(geometry, color);
  document.documentElement.style.setProperty("--bar", `${barHeight()}px`);
  $("whole").textContent = ` / ${clock(data.end)}`;
  enable($("wider"), view[1] - view[0] < duration);
  drawPlayhead();
  tell("drawn");
}

/** Draw nothing but lanes. @param {Geometry} geometry */
function clipLanes({ width, height, above }) {
  ink.beginPath();
  ink.rect(0, above, width, height - AXIS - 2 - above);
  ink.clip();
}

/** @typedef {(name: string) => string} Color of the style sheet, by its name */

/** @param {Geometry} frame @param {string} color */
function drawOutline(frame, color) {
  if (!peaks) return;
  const { width, label, right, wave } = frame;
  const place = (/** @type {number} */ x) => ((timeAcross(frame, x) - data.start) / duration) * (peaks?.length ?? 0);
  ink.fillStyle = color;
  for (let x = label; x < width - right; x += 1) {
    const from = Math.floor(place(x));
    const to = Math.max(from + 1, Math.ceil(place(x + 1)));
    let most = 0;
    for (let n = Math.max(0, from); n < Math.min(to, peaks.length); n += 1) most = Math.max(most, peaks[n]);
    const tall = Math.max(0.5, (most / 255) ** 0.75 * (wave / 2 - 1));
    ink.fillRect(x, wave / 2 - tall, 0.8, 2 * tall);
  }
}

/** @param {Geometry} frame @param {Color} color */
function drawTurns(frame, color) {
  const { width, lane, label, lanes, right } = frame;
  const { speakers, turns, same } = page;
  speakers.forEach((_, row) => {
    ink.fillStyle = color("--lane");
    ink.fillRect(label, lanes + row * lane + 1, width - label - right, lane - 2);
  });
  const looks = new Map(speakers.map(({ who }, row) => {
    const plain = color(`--c${who % COLORS}`);
    return [who, { row, fill: isStriped(who) ? stripes(plain, color("--paper")) : plain }];
  }));
  for (let turn = 0; turn < turns.start.length; turn += 1) {
    if (turns.end[turn] < view[0] || turns.start[turn] > view[1]) continue;
    const look = looks.get(last(same, turns.speaker[turn]));
    if (!look) continue;
    const x = across(frame, turns.start[turn]);
    const wide = Math.max(1, across(frame, turns.end[turn]) - x);
    ink.fillStyle = look.fill;
    ink.fillRect(x, lanes + look.row * lane + 1, wide, lane - 2);
  }
}

/** @param {Geometry} geometry @param {Color} color */
function drawNames({ lane, label, lanes, narrow }, color) {
  ink.textBaseline = "middle";
  ink.font = `${Math.min(11, lane)}px ${color("--sans")}`;
  page.speakers.forEach(({ who }, row) => {
    ink.fillStyle = color("--ink");
    let text = narrow ? initials(who) : nameOf(who);
    if (lane < 9 && row % 2) text = "";
    const letters = [...text];
    while (letters.length > 1 && ink.measureText(text).width > label - 12) {
      letters.pop();
      text = `${letters.join("")}…`;
    }
    ink.fillText(text, 0, lanes + row * lane + lane / 2 + 0.5);
  });
}

/** @param {Geometry} frame @param {Color} color */
function drawAxis(frame, color) {
  const { width, height, label, right } = frame;
  const seconds = (view[1] - view[0]) / 1000;
  const most = Math.max(2, Math.floor((width - label - right) / 90));
  const sizes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];
  const step = (sizes.find((size) => seconds / size <= most) ?? 28800) * 1000;
  ink.fillStyle = color("--faint");
  ink.font = `10px ${color("--sans")}`;
  ink.textBaseline = "alphabetic";
  for (let ms = Math.ceil(view[0] / step) * step; ms <= view[1]; ms += step) {
    const x = across(frame, ms);
    ink.fillRect(x, height - AXIS, 1, 4);
    const text = data.end >= 3600000 ? clock(ms) : clock(ms).slice(3);
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
  const x = across(geometry, page.position);
  if (x >= label - 1 && x <= width - right + 1) {
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue("--accent");
    pen.fillRect(x - 1, 0, 2, height - AXIS + 2);
    pen.beginPath();
    pen.arc(x, 3, 3.5, 0, 7);
    pen.fill();
  }
  canvas.setAttribute("aria-valuemax", String(Math.round(data.end / 1000)));
  canvas.setAttribute("aria-valuenow", String(Math.round(page.position / 1000)));
  canvas.setAttribute("aria-valuetext", clock(page.position));
}

/** The names of those who speak at a time. @param {number} ms */
function talking(ms) {
  const { turns, same } = page;
  const who = new Set();
  for (let turn = 0; turn < turns.start.length && turns.start[turn] <= ms; turn += 1) {
    if (turns.end[turn] > ms) who.add(last(same, turns.speaker[turn]));
  }
  return [...who].map(nameOf);
}

/** Show so much of the recording from there on, as far as it goes. @param {number} start @param {number} size */
function show(start, size) {
  const from = Math.min(Math.max(data.start, start), data.end - size);
  view = [from, from + size];
  drawTimeline();
}

/** @param {number} factor @param {number} [center] */
export function zoom(factor, center = page.position) {
  const least = Math.min(duration, 10000);
  const size = Math.min(duration, Math.max(least, (view[1] - view[0]) * factor));
  const share = Math.min(1, Math.max(0, (center - view[0]) / (view[1] - view[0])));
  show(center - share * size, size);
}

/** Show a stretch, with as much before and after it, if it cannot be seen well. @param {number} from @param {number} to */
export function showStretch(from, to) {
  const size = view[1] - view[0], length = to - from;
  if (from >= view[0] && to <= view[1] && length > size / 20) return;
  const wanted = Math.min(duration, Math.max(10000, 3 * length));
  show((from + to - wanted) / 2, wanted);
}

on("position", () => {
  const size = view[1] - view[0];
  if (page.position < view[0] || page.position > view[1]) show(page.position - 0.1 * size, size);
  drawPlayhead();
});

/* ---------- the mouse and the keyboard ---------- */

/** The position before the timeline was pressed. @type {number | null} */
let pressed = null;
canvas.addEventListener("pointerdown", (event) => {
  if (event.button || !geometry) return; // a menu comes up
  pressed = page.position;
  canvas.setPointerCapture(event.pointerId);
  seek(timeAcross(geometry, event.offsetX));
});
canvas.addEventListener("pointermove", (event) => {
  if (!geometry) return;
  const ms = timeAcross(geometry, event.offsetX);
  const hint = $("hint");
  hint.hidden = ms < view[0] || ms > view[1];
  if (!hint.hidden) {
    hint.textContent = [clock(ms), ...talking(ms)].join(" · ");
    hint.style.left = `${Math.min(event.offsetX, geometry.width - hint.offsetWidth - 4)}px`;
  }
  if (pressed !== null) seek(ms);
});
canvas.addEventListener("pointerup", () => {
  if (pressed === null) return;
  pressed = null;
  unchoose();
  play();
  showMoment(false);
});
canvas.addEventListener("pointercancel", () => { // a finger scrolls the page
  if (pressed !== null) seek(pressed);
  pressed = null;
});
canvas.addEventListener("pointerleave", () => { $("hint").hidden = true; });
canvas.addEventListener("wheel", (event) => {
  if (!geometry) return;
  if (event.ctrlKey) {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, timeAcross(geometry, event.offsetX));
  } else if (event.deltaX || event.shiftKey) {
    event.preventDefault();
    const size = view[1] - view[0];
    show(view[0] + ((event.deltaX || event.deltaY) / geometry.width) * size, size);
  }
}, { passive: false });
box.addEventListener("scroll", drawTimeline);
box.addEventListener("keydown", (event) => { // the keys of scrolling
  if (event.target === box && /^(Arrow(Up|Down)|Page|Home|End)/.test(event.key)) event.stopPropagation();
});
/** @type {Record<string, number>} */
const JUMPS = { ArrowLeft: -5, ArrowRight: 5, ArrowDown: -5, ArrowUp: 5, PageDown: -60, PageUp: 60 };
canvas.addEventListener("keydown", (event) => {
  const jump = JUMPS[event.key];
  if (event.key === "Home") seek(data.start);
  else if (event.key === "End") seek(data.end);
  else if (jump) seek(page.position + jump * 1000);
  else return;
  showMoment(false);
  event.preventDefault();
  event.stopPropagation();
});
