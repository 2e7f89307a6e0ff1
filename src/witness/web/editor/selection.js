// @ts-check
/* Selecting words, and going to moments. */
import { above } from "./transcript.js";
import { $, hide } from "./dom.js";
import { seek, wordAt } from "./sound.js";
import { page, words } from "./state.js";
import { bringIntoView, paint, reveal, spans } from "./text.js";

const touched = matchMedia("(hover: none)");
let fixedEnd = 0; // the end of the selection that stays where it is, in reading order
let movingEnd = 0; // the other end

/** Select the words between two places in reading order.
    @param {number} from @param {number} [to] @param {{ view?: boolean }} [how] `view`: scroll there */
export function choose(from, to = from, { view = true } = {}) {
  fixedEnd = from;
  movingEnd = to;
  page.chosen = [Math.min(from, to), Math.max(from, to)];
  paint();
  if (view) reveal(page.order[to]);
  showTools();
}

/** Select from where the selection began to here. @param {number} to @param {{ view?: boolean }} [how] */
export function chooseTo(to, how) {
  choose(page.chosen ? fixedEnd : to, to, how);
}

export function unchoose() {
  page.chosen = null;
  paint();
  showTools();
}

/** The end of the selection that moves. */
export const chosenEnd = () => movingEnd;

export function chosenWords() {
  return page.chosen ? page.order.slice(page.chosen[0], page.chosen[1] + 1) : [];
}

/** The selected words, or those of the paragraph that is being read or heard. */
export function meant() {
  if (page.chosen) return chosenWords();
  return page.paragraphs[paragraphNow()]?.words.slice() ?? [];
}

/** The paragraph that is being read or heard; -1: there is none. */
export function paragraphNow() {
  const { chosen, playing, paragraphs, paragraphOf, order } = page;
  if (chosen) return paragraphOf[order[chosen[0]]];
  const focused = document.activeElement?.closest("article.p");
  if (focused instanceof HTMLElement) return Number(focused.dataset.paragraph);
  let at = playing >= 0 ? paragraphOf[playing] : -1;
  if (at < 0) {
    at = paragraphs.length - 1;
    while (at > 0 && paragraphs[at].start > page.position) at -= 1;
  }
  return at;
}

export function showTools() {
  const { chosen, order } = page;
  const tools = $("tools");
  const ends = (chosen ?? []).map((at) => spans.get(order[at])).filter((element) => element !== undefined);
  // A single word was clicked to hear it: do not cover its neighbors. Fingers have no other way to the tools.
  hide(tools, !chosen || !ends.length || (chosen[0] === chosen[1] && !touched.matches));
  if (tools.hidden) return;
  const box = ends[0].getBoundingClientRect();
  const width = tools.offsetWidth, height = tools.offsetHeight;
  // The bar is at the top of the window only once one has scrolled to it.
  const top = Math.max(0, $("bar").getBoundingClientRect().bottom) + 8;
  const before = box.top - height - 8;
  const after = ends[ends.length - 1].getBoundingClientRect().bottom + 8;
  const line = Math.max(top, Math.min(before >= top ? before : after, window.innerHeight - height - 8));
  const left = Math.min(Math.max(8, box.left), document.documentElement.clientWidth - width - 8);
  tools.style.left = `${left + window.scrollX}px`;
  tools.style.top = `${line + window.scrollY}px`;
}

/* ---------- moments ---------- */

export function followHash() {
  const match = /^#t=(\d+(?:\.\d+)?)$/.exec(location.hash);
  if (!match) return;
  seek(Number(match[1]) * 1000);
  showMoment(true);
}

/** Scroll to the words at the position, or to the next ones. @param {boolean} mark */
export function showMoment(mark) {
  const { order, paragraphs, place, texts } = page;
  if (!order.length) {
    if (paragraphs.length) bringIntoView(paragraphs[Math.max(0, paragraphNow())].block);
    return;
  }
  let w = wordAt(page.position);
  if (w < 0) w = Math.min(texts.length - 1, above(words.start, page.position));
  while (w < texts.length && place[w] < 0) w += 1;
  if (w >= texts.length) w = order[order.length - 1];
  bringIntoView(page.blockOf[w]);
  reveal(w, true);
  if (mark) choose(place[w]);
}
