// @ts-check
/* The search in the words of all recordings, and the player of the passages. */
import { $, around, button, composes, hide, make, placeIn, showIn, wordsOf } from "../editor/dom.js";
import { clock, momentAt } from "../editor/clock.js";
import { request } from "./request.js";
import { counted } from "./library.js";

/**
 * A passage that was found, in seconds. Its second, fourth, ... pieces are the matches.
 * @typedef {{ speaker: string, start: number, end: number, pieces: string[] }} Hit
 * @typedef {{ id: string, name: string, folder: string }} Named
 * @typedef {Named & { total: number, hits: Hit[] }} Group what was found in a recording
 */

const RECORDINGS = 20, HITS = 100;

/** @type {Group[]} */
let groups = [];
let asked = 0; // the number of the latest search, whose answer counts
let wanted = new URLSearchParams();

export async function search(more = false) {
  const query = $("query").value.trim(), speaker = $("speaker").value.trim();
  const nothing = !query && !speaker;
  asked += 1;
  const mine = asked;
  $("found").hidden = nothing;
  $("all").hidden = !nothing;
  wanted = new URLSearchParams(nothing ? {} : { q: query, speaker });
  // Behind the #, which no server is sent and no log has.
  history.replaceState(null, "", nothing ? location.pathname : `#${wanted}`);
  if (nothing) { groups = []; $("hits").replaceChildren(); return; }
  try {
    const said = await request(`/api/search?${wanted}&offset=${more ? groups.length : 0}&limit=${RECORDINGS}`);
    if (mine !== asked) return; // the person has typed on
    groups = more ? [...groups, ...said.groups] : said.groups;
    if (!more) showNamed(said.named, said.named_total);
    $("found-title").textContent = titleOf(said);
    showGroups(groups);
    hide($("more-hits"), groups.length >= said.recordings);
  } catch (error) {
    if (mine === asked) $("found-title").textContent = wordsOf(error);
  }
}

/** @param {{ total: number, more: boolean, recordings: number, near: Record<string, string[]> }} said */
function titleOf({ total, more, recordings, near }) {
  const others = Object.entries(near).map(([word, found]) => `“${word}” or nearly so: ${found.join(", ")}`).join("; ");
  const count = total ? `${more ? "More than " : ""}${counted(total, "passage")} in ${counted(recordings, "recording")}`
    : "Nothing was found in what was said";
  return others ? `${count} (${others})` : count;
}

/** Show the recordings whose names match. @param {readonly Named[]} named @param {number} total */
function showNamed(named, total) {
  hide($("named"), !total);
  $("named-title").textContent = `${counted(total, "recording")} of this name`;
  showIn($("named-list"), named, (one) => one.id, (one) => make("li", "", [titled(one)]), () => {});
}

/** The name of a recording, to open it, and its folder. @param {Named} one @param {string} [at] where in it */
function titled({ id, name, folder }, at = "") {
  const link = make("a", "", [make("bdi", "", name)], { href: `/t/${id}/${at}` });
  return make("span", "name", folder ? [link, " ", make("bdi", "folder", folder)] : [link]);
}

/** @param {readonly Group[]} given */
export function showGroups(given) {
  showIn($("hits"), given, (group) => JSON.stringify(group), groupOf, () => {});
}

/** @param {Group} group */
function groupOf(group) {
  const list = make("ol", "passages", group.hits.map((hit) => hitOf(group, hit)));
  const item = make("li", "", [
    make("h3", "recording", [titled(group), make("span", "quiet", ` ${counted(group.total, "passage")}`)]), list,
  ]);
  if (group.total > group.hits.length) {
    const rest = button("flat small", `Show all ${group.total}`, () => showAll(group, list, rest));
    item.append(rest);
  }
  return item;
}

/** Every passage of a recording. @param {Group} group @param {HTMLElement} list @param {HTMLElement} rest */
async function showAll(group, list, rest) {
  for (let at = group.hits.length; at < group.total; at = list.children.length) {
    const said = await request(`/api/search?${wanted}&within=${group.id}&offset=${at}&limit=${HITS}`);
    /** @type {Hit[]} */
    const hits = said.groups[0]?.hits ?? [];
    list.append(...hits.map((hit) => hitOf(group, hit)));
    if (!hits.length) break;
  }
  rest.remove();
  list.querySelectorAll("button")[group.hits.length]?.focus();
}

/** @param {Named} recording @param {Hit} hit */
function hitOf(recording, hit) {
  const row = make("button", "hit-row", [
    make("span", "where", [make("b", "", clock(1000 * hit.start)), " ", make("bdi", "", hit.speaker)]),
    make("span", "words", hit.pieces.map((piece, n) => (n % 2 ? make("mark", "", piece) : piece)), { dir: "auto" }),
  ], { title: "Play", onclick: () => play(recording, hit, row) });
  return make("li", "", [row]);
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

/** @param {Named} recording @param {Hit} hit @param {HTMLElement} row */
function play({ id, name }, hit, row) {
  for (const one of document.querySelectorAll(".hit-row.on")) one.classList.remove("on");
  row.classList.add("on");
  const source = `/t/${id}/sound`;
  if (audio.getAttribute("src") !== source) audio.src = source;
  audio.currentTime = hit.start;
  end = hit.end + 1;
  $("playing").textContent = `${hit.speaker}, ${clock(1000 * hit.start)} · ${name}`;
  $("open").href = `/t/${id}/${momentAt(1000 * hit.start)}`;
  $("player").hidden = false;
  audio.play().catch(() => {});
}

function toggle() {
  if ($("player").hidden) return;
  end = Infinity; // a person who goes on wants to hear more
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
  if (document.querySelector("dialog[open]")) return; // the keys are its own
  const typing = around(event, "input, select");
  if (event.key === "/" && !typing) $("query").focus();
  else if (event.key === "Escape" && ($("query").value || $("speaker").value)) { $("query").value = $("speaker").value = ""; search(); $("query").focus(); }
  else if (event.key === " " && !typing && !around(event, "button, a")) toggle();
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !around(event, "select")) {
    /** @type {NodeListOf<HTMLElement>} */
    const stops = document.querySelectorAll("#found:not([hidden]) .hit-row, #all:not([hidden]) #rows a");
    const at = placeIn(stops, document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    if (at < 0) $("query").focus(); else stops[Math.min(at, stops.length - 1)]?.focus();
  } else return;
  event.preventDefault();
});
