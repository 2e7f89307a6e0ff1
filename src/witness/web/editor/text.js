// @ts-check
/* The transcript: a list of blocks. Only those near the window are in the document. */
import { above, languageOf, OVERLAP } from "./transcript.js";
import { clock, momentAt, span } from "./clock.js";
import { $, make } from "./dom.js";
import { matchAt } from "./matches.js";
import { look } from "./colors.js";
import { chip, initials, speakerOf } from "./names.js";
import { isDoubtful, isUnsure, LEVELS } from "./doubts.js";
import { data, page, transcript, words } from "./state.js";
/** @import { Block, Paragraph } from "./derive.js" */

const BEYOND = 900; // pixels above and below the window that are kept ready

export const feed = $("feed");
export const main = $("text");
/** Word -> its element, for the blocks that are shown. @type {Map<number, HTMLElement>} */
export const spans = new Map();
/** Block -> its element. @type {Map<number, HTMLElement>} */
const shown = new Map();
let heights = new Float64Array(); // of each block
let known = new Uint8Array(); // whether that was measured
let tops = new Float64Array(1); // where the block begins
let printing = false;
/** Blocks that stay in the document wherever one scrolls: the first and the last. @type {[number, number] | null} */
let pinned = null;
/** Keep blocks in the document, or no longer. @param {typeof pinned} blocks */
export function pin(blocks) { pinned = blocks; }
let perLine = 70, lineHeight = 28, rest = 0; // letters; pixels of a line, and of a block beside its lines

function measureType() {
  const text = make("p", "said", "x"), probe = make("article", "p", [make("header"), text]);
  feed.append(probe);
  const style = getComputedStyle(text);
  const pen = document.createElement("canvas").getContext("2d");
  if (pen) {
    pen.font = style.font || `${style.fontSize} ${style.fontFamily}`;
    const letter = pen.measureText("The quick brown fox jumps over the lazy dog, said she.").width / 54;
    perLine = Math.max(10, text.getBoundingClientRect().width / letter);
  }
  lineHeight = parseFloat(style.lineHeight) || 28;
  rest = probe.getBoundingClientRect().height - lineHeight;
  probe.remove();
}

/** @param {Block} block */
function estimate({ paragraph, from, to }) {
  let letters = 0;
  for (let n = from; n < to; n += 1) letters += page.texts[paragraph.words[n]].length;
  return rest + Math.max(1, Math.ceil((letters / perLine) * 1.03)) * lineHeight;
}

export function layOut() {
  measureType();
  heights = Float64Array.from(page.blocks, estimate);
  known = new Uint8Array(page.blocks.length);
  tops = new Float64Array(page.blocks.length + 1);
  addUp(0);
}

/** @param {number} from */
function addUp(from) {
  for (let n = from; n < heights.length; n += 1) tops[n + 1] = tops[n] + heights[n];
}

export function clear() {
  for (const element of shown.values()) element.remove();
  shown.clear();
  spans.clear();
}

function listTop() {
  return $("before").getBoundingClientRect().top + window.scrollY;
}

/** Show the blocks near the window, measure them, and keep what people see in its place. */
export function render() {
  const { blocks } = page;
  if (printing || !blocks.length) return;
  for (let round = 0; round < 4; round += 1) {
    const y = window.scrollY - listTop();
    const first = Math.max(0, Math.min(pinned?.[0] ?? Infinity, above(tops, y - BEYOND, blocks.length) - 1));
    const end = Math.min(blocks.length, Math.max((pinned?.[1] ?? -1) + 1, above(tops, y + window.innerHeight + BEYOND, blocks.length)));
    const anchored = Math.min(blocks.length - 1, Math.max(0, above(tops, y, blocks.length) - 1));
    for (const [n, element] of shown) {
      if (n < first || n >= end) {
        if (element.contains(document.activeElement)) main.focus({ preventScroll: true });
        for (const w of wordsOf(blocks[n])) spans.delete(w);
        element.remove();
        shown.delete(n);
      }
    }
    let after = feed.firstElementChild;
    for (let n = first; n < end; n += 1) {
      let element = shown.get(n);
      if (!element) {
        element = article(n);
        shown.set(n, element);
        feed.insertBefore(element, after);
      }
      after = element.nextElementSibling;
    }
    $("before").style.height = `${tops[first]}px`;
    $("after").style.height = `${tops[blocks.length] - tops[end]}px`;
    const anchoredTop = tops[anchored];
    let changed = -1;
    for (let n = end - 1; n >= first; n -= 1) {
      if (known[n]) continue;
      const height = shown.get(n)?.getBoundingClientRect().height ?? heights[n];
      known[n] = 1;
      if (Math.abs(height - heights[n]) > 0.5) { heights[n] = height; changed = n; }
    }
    if (changed < 0) return;
    addUp(changed);
    $("before").style.height = `${tops[first]}px`;
    $("after").style.height = `${tops[blocks.length] - tops[end]}px`;
    const moved = tops[anchored] - anchoredTop;
    if (y > 0 && Math.abs(moved) > 0.5) window.scrollBy({ top: moved, behavior: "instant" });
  }
}

let waiting = 0;
export function soon() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; render(); });
}

/** @param {Block} block */
const wordsOf = ({ paragraph, from, to }) => paragraph.words.slice(from, to);

/** @param {number} n */
function article(n) {
  const { paragraph, number, from } = page.blocks[n];
  const { who } = paragraph;
  const ghosts = who < 0 && paragraph.words.length;
  const head = make("header", "", [], { contentEditable: "false" }); // nor where a selection goes across it
  if (!from) {
    head.append(
      make("button", "who", [chip(who), make("span", "name", "", { dir: "auto" })], {
        dataset: { paragraph: String(number) }, title: "Rename, merge, or give this paragraph to another speaker",
      }),
      make("a", "time", clock(paragraph.start), {
        href: momentAt(paragraph.start), dataset: { time: String(paragraph.start) }, title: "Play from here",
      }),
    );
  }
  const said = make("p", "said");
  inLanguage(said, paragraph);
  if (!paragraph.words.length) said.append(...inaudible(paragraph, number));
  for (const w of wordsOf(page.blocks[n])) {
    const text = page.texts[w], bare = text.trimStart();
    if (bare.length < text.length && said.hasChildNodes()) said.append(text.slice(0, text.length - bare.length));
    const word = make("span", classOf(w), bare);
    word.dataset.w = String(w);
    const title = [];
    if (isUnsure(page, words, w) && page.owner[w] === words.speaker[w]) {
      title.push(`${words.sure[w]} % certain who said it`);
    }
    if (isDoubtful(page, words, w, LEVELS.length - 1)) title.push(`${words.probability[w]} % certain what was said`);
    if (title.length) word.title = title.join(", ");
    spans.set(w, word);
    said.append(word);
  }
  if (page.writing && paragraph.words.length) editable(said, true);
  const element = make("article", `p ${look(who)}${from ? " more" : ""}${ghosts ? " ghosts" : ""}`, [head, said], {
    tabIndex: -1, dataset: { paragraph: String(number), block: String(n) },
  });
  element.setAttribute("aria-posinset", String(n + 1));
  element.setAttribute("aria-setsize", String(page.blocks.length));
  label(element, page.blocks[n]);
  return element;
}

/** Say in which language a paragraph is, and where its lines begin. @param {HTMLElement} said @param {Paragraph} paragraph */
function inLanguage(said, { words: some }) {
  const [code, fromTheRight] = data.languages[languageOf(transcript, some)] ?? ["", false];
  if (code) said.lang = code;
  said.dir = fromTheRight ? "rtl" : "auto";
}

/** @param {Paragraph} paragraph @param {number} number */
function inaudible(paragraph, number) {
  const { mark, start, end, gap } = paragraph;
  const sign = make("span", mark ? "inaudible" : "quiet", mark ? `${mark} ${span(end - start)}` : `until ${clock(end)}`, {
    lang: "en", dataset: { time: String(start) },
  });
  return gap < 0 ? [sign] : [
    sign, " ", make("button", "flat small", "write what was said", { lang: "en", dataset: { fill: String(number) } }),
  ];
}

/** The element of a block, if it is shown. @param {number} block */
export const shownBlock = (block) => shown.get(block);

/** Allow writing in the text of a block, or end it. @param {HTMLElement} said @param {boolean} can */
export function editable(said, can) {
  if (!can) {
    said.contentEditable = "inherit";
    for (const name of ["role", "aria-multiline", "aria-label"]) said.removeAttribute(name);
    return;
  }
  try { said.contentEditable = "plaintext-only"; } catch { said.contentEditable = "true"; }
  said.setAttribute("role", "textbox");
  said.setAttribute("aria-multiline", "true");
  said.setAttribute("aria-label", "What was said");
}

/** Write who speaks into the element of a block. @param {HTMLElement} element @param {Block} block */
function label(element, { paragraph, from }) {
  if (from) return;
  const [mark, name] = element.querySelectorAll(".who > span");
  mark.textContent = initials(paragraph.who);
  name.textContent = speakerOf(paragraph);
  element.setAttribute("aria-label", `${speakerOf(paragraph)}, ${clock(paragraph.start)}`);
}

/** Show names that were just given. The elements stay: a name is taken when its field is left, which may be by
    pressing one of them or by going to it with Tab. */
export function relabel() {
  for (const [n, element] of shown) {
    label(element, page.blocks[n]);
    known[n] = 0;
  }
}

/** @param {number} w */
function classOf(w) {
  const { chosen, place, hits, hitNow } = page;
  let name = "w";
  if (page.touched.has(w)) name += " fixed";
  else if (isUnsure(page, words, w)) name += " unsure";
  if (isDoubtful(page, words, w, page.doubts)) name += " doubt";
  if (page.noted.has(w)) name += " noted";
  if (words.flags[w] & OVERLAP) name += " both";
  if (!page.heard[w]) name += " ghost";
  if (chosen && place[w] >= chosen[0] && place[w] <= chosen[1]) name += " chosen";
  if (w === page.playing) name += " playing";
  const hit = hits.length ? matchAt(hits, place[w]) : -1;
  if (hit >= 0) name += hit === hitNow ? " hit now" : " hit";
  return name;
}

/** Mark words anew. @param {Iterable<number>} some all that are shown, by default */
export function paint(some = spans.keys()) {
  for (const w of some) {
    const element = spans.get(w);
    if (!element) continue;
    const name = classOf(w);
    if (element.className !== name) element.className = name;
  }
}

/** Return a function that scrolls back to the present top of the window, once the list has been laid out again. */
export function staying() {
  const { blocks } = page;
  const y = window.scrollY - listTop();
  const at = blocks.length && y > 0 ? Math.max(0, above(tops, y, blocks.length) - 1) : -1;
  const seen = at < 0 ? null : blocks[at];
  const from = seen ? y - tops[at] : 0;
  return () => {
    const now = seen ? page.paragraphs.findIndex((paragraph) => paragraph.end > seen.paragraph.start) : -1;
    if (!seen || now < 0) return;
    const w = seen.paragraph.words[seen.from] ?? -1; // of a long paragraph, its part
    const block = page.blockOf[w] >= 0 ? page.blockOf[w] : page.paragraphs[now].block;
    $("after").style.height = `${tops[page.blocks.length]}px`; // or there is nothing to scroll to
    window.scrollTo({ top: listTop() + tops[block] + from, behavior: "instant" });
  };
}

/** Return a function that gives the focus back to a control of the transcript, once its elements have been rebuilt. */
export function focusing() {
  if (document.activeElement === document.body) return () => {};
  const control = document.activeElement?.closest("#feed :is(button, a):focus-visible");
  const start = control ? page.paragraphs[Number(control.closest("article")?.dataset.paragraph)].start : 0;
  return () => {
    if (document.activeElement !== document.body) return;
    const paragraph = control ? page.paragraphs.find(({ end }) => end > start) : undefined;
    const again = paragraph && shown.get(paragraph.block)?.querySelector("button.who");
    (again instanceof HTMLElement ? again : main).focus({ preventScroll: true });
  };
}

/** @param {number} block @param {number} [part] of the window that is above it */
export function bringIntoView(block, part = 0.3) {
  window.scrollTo({ top: listTop() + tops[block] - barHeight() - window.innerHeight * part * 0.4,
    behavior: "instant" });
  render();
}

export function barHeight() {
  const bar = $("bar");
  return getComputedStyle(bar).position === "sticky" ? bar.getBoundingClientRect().height : 0;
}

/** Scroll so that a word can be read. @param {number} w @param {boolean} [always] */
export function reveal(w, always = false) {
  if (page.blockOf[w] < 0) return;
  if (!spans.has(w)) bringIntoView(page.blockOf[w]);
  const element = spans.get(w);
  if (!element) return;
  const box = element.getBoundingClientRect();
  const top = barHeight() + 20, bottom = window.innerHeight - 80;
  if (always || box.top < top || box.bottom > bottom) {
    window.scrollBy({ top: box.top - top - (bottom - top) * 0.25, behavior: always ? "instant" : glide() });
  }
}

const still = matchMedia("(prefers-reduced-motion: reduce)");
function glide() {
  return still.matches ? "instant" : "smooth";
}

/* ---------- printing ---------- */

export const isPrinting = () => printing;

/** Put the whole transcript into the document, without the controls. */
export function printAll() {
  printing = true;
  clear();
  $("before").style.height = $("after").style.height = "0";
  for (const paragraph of page.paragraphs) {
    const name = make("span", "name", speakerOf(paragraph), { dir: "auto" });
    const text = paragraph.words.map((w) => page.texts[w]).join("").trim();
    const said = make("p", "said", text || (paragraph.mark || `until ${clock(paragraph.end)}`));
    inLanguage(said, paragraph);
    const ghosts = paragraph.who < 0 && paragraph.words.length ? " ghosts" : "";
    feed.append(make("article", `p printed${ghosts}`, [make("header", "", [name, make("span", "time", clock(paragraph.start))]), said]));
  }
}

/** Take it out again. */
export function printed() {
  feed.replaceChildren();
  printing = false;
  clear();
  layOut();
}
