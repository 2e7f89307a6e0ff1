// @ts-check
/* The slider that says how many doubtful words are marked, and how many are left. The browser keeps it for all pages
   alike. */
import { $, hide } from "./dom.js";
import { doubtfulPlaces, LEVELS, unsurePlaces } from "./doubts.js";
import { page, words } from "./state.js";
import { keep, kept } from "./storage.js";
import { paint } from "./text.js";

const KEY = "witness-doubtful-words";
const slider = $("doubts");

/** @param {number} level */
function mark(level) {
  const [name] = LEVELS[level];
  page.doubts = level;
  slider.value = String(level);
  slider.setAttribute("aria-valuetext", name);
  $("doubts-now").textContent = name;
}

/** The places that the keys go to. */
export const places = {
  doubtful: () => doubtfulPlaces(page, words, page.doubts || 1),
  unsure: () => unsurePlaces(page, words),
};

/** Say how many there are, and which one is selected. */
export function showDoubts() {
  const at = page.chosen?.[0] ?? -1;
  for (const what of /** @type {const} */ (["doubtful", "unsure"])) {
    const all = places[what]();
    const now = all.indexOf(at) + 1;
    hide($(what), !all.length || (what === "doubtful" && !page.doubts));
    $(`${what}-count`).textContent = now ? `${now} of ${all.length}` : `${all.length}`;
  }
}

const before = LEVELS.findIndex(([name]) => name === kept(KEY));
$("doubting").hidden = !words.probability.some((told) => told >= 0);
mark(before < 0 ? 1 : before);
slider.addEventListener("input", () => {
  mark(Number(slider.value));
  keep(KEY, LEVELS[page.doubts][0]);
  paint();
  showDoubts();
});
