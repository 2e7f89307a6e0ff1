// @ts-check
/* The sound, and the position in it. */
import { above } from "./transcript.js";
import { clock } from "./clock.js";
import { $ } from "./dom.js";
import { data, page, tell, words } from "./state.js";
import { paint, reveal } from "./text.js";

export const audio = new Audio();
let origin = 0; // where the sound begins in the recording

/* During a press or a double click the page does not scroll by itself: the click would be on another word. */
let calm = 0; // until when, by performance.now()
window.addEventListener("pointerdown", (event) => { if (!event.button) calm = Infinity; }, true);
for (const event of ["pointerup", "pointercancel"]) {
  window.addEventListener(event, () => { calm = performance.now() + 500; }, true);
}
/** Return whether no button is pressed, so that the page may change. */
export const isCalm = () => performance.now() > calm;

export function openSound() {
  const embedded = document.getElementById("sound");
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
    origin = data.start;
  } else if (data.link) {
    audio.src = data.link;
  }
  page.hasSound = Boolean(audio.src);
  audio.preload = "metadata";
  if (page.position > origin) audio.currentTime = (page.position - origin) / 1000;
  showSound();
  showPosition();
}

function showSound() {
  const { hasSound } = page;
  $("play").hidden = $("speed").hidden = !hasSound;
  $("soundless").hidden = hasSound;
  const pause = hasSound && !audio.paused;
  $("play").classList.toggle("pause", pause);
  $("play").setAttribute("aria-label", pause ? "Pause" : "Play");
}

audio.addEventListener("error", () => {
  page.hasSound = false;
  $("soundless").textContent = page.desk ? page.desk.soundless : data.link
    ? `the recording is not at ${safely(data.link)}, or this browser cannot play it`
    : "this browser cannot play the sound";
  showSound();
});
for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, () => { showSound(); tick(); });
audio.addEventListener("seeked", tick);

/** @param {string} url */
function safely(url) {
  try { return decodeURIComponent(url); } catch { return url; }
}

export function play() {
  if (page.hasSound) audio.play().catch(() => {});
}

/** Hear a stretch, once. @param {number} from @param {number} to */
export function playStretch(from, to) {
  seek(from, true);
  player.until = to;
}

export function toggle() {
  if (!page.hasSound) return;
  player.until = Infinity;
  page.following = true;
  if (audio.paused) play(); else audio.pause();
}

/** Pause, or go on a little before the pause, as typists need it. */
export function resume() {
  if (page.hasSound && audio.paused) {
    const following = page.following;
    seek(page.position - player.back);
    page.following = following;
  }
  toggle();
}

/** The way of listening: `back` are ms, `loop` a stretch that is heard again and again, `until`
    where it ends by itself. */
export const player = { back: 2000, skips: false, loop: /** @type {[number, number] | null} */ (null), until: Infinity };
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3];
const PAUSE = 1000, LEAD = 200; // ms of silence that are skipped, but for the last of them

/** Listen at the next faster speed, or with -1 the next slower one. @param {number} by */
export function faster(by) {
  const at = SPEEDS.indexOf(audio.playbackRate) + by;
  setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at))]);
}

/** @param {number} speed */
export function setSpeed(speed) {
  audio.playbackRate = audio.defaultPlaybackRate = speed;
  $("rate").value = String(speed);
}

/** Return the end of the pause at `ms`; null without a pause that is long enough. @param {number} ms */
export function afterPause(ms, { start, end } = data.turns) {
  let next = Infinity;
  for (let n = 0; n < start.length; n += 1) {
    if (start[n] <= ms && ms < end[n] + LEAD) return null;
    if (start[n] > ms) { next = start[n]; break; } // in order of their starts
  }
  return next - ms > PAUSE && next < Infinity ? next - LEAD : null;
}

/** @param {number} ms @param {boolean} [playing] */
export function seek(ms, playing = false) {
  page.position = Math.min(Math.max(data.start, ms), data.end);
  page.following = true;
  player.until = Infinity;
  if (page.hasSound) {
    audio.currentTime = (page.position - origin) / 1000;
    if (playing) play();
  }
  showPosition();
}

/** The word that is spoken at a time; of several, the one that began last. @param {number} ms */
export function wordAt(ms) {
  const next = above(words.start, ms);
  for (let w = next - 1; w >= Math.max(0, next - 8); w -= 1) {
    if (page.place[w] >= 0 && ms < Math.max(words.end[w], words.start[w] + 1)) return w;
  }
  return -1;
}

function showPosition() {
  $("now").textContent = clock(page.position);
  const w = wordAt(page.position);
  if (w !== page.playing) {
    const before = page.playing;
    page.playing = w;
    paint([before, w]);
    if (w >= 0 && page.following && page.hasSound && !audio.paused && isCalm()) reveal(w);
  }
  tell("position");
}

let ticking = false;
function tick() {
  if (page.hasSound && !audio.seeking) page.position = audio.currentTime * 1000 + origin;
  if (!audio.paused && !audio.seeking) {
    const { loop, skips } = player;
    const on = skips ? afterPause(page.position) : null;
    if (page.position >= player.until) audio.pause();
    else if (loop && (page.position >= loop[1] || page.position < loop[0] - PAUSE)) seek(loop[0]);
    else if (on !== null) seek(on);
  }
  if (page.position > data.end + 250 && !audio.paused) audio.pause(); // the recording goes on after the part
  showPosition();
  if (!audio.paused && !ticking) {
    ticking = true;
    requestAnimationFrame(() => { ticking = false; tick(); });
  }
}
