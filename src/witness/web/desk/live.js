// @ts-check
/* A recording while it is transcribed: the final text so far, with the sound. Nothing can be changed here; once all is
   there, the transcript is shown in this page's place. What people said reaches the document through textContent only. */
import { look } from "../editor/colors.js";
import { called } from "../editor/transcript.js";
import { clock, momentAt } from "../editor/clock.js";
import { $, around, composes, hide, make, placeIn, press, showIn } from "../editor/dom.js";
import { listen } from "./request.js";
import { requestJob } from "./rows.js";
import { goOn } from "../editor/storage.js";
import { aboutJob, isOpen } from "./progress.js";
/** @import { Job } from "./progress.js" */

/** The words of one speaker, in seconds. @typedef {{ start: number, end: number, speaker: string, text: string }} Segment */

const NEAR = 80; // pixels from the end of the page within which a person reads the latest
const LINE = 24; // pixels of a paragraph that are enough to read in it
const FIVE = 5; // seconds
const UNKNOWN = "UNKNOWN"; // in place of a speaker who is not known
const id = location.pathname.split("/")[2];
const audio = new Audio("sound");
const slider = $("seek"), share = $("share"), act = $("act");

/** @type {Segment[]} */
const said = [];
let state = "", following = false, now = -1;
audio.preload = "metadata";

/* ---------- the text ---------- */

/** Speaker -> their place among the colors, as in the transcript. @type {Map<string, number>} */
const numbers = new Map();

/** @param {string} speaker */
function numberOf(speaker) {
  const label = /^Speaker (\d+)$/.exec(called(speaker));
  if (!numbers.has(speaker)) numbers.set(speaker, label ? Number(label[1]) - 1 : numbers.size);
  return numbers.get(speaker) ?? 0;
}

/** @param {string} speaker */
function nameOf(speaker) {
  if (speaker === UNKNOWN) return "nobody heard";
  return called(speaker);
}

/** @param {number} n */
function article(n) {
  const who = make("span", "who", [make("span", "chip", "", { ariaHidden: "true" }), make("span", "name", "", { dir: "auto" })]);
  return make("article", "p", [
    make("header", "", [who, make("a", "time", "", { title: "Play from here" })]), make("p", "said", "", { dir: "auto" }),
  ], { tabIndex: -1, dataset: { n: String(n) } });
}

/** @param {HTMLElement} element @param {number} n */
function fill(element, n) {
  const { start, speaker, text } = said[n], number = numberOf(speaker), name = nameOf(speaker);
  const [who, time] = element.children[0].children;
  const color = look(speaker === UNKNOWN ? -1 : number);
  element.className = `p ${color}${said[n - 1]?.speaker === speaker ? " more" : ""}${n === now ? " now" : ""}`;
  element.setAttribute("aria-posinset", String(n + 1));
  element.ariaLabel = `${name}, ${clock(1000 * start)}`;
  who.children[0].className = `chip ${color}`;
  who.children[0].textContent = speaker === UNKNOWN ? "–" : name === speaker ? [...name][0].toUpperCase() : String(number + 1);
  who.children[1].textContent = name;
  time.textContent = clock(1000 * start);
  time.setAttribute("href", momentAt(1000 * start));
  const words = element.children[1];
  if (words.textContent !== text) words.textContent = text;
}

/** @param {number} first @param {Segment[]} segments */
function hear(first, segments) {
  const { scrollHeight } = document.documentElement;
  const atEnd = said.length > 0 && window.scrollY > 0 && window.scrollY + window.innerHeight > scrollHeight - NEAR;
  said.splice(first, said.length, ...segments);
  showIn($("feed"), [...said.keys()], (n) => n, article, fill);
  if (atEnd && audio.paused) window.scrollTo(0, document.documentElement.scrollHeight);
  showPosition();
}

/** Return the time at which the person reads or listens, in ms; null: at the beginning. */
function place() {
  if (!audio.paused && following) return 1000 * audio.currentTime;
  if (window.scrollY < 1) return audio.currentTime ? 1000 * audio.currentTime : null;
  const below = Math.max(0, document.querySelector(".bar")?.getBoundingClientRect().bottom ?? 0);
  const n = [...$("feed").children].findIndex((one) => one.getBoundingClientRect().bottom > below + LINE);
  return n < 0 ? null : 1000 * said[n].start;
}

/* ---------- the work ---------- */

/** @param {Job} job */
function show(job) {
  if (state === job.state && !isOpen(job)) return;
  const before = state;
  ({ state } = job);
  if (state === "done") {
    const moment = place();
    source.close();
    if (!audio.paused) goOn(id);
    history.replaceState(null, "", moment === null ? location.pathname : momentAt(moment));
    location.reload();
    return;
  }
  const { what, share: done } = aboutJob(job);
  $("facts").textContent = done === null ? what : `${what} · ${Math.round(100 * done)} % of the work`;
  share.hidden = done === null;
  share.value = done ?? 0;
  act.textContent = isOpen(job) ? "Cancel" : "Try again";
  act.hidden = false;
  $("feed").setAttribute("aria-busy", String(isOpen(job)));
  if (state === before) return;
  const rest = said.length ? "What stands below was not saved." : "There is no transcript.";
  $("standing").textContent = {
    waiting: "This recording waits for its turn. Its text appears here as it is written.",
    working: "This recording is being transcribed. Its text appears here as it is written; it can be corrected once all of it is there.",
    failed: `It could not be transcribed: ${job.why ?? "it is not known why"}. ${rest}`,
    canceled: `The transcription was canceled. ${rest}`,
  }[state] ?? "";
  $("standing").classList.toggle("trouble", state === "failed");
}

press(act, () => requestJob(id, state === "failed" || state === "canceled" ? "retry" : "cancel"));

const source = listen("live", {
  said: ({ first, segments }) => hear(first, segments),
  job(job) {
    show(job);
    document.documentElement.dataset.ready = "yes";
  },
  error(_, { readyState }) {
    const ended = readyState === EventSource.CLOSED; // a server that was started again asks who this is
    $("facts").textContent = ended ? "the desk was started again; load this page again and enter its token" : "the server does not answer";
  },
});

/* ---------- the sound ---------- */

/** The text that is heard at a time, or was heard last. @param {number} seconds */
function at(seconds) {
  let n = said.length - 1;
  while (n >= 0 && said[n].start > seconds) n -= 1;
  return n;
}

function showPosition() {
  $("now").textContent = clock(1000 * audio.currentTime);
  slider.value = String(audio.currentTime);
  slider.setAttribute("aria-valuetext", clock(1000 * audio.currentTime));
  const n = audio.currentTime || !audio.paused ? at(audio.currentTime) : -1;
  if (n === now) return;
  $("feed").children[now]?.classList.remove("now");
  now = n;
  const element = $("feed").children[n];
  element?.classList.add("now");
  if (following && !audio.paused) element?.scrollIntoView({ block: "nearest" });
}

function showPlay() {
  $("play").classList.toggle("pause", !audio.paused);
  $("play").setAttribute("aria-label", audio.paused ? "Play" : "Pause");
  showPosition();
}

/** @param {number} seconds @param {boolean} [playing] */
function seek(seconds, playing = false) {
  following = true;
  audio.currentTime = Math.min(Math.max(0, seconds), audio.duration || 0);
  if (playing) audio.play().catch(() => {});
  showPosition();
}

function toggle() {
  if ($("play").hidden) return;
  following = true;
  if (audio.paused) audio.play().catch(() => {}); else audio.pause();
}

/** @param {number} by */
function faster(by) {
  const to = $("rate").selectedIndex + by;
  if (!$("rate").options[to]) return;
  $("rate").selectedIndex = to;
  audio.playbackRate = Number($("rate").value);
}

/** One paragraph on or back. @param {number} by */
function step(by) {
  const here = placeIn($("feed").children, document.activeElement);
  const n = Math.min(said.length - 1, Math.max(0, (here < 0 ? Math.max(now, -1) : here) + by));
  const element = $("feed").children[n];
  if (!(element instanceof HTMLElement)) return;
  seek(said[n].start);
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block: "nearest" });
}

for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, showPlay);
for (const event of ["timeupdate", "seeked"]) audio.addEventListener(event, showPosition);
audio.addEventListener("durationchange", () => {
  if (!Number.isFinite(audio.duration)) return;
  slider.disabled = false;
  slider.max = String(audio.duration);
  $("whole").textContent = ` / ${clock(1000 * audio.duration)}`;
});
audio.addEventListener("error", () => {
  hide($("play"));
  $("now").hidden = slider.hidden = true;
  $("soundless").hidden = false;
});
$("play").addEventListener("click", toggle);
$("rate").addEventListener("change", () => { audio.playbackRate = Number($("rate").value); });
slider.addEventListener("input", () => seek(Number(slider.value)));
for (const event of ["wheel", "touchmove"]) window.addEventListener(event, () => { following = false; }, { passive: true });
$("feed").addEventListener("click", (event) => {
  const n = placeIn($("feed").children, around(event, ".time")?.closest("article") ?? null);
  if (n < 0) return;
  event.preventDefault();
  seek(said[n].start, true);
});

/** @type {Record<string, () => void>} */
const KEYS = {
  " ": toggle, ",": () => seek(audio.currentTime - FIVE), ".": () => seek(audio.currentTime + FIVE), "[": () => faster(-1), "]": () => faster(1),
  ArrowUp: () => step(-1), ArrowDown: () => step(1),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || composes(event)) return;
  if (!Object.hasOwn(KEYS, event.key) || around(event, event.key === " " ? "button, a, select" : "input, select")) return;
  event.preventDefault();
  KEYS[event.key]();
});
