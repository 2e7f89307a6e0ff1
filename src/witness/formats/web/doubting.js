// @ts-check
/* The slider that says how many doubtful words are marked. The browser keeps it for all pages alike. */
import { $ } from "./dom.js";
import { LEVELS } from "./doubts.js";
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

const before = LEVELS.findIndex(([name]) => name === kept(KEY));
$("doubting").hidden = !words.probability.some((told) => told >= 0);
mark(before < 0 ? 1 : before);
slider.addEventListener("input", () => {
  mark(Number(slider.value));
  keep(KEY, LEVELS[page.doubts][0]);
  paint();
});
