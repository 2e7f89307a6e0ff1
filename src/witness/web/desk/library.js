// @ts-check
/* All recordings of the folder, as many as there may be: only those near the window are asked for and shown, in blocks
   of rows; the others are a row as high as they would be. */
import { $, hide, make, showIn, toast, wordsOf, enable } from "../editor/dom.js";
import { request } from "./request.js";
import { fillRow } from "./rows.js";
import { forNew } from "./settings.js";
/** @import { Recording } from "./rows.js" */

const KEPT = "witness-filters";
/** The fields, by what the server calls them. @type {readonly (readonly [string, HTMLInputElement | HTMLSelectElement])[]} */
const fields = [["name", $("by-name")], ["folder", $("by-folder")], ["state", $("by-state")], ["tag", $("by-tag")],
  ["speaker", $("by-speaker")], ["since", $("since")], ["until", $("till")]];
/** @type {Record<string, string>} */
const wanted = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");

/** Return the chosen filters, for the server. */
export const chosen = () => String(new URLSearchParams(wanted));

function read() {
  for (const [name, field] of fields) {
    if (field.value) wanted[name] = field.value; else delete wanted[name];
  }
  sessionStorage.setItem(KEPT, JSON.stringify(wanted));
  enable($("all-again"), Object.keys(wanted).length > 0);
  $("filters").dispatchEvent(new Event("chosen"));
}

/** Show the choices of the filters. @param {Record<string, string[]>} choices by kind, as serve/library/library.py has them */
export function showChoices({ folders, tags, states, speakers }) {
  options($("by-folder"), "All folders", folders);
  options($("by-state"), "Any state", states);
  options($("by-tag"), "Any tag", tags);
  options($("by-speaker"), "Any speaker", speakers);
  $("folders").replaceChildren(...folders.map(option));
  $("tags").replaceChildren(...tags.map(option));
  for (const [name, field] of fields) if (field !== document.activeElement) field.value = wanted[name] ?? "";
  enable($("all-again"), Object.keys(wanted).length > 0);
}

/** @param {string} text */
const option = (text) => new Option(text, text);

/** @param {HTMLSelectElement} menu @param {string} all @param {string[]} names */
function options(menu, all, names) {
  const before = [...menu.options].map(({ value }) => value).join("\n");
  if (before === ["", ...names].join("\n") && menu.options.length) return; // it may be open
  menu.replaceChildren(new Option(all, ""), ...names.map(option));
}

let typed = 0;
$("by-name").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(read, 150); });
$("filters").addEventListener("change", (event) => { if (event.target !== $("sort")) read(); });
$("filters").addEventListener("submit", (event) => { event.preventDefault(); read(); });
$("all-again").addEventListener("click", () => {
  for (const [, field] of fields) field.value = "";
  read();
});

const BLOCK = 50; // rows
const MOST = 1000; // rows in one answer
const HIGH = 42; // pixels of a row, until one was seen
const NEAR = "800px";

export const shown = {
  recordings: /** @type {(Recording | undefined)[]} */ ([]), // by their places; those that are not near are not there
  total: 0,
  sort: "date",
  order: "down",
  asked: 0, // the number of the latest question
  answered: 0, // and that of the latest answer; one that comes after it is of no use
};

/** @param {number} n @param {string} noun */
export function counted(n, noun) {
  return n === 1 ? `1 ${noun}` : `${n.toLocaleString("en")} ${noun}s`;
}

/** The blocks near the window, by their numbers. @type {Set<number>} */
const near = new Set([0]);
/** @type {HTMLTableSectionElement[]} */
const blocks = [];
/** The latest height of each block, in pixels. @type {number[]} */
const heights = [];

let again = 0, soon = 0;

/** Ask for the rows near the window. */
export async function list() {
  clearTimeout(soon);
  const how = () => `sort=${shown.sort}&order=${shown.order}&${chosen()}`;
  shown.asked += 1;
  const before = how(), mine = shown.asked;
  const late = () => mine < shown.answered || how() !== before; // another order was chosen meanwhile, and asked for
  if (!near.size) near.add(0);
  const first = BLOCK * Math.min(...near), limit = Math.min(MOST, BLOCK * (Math.max(...near) + 1) - first);
  try {
    const said = await request(`/api/library?${before}&offset=${first}&limit=${limit}`);
    if (late()) return;
    shown.answered = mine;
    shown.total = said.total;
    shown.recordings = [];
    said.recordings.forEach((/** @type {Recording} */ one, /** @type {number} */ n) => { shown.recordings[first + n] = one; });
    if (said.choices) showChoices(said.choices);
    const part = said.total < said.all ? `${said.total.toLocaleString("en")} of ` : "";
    $("facts").textContent = said.indexed < said.all
      ? `${counted(said.all, "recording")} · reading them for the search: ${said.indexed.toLocaleString("en")} so far`
      : said.all ? `${part}${counted(said.all, "recording")}` : ""; // what has no transcript is counted below
    const rest = said.untranscribed;
    hide($("rest"), !rest);
    $("rest-text").textContent = `${counted(rest, "recording")} in this folder ${rest === 1 ? "has" : "have"} no transcript.`;
    $("empty").hidden = said.all > 0 || rest > 0;
    hide($("filters"), !said.all);
    clearTimeout(again);
    if (said.indexed < said.all) again = setTimeout(list, 2000);
  } catch (error) {
    if (!late()) $("facts").textContent = wordsOf(error);
    return;
  }
  showRows();
}

/** Begin at the top: another order, or other recordings. */
export function listAnew() {
  near.clear();
  near.add(0);
  heights.length = 0;
  shown.recordings = [];
  return list();
}

const observer = new IntersectionObserver((entries) => {
  let missing = false;
  for (const { target, isIntersecting } of entries) {
    const n = blocks.indexOf(/** @type {HTMLTableSectionElement} */ (target));
    if (n < 0) continue;
    if (isIntersecting) near.add(n); else near.delete(n);
    missing ||= isIntersecting && shown.recordings[BLOCK * n] === undefined;
  }
  if (missing) { clearTimeout(soon); soon = setTimeout(list, 30); }
}, { rootMargin: `${NEAR} 0px` });

/** @param {Recording | number} row or the height of many */
const keyOf = (row) => (typeof row === "number" ? "space" : row.id);

/** @param {Recording | number} row */
function build(row) {
  return typeof row === "number" ? make("tr", "", [make("td")], { ariaHidden: "true" }) : make("tr");
}

export function showRows() {
  const count = Math.ceil(shown.total / BLOCK);
  for (const gone of blocks.splice(count)) { observer.unobserve(gone); near.delete(blocks.length); gone.remove(); }
  for (let n = blocks.length; n < count; n += 1) {
    const block = make("tbody");
    blocks.push(block);
    $("recordings").append(block);
    observer.observe(block);
  }
  blocks.forEach((block, n) => {
    const rows = shown.recordings.slice(BLOCK * n, BLOCK * (n + 1)).filter((one) => one !== undefined);
    if (block.contains(document.activeElement) && !rows.length) return; // who is there may go on from there
    if (block.dataset.full) heights[n] = block.getBoundingClientRect().height;
    const many = Math.min(BLOCK, shown.total - BLOCK * n);
    block.dataset.full = rows.length ? "yes" : "";
    showIn(block, rows.length ? rows : [heights[n] ?? HIGH * many], keyOf, build, (row, one) => {
      if (typeof one === "number") {
        const cell = row.firstElementChild;
        if (cell instanceof HTMLElement) cell.style.height = `${one}px`;
      } else {
        row.setAttribute("aria-rowindex", String(2 + shown.recordings.indexOf(one)));
        fillRow(row, one, list);
      }
    });
  });
  $("recordings").setAttribute("aria-rowcount", String(1 + shown.total));
  $("recordings").hidden = shown.total === 0;
  for (const button of sorting) {
    const order = shown.order === "up" ? "ascending" : "descending";
    if (button.parentElement) button.parentElement.ariaSort = button.dataset.sort === shown.sort ? order : null;
  }
  $("sort").value = shown.sort;
}

/** @param {string} given @param {boolean} [turn] whether a second time turns the order */
function sortBy(given, turn = true) {
  const turned = shown.order === "up" ? "down" : "up";
  const usual = given === "date" || given === "seconds" ? "down" : "up";
  shown.order = given === shown.sort && turn ? turned : usual;
  shown.sort = given;
  listAnew();
}

/** @type {NodeListOf<HTMLElement>} */
const sorting = document.querySelectorAll("[data-sort]");
for (const button of sorting) button.addEventListener("click", () => sortBy(button.dataset.sort ?? ""));
$("sort").addEventListener("change", () => sortBy($("sort").value, false));
$("filters").addEventListener("chosen", listAnew);
$("transcribe").addEventListener("click", async () => {
  hide($("rest"));
  await request("/api/recordings/untranscribed", forNew.settings).catch(toast);
  setTimeout(list, 1500); // the folder is looked at again meanwhile
});
