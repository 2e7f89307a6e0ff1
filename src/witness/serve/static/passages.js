// @ts-check
/* The search in what was said in all recordings, and the player of what was found. */
import { $, around, composes, hide, make, placeIn, showIn, wordsOf } from "../../formats/web/dom.js";
import { clock, momentAt } from "../../formats/web/clock.js";
import { call } from "./call.js";
import { counted } from "./library.js";

/**
 * A passage that was found.
 * @typedef {{
 *   id: string, name: string, speaker: string, start: number, end: number, before: string, text: string, after: string,
 * }} Hit in seconds
 */

const HITS = 50;

/** @type {Hit[]} */
let hits = [];
let asked = 0; // the number of the latest search, whose answer counts

export async function search(more = false) {
  const query = $("query").value.trim();
  asked += 1;
  const mine = asked;
  $("found").hidden = !query;
  $("all").hidden = Boolean(query);
  const state = new URLSearchParams(query ? { q: query, speaker: $("speaker").value.trim() } : {});
  // Behind the #, which no server is sent and no log has.
  history.replaceState(null, "", query ? `#${state}` : location.pathname);
  if (!query) { hits = []; $("hits").replaceChildren(); return; }
  try {
    const said = await call(`/api/search?${state}&offset=${more ? hits.length : 0}&limit=${HITS}`);
    if (mine !== asked) return; // somebody has typed on
    hits = more ? [...hits, ...said.hits] : said.hits;
    $("found-title").textContent = !said.total ? "Nothing was found"
      : `${said.more ? "More than " : ""}${counted(said.total, "passage")}`;
    showHits(hits);
    hide($("more-hits"), hits.length >= said.total);
  } catch (error) {
    if (mine === asked) $("found-title").textContent = wordsOf(error);
  }
}

/** @param {readonly Hit[]} given */
export function showHits(given) {
  showIn($("hits"), given, (hit) => JSON.stringify(hit), hitOf, () => {});
}

/** @param {Hit} hit */
function hitOf(hit) {
  const item = make("li");
  const button = make("button", "hit-row");
  button.type = "button";
  button.title = "Play";
  const where = make("span", "where");
  const speaker = make("b", "", hit.speaker);
  speaker.dir = "auto";
  where.append(speaker, ` ${clock(1000 * hit.start)} · ${hit.name}`);
  const words = make("span", "words");
  words.dir = "auto";
  words.append(hit.before, " ", make("mark", "", hit.text), " ", hit.after);
  button.append(where, words);
  button.addEventListener("click", () => play(hit, button));
  item.append(button);
  return item;
}

let typed = 0;
for (const field of [$("query"), $("speaker")]) {
  field.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => search(), 150);
  });
}
$("search").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typed); search(); });
$("more-hits").addEventListener("click", () => search(true));

/* ---------- playing ---------- */

export const audio = new Audio();
let end = Infinity; // where the passage that is played ends

/** @param {Hit} hit @param {HTMLElement} button */
function play(hit, button) {
  for (const one of document.querySelectorAll(".hit-row.on")) one.classList.remove("on");
  button.classList.add("on");
  const source = `/t/${hit.id}/sound`;
  if (audio.getAttribute("src") !== source) audio.src = source;
  audio.currentTime = hit.start;
  end = hit.end + 1;
  $("playing").textContent = `${hit.speaker}, ${clock(1000 * hit.start)} · ${hit.name}`;
  $("open").href = `/t/${hit.id}/${momentAt(1000 * hit.start)}`;
  $("player").hidden = false;
  audio.play().catch(() => {});
}

function toggle() {
  if ($("player").hidden) return;
  end = Infinity; // whoever goes on wants to hear more
  if (audio.paused) audio.play().catch(() => {}); else audio.pause();
}

function showPlay() {
  $("play").classList.toggle("pause", !audio.paused);
  $("play").setAttribute("aria-label", audio.paused ? "Play" : "Pause");
}

for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, showPlay);
audio.addEventListener("timeupdate", () => { if (audio.currentTime > end) { audio.pause(); end = Infinity; } });
audio.addEventListener("error", () => {
  $("playing").textContent = "The recording is not where it was, or this browser cannot play it.";
});
$("play").addEventListener("click", toggle);
$("close").addEventListener("click", () => {
  audio.pause();
  hide($("player"));
  const played = document.querySelector(".hit-row.on");
  if (played instanceof HTMLElement) played.focus({ preventScroll: true });
});

/* ---------- keyboard ---------- */

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || composes(event)) return;
  const typing = around(event, "input, select");
  if (event.key === "/" && !typing) $("query").focus();
  else if (event.key === "Escape" && $("query").value) { $("query").value = ""; search(); $("query").focus(); }
  else if (event.key === " " && !typing && !around(event, "button, a")) toggle();
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !around(event, "select")) {
    /** @type {NodeListOf<HTMLElement>} */
    const stops = document.querySelectorAll("#found:not([hidden]) .hit-row, #all:not([hidden]) #rows a");
    const at = placeIn(stops, document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    if (at < 0) $("query").focus(); else stops[Math.min(at, stops.length - 1)]?.focus();
  } else return;
  event.preventDefault();
});
