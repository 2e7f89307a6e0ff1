// @ts-check
/* All recordings of the folder. What people said, their names and those of files reach the document through
   textContent only. */
import { clock, span } from "../../formats/web/clock.js";
import { $, hide, make, press, showIn, toast, wordsOf } from "../../formats/web/dom.js";
import { call } from "./call.js";

/**
 * A recording, as serve/library/catalog.py tells of it.
 * @typedef {{
 *   id: string, name: string, folder: string, seconds: number | null, speakers: string[], date: string | null,
 *   state: string, until: number, why: string | null,
 * }} Recording
 */

const ROWS = 100;

export const shown = {
  recordings: /** @type {Recording[]} */ ([]), // the rows
  total: 0,
  wanted: ROWS, // how many of them are to be shown
  sort: "date",
  order: "down",
  asked: 0, // the number of the latest question
  answered: 0, // and that of the latest answer; one that comes after it is of no use
};

/** @param {number} n @param {string} noun */
export function counted(n, noun) {
  return n === 1 ? `1 ${noun}` : `${n.toLocaleString("en")} ${noun}s`;
}

let again = 0;

export async function list() {
  const how = () => `sort=${shown.sort}&order=${shown.order}&wanted=${shown.wanted}`;
  shown.asked += 1;
  const before = how(), mine = shown.asked;
  const late = () => mine < shown.answered || how() !== before; // another order was chosen meanwhile, and asked for
  const { sort, order, wanted } = shown;
  try {
    /** @type {Recording[]} */
    const found = [];
    let said;
    do { // the server gives no more than so many at a time
      said = await call(`/api/library?sort=${sort}&order=${order}&offset=${found.length}&limit=${wanted - found.length}`);
      if (late()) return;
      found.push(...said.recordings);
    } while (said.recordings.length && found.length < Math.min(wanted, said.total));
    shown.answered = mine;
    shown.recordings = found;
    shown.total = said.total;
    $("facts").textContent = said.indexed < said.total
      ? `${counted(said.total, "recording")} · reading them for the search: ${said.indexed.toLocaleString("en")} so far`
      : said.total ? counted(said.total, "recording") : ""; // what has no transcript is counted below
    const rest = said.untranscribed;
    hide($("rest"), !rest);
    $("rest-text").textContent = `${counted(rest, "recording")} in this folder ${rest === 1 ? "has" : "have"} no transcript.`;
    clearTimeout(again);
    if (said.indexed < said.total) again = setTimeout(list, 2000);
  } catch (error) {
    if (!late()) $("facts").textContent = wordsOf(error);
    return;
  }
  showRows();
}

/** Row -> what it was filled with. @type {WeakMap<HTMLElement, string>} */
const filled = new WeakMap();

export function showRows() {
  const { recordings, total } = shown;
  showIn($("rows"), recordings, (one) => one.id, () => make("tr"), (row, one) => {
    const said = JSON.stringify(one);
    if (filled.get(row) === said) return;
    filled.set(row, said);
    cellsOf(one).forEach((cell, n) => {
      const before = row.children[n];
      if (!before) row.append(cell);
      else if (!before.isEqualNode(cell)) before.replaceWith(cell); // the others may be pressed, or have the focus
    });
  });
  hide($("more"), recordings.length >= total);
  $("empty").hidden = total > 0 || !$("rest").hidden;
  $("recordings").hidden = total === 0;
  for (const button of sorting) {
    const head = button.parentElement;
    if (button.dataset.sort === shown.sort) {
      head?.setAttribute("aria-sort", shown.order === "up" ? "ascending" : "descending");
    } else head?.removeAttribute("aria-sort");
  }
}

/** @param {Recording} one */
function cellsOf(one) {
  const name = make("td", "text name");
  const undone = one.state === "failed" || one.state === "canceled";
  const there = one.seconds !== null && !undone;
  const title = make(there ? "a" : "span", "", one.name);
  title.dir = "auto";
  if (title instanceof HTMLAnchorElement) title.href = `/t/${one.id}/`;
  name.append(title);
  if (one.folder) {
    const folder = make("span", "folder", one.folder);
    folder.dir = "auto";
    name.append(folder);
  }
  const people = make("td", "text speakers");
  one.speakers.forEach((called, n) => people.append(n ? ", " : "", make("bdi", "", called)));
  const state = make("td", "text state");
  state.append(make("span", `tag ${one.state}`, one.state));
  if (one.state === "in progress" && one.until) state.append(make("span", "why", `up to ${clock(1000 * one.until)}`));
  if (one.why) state.append(make("span", "why", one.why));
  if (undone) state.append(jobButton("Try again", one.id, "retry"));
  return [name, make("td", "length", one.seconds === null ? "" : span(1000 * one.seconds)), people,
    make("td", "date", one.date ? new Date(one.date).toLocaleDateString(undefined, { dateStyle: "medium" }) : ""), state];
}

/** @param {string} text @param {string} id @param {"retry" | "cancel"} action */
export function jobButton(text, id, action) {
  const button = make("button", "flat small", text);
  button.type = "button";
  press(button, async () => {
    try { await call(`/api/jobs/${id}/${action}`, undefined, "POST"); } catch (error) { toast(wordsOf(error)); }
    list();
  });
  return button;
}

/** @type {NodeListOf<HTMLElement>} */
const sorting = document.querySelectorAll("[data-sort]");
for (const button of sorting) {
  button.addEventListener("click", () => {
    const given = button.dataset.sort ?? "";
    const turned = shown.order === "up" ? "down" : "up";
    shown.order = given === shown.sort ? turned : given === "date" || given === "seconds" ? "down" : "up";
    shown.sort = given;
    list();
  });
}
$("more").addEventListener("click", () => { shown.wanted = shown.recordings.length + ROWS; list(); });
$("transcribe").addEventListener("click", async () => {
  hide($("rest"));
  try { await call("/api/recordings/untranscribed", undefined, "POST"); } catch (error) { toast(wordsOf(error)); }
  setTimeout(list, 1500); // the folder is looked at again meanwhile
});
