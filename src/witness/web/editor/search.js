// @ts-check
/* Search in all words, including those that are not in the document, and replace matches. */
import { above } from "./transcript.js";
import { $, composes, enable, toast } from "./dom.js";
import { haystackOf, matchesOf, patternOf, replacing } from "./matches.js";
import { choose } from "./selection.js";
import { audio, seek } from "./sound.js";
import { page, take, transcript, words } from "./state.js";
import { bringIntoView, main, paint, reveal } from "./text.js";
import { drawTimeline } from "./timeline.js";
/** @import { Haystack, Range } from "./matches.js" */

/** All words; null: they have changed. @type {Haystack | null} */
let haystack = null;

function look() {
  haystack ??= haystackOf(page);
  page.hits = matchesOf(haystack, $("query").value);
}

export function search() {
  page.hitNow = -1;
  look();
  showHits();
  paint();
  drawTimeline();
}

/** Search again, because words have changed; the caller draws the matches. */
export function searchAgain() {
  haystack = null;
  const wanted = $("query").value.trim();
  if (wanted) look(); else page.hits = [];
  page.hitNow = wanted ? Math.min(page.hitNow, page.hits.length - 1) : -1;
  showHits();
}

function showHits() {
  const { hits, hitNow } = page;
  for (const button of [$("next"), $("previous"), $("replace"), $("replace-all")]) enable(button, hits.length > 0);
  $("hits").textContent = !$("query").value.trim() ? "" : !hits.length ? "no match"
    : hitNow < 0 ? `${hits.length}` : `${hitNow + 1} of ${hits.length}`;
}

/** Go to the next match, or with -1 to the one before. @param {number} step */
export function goTo(step) {
  const { hits, hitNow, order } = page;
  if (!hits.length) return;
  if (hitNow >= 0) { showHit(hitNow + step); return; }
  const here = above(words.start, page.position);
  const next = Math.max(0, hits.findIndex(([first]) => order[first] >= here - 1));
  showHit(step < 0 ? next - 1 : next);
}

/** @param {number} n */
function showHit(n) {
  const { hits } = page;
  page.hitNow = (n + hits.length) % hits.length;
  const w = page.order[hits[page.hitNow][0]];
  bringIntoView(page.blockOf[w]);
  reveal(w, true);
  showHits();
  paint();
  drawTimeline();
}

let typed = 0;
$("query").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => { typed = 0; search(); goTo(1); }, 150);
});

/** Search now for the text that was typed a moment ago. */
function settle() {
  if (!typed) return;
  clearTimeout(typed);
  typed = 0;
  search();
}
$("search").addEventListener("submit", (event) => event.preventDefault());
$("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !composes(event)) { event.preventDefault(); goTo(event.shiftKey ? -1 : 1); }
});
$("search").addEventListener("keydown", (event) => { if (event.key === "Escape" && !composes(event)) closeSearch(); });

export function openSearch() {
  $("search").hidden = false;
  $("find").setAttribute("aria-expanded", "true");
  drawTimeline(); // the bar is higher now
  $("query").select();
}

/** End the search; what it showed last is selected, so that one can go on there. */
export function closeSearch() {
  const hit = page.hits[page.hitNow];
  $("query").value = "";
  search();
  $("search").hidden = true;
  $("find").setAttribute("aria-expanded", "false");
  drawTimeline();
  main.focus({ preventScroll: true });
  if (!hit) return;
  choose(hit[0], hit[1]);
  if (audio.paused) seek(words.start[page.order[hit[0]]]);
}

/* ---------- replacing ---------- */

/** @param {readonly Range[]} matches */
function replaceIn(matches) {
  const pattern = patternOf($("query").value);
  const made = matches.map((match) => replacing(transcript, page, match, pattern, $("by").value));
  const places = made.filter((one) => one.length).length;
  if (places) take(...made.flat());
  return places;
}

function replaceOne() {
  settle();
  if (page.hitNow < 0) { goTo(1); return; }
  const at = page.hitNow, before = page.hits.length;
  replaceIn([page.hits[at]]);
  if (page.hits.length) showHit(page.hits.length < before ? at : at + 1); // what was written may match again
}

$("replace").addEventListener("click", replaceOne);
$("replace-all").addEventListener("click", () => {
  settle();
  const places = replaceIn(page.hits);
  toast(places === 1 ? "Replaced in 1 place" : `Replaced in ${places} places`);
});
$("by").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !composes(event)) { event.preventDefault(); replaceOne(); }
});
$("find").addEventListener("click", () => { if ($("search").hidden) openSearch(); else closeSearch(); });
$("close-search").addEventListener("click", closeSearch);
$("next").addEventListener("click", () => goTo(1));
$("previous").addEventListener("click", () => goTo(-1));
