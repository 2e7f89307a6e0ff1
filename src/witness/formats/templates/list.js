/* The transcript: a list of blocks, of which only those near the window are in the document. */

const feed = $("feed"), main = $("text");
const shown = new Map(); // block -> article
const spans = new Map(); // word -> span, for the blocks that are shown
let heights, known, tops; // of each block: its height, whether that was measured, where the block begins
let printing = false;
let perLine = 70, lineHeight = 28;

function measureType() {
  const probe = make("article", "p");
  const text = make("p", "said", "x");
  probe.append(make("header"), text);
  feed.append(probe);
  const style = getComputedStyle(text);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font || `${style.fontSize} ${style.fontFamily}`;
  const letter = pen.measureText("The quick brown fox jumps over the lazy dog, said she.").width / 54;
  perLine = Math.max(10, text.getBoundingClientRect().width / letter);
  lineHeight = parseFloat(style.lineHeight) || 28;
  measureType.rest = probe.getBoundingClientRect().height - lineHeight;
  probe.remove();
}

function estimate({ paragraph, from, to }) {
  let letters = 0;
  for (let n = from; n < to; n += 1) letters += texts[paragraph.words[n]].length;
  return measureType.rest + Math.max(1, Math.ceil((letters / perLine) * 1.03)) * lineHeight;
}

function layOut() {
  measureType();
  heights = Float64Array.from(blocks, estimate);
  known = new Uint8Array(blocks.length);
  tops = new Float64Array(blocks.length + 1);
  addUp(0);
}

function addUp(from) {
  for (let n = from; n < blocks.length; n += 1) tops[n + 1] = tops[n] + heights[n];
}

function clear() {
  for (const element of shown.values()) element.remove();
  shown.clear();
  spans.clear();
}

function listTop() {
  return $("before").getBoundingClientRect().top + window.scrollY;
}

/** Show the blocks near the window, measure them, and keep what people see in its place. */
function render() {
  if (printing || !blocks.length) return;
  for (let round = 0; round < 4; round += 1) {
    const y = window.scrollY - listTop();
    const first = Math.max(0, above(tops, y - BEYOND, blocks.length) - 1);
    const end = Math.min(blocks.length, above(tops, y + window.innerHeight + BEYOND, blocks.length));
    const anchored = Math.min(blocks.length - 1, Math.max(0, above(tops, y, blocks.length) - 1));
    for (const [n, element] of shown) {
      if (n < first || n >= end) {
        if (element.contains(document.activeElement)) main.focus({ preventScroll: true });
        for (const w of element.words) spans.delete(w);
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
      const height = shown.get(n).getBoundingClientRect().height;
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
function soon() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; render(); });
}

function article(n) {
  const { paragraph, number, from, to } = blocks[n];
  const who = paragraph.who;
  const element = make("article", `p ${look(who)}${from ? " more" : ""}${who < 0 && paragraph.words.length ? " ghosts" : ""}`);
  element.words = paragraph.words.slice(from, to);
  element.tabIndex = -1;
  element.setAttribute("aria-posinset", n + 1);
  element.setAttribute("aria-setsize", blocks.length);
  element.dataset.paragraph = number;
  const head = make("header");
  if (!from) {
    const button = make("button", "who");
    button.type = "button";
    button.dataset.paragraph = number;
    button.title = "Rename, merge, or give this paragraph to another speaker";
    const name = make("span", "name");
    name.dir = "auto";
    button.append(chip(who), name);
    const time = make("a", "time", clock(paragraph.start));
    time.href = `#t=${(paragraph.start / 1000).toFixed(1)}`;
    time.dataset.time = paragraph.start;
    time.title = "Play from here";
    head.append(button, time);
  }
  const said = make("p", "said");
  said.dir = "auto";
  if (data.language) said.lang = data.language;
  if (!paragraph.words.length) {
    const mark = make("span", data.listened ? "inaudible" : "quiet",
      data.listened ? `[inaudible] ${span(paragraph.end - paragraph.start)}`
        : `until ${clock(paragraph.end)}`);
    mark.lang = "en";
    mark.dataset.time = paragraph.start;
    said.append(mark);
    if (paragraph.gap >= 0) {
      const fill = make("button", "flat small", "write what was said");
      fill.type = "button";
      fill.lang = "en";
      fill.dataset.fill = number;
      said.append(" ", fill);
    }
  }
  for (const w of element.words) {
    const text = texts[w], bare = text.trimStart();
    if (bare.length < text.length) said.append(text.slice(0, text.length - bare.length));
    const word = make("span", classOf(w), bare);
    word.dataset.w = w;
    if (words.sure[w] >= 0 && words.sure[w] < UNSURE && owner[w] === words.speaker[w]) {
      word.title = `${words.sure[w]} % certain who said it`;
    }
    spans.set(w, word);
    said.append(word);
  }
  element.append(head, said);
  label(element, blocks[n]);
  return element;
}

/** Write who speaks into the element of a block. */
function label(element, { paragraph, from }) {
  if (from) return;
  element.querySelector(".who .chip").textContent = initials(paragraph.who);
  element.querySelector(".who .name").textContent = speakerOf(paragraph);
  element.setAttribute("aria-label", `${speakerOf(paragraph)}, ${clock(paragraph.start)}`);
}

function classOf(w) {
  let name = "w";
  const sure = words.sure[w];
  if (touched.has(w)) name += " fixed";
  else if (sure >= 0 && sure < UNSURE) name += " unsure";
  if (words.flags[w] & OVERLAP) name += " both";
  if (!heard[w]) name += " ghost";
  if (chosen && place[w] >= chosen[0] && place[w] <= chosen[1]) name += " chosen";
  if (w === playing) name += " playing";
  const hit = hits.length ? hitAt(place[w]) : -1;
  if (hit >= 0) name += hit === hitNow ? " hit now" : " hit";
  return name;
}

function paint() {
  for (const [w, element] of spans) {
    const name = classOf(w);
    if (element.className !== name) element.className = name;
  }
}

/** Show names that were just given. The elements stay: a name is taken when its field is left, which may be by
    pressing one of them or by going to it with Tab. */
function relabel() {
  keepDraft();
  derive();
  for (const [n, element] of shown) {
    label(element, blocks[n]);
    known[n] = 0;
  }
  showAll();
  showTools();
}

/** What scrolls back to what is at the top of the window now, once the list has been laid out anew. */
function staying() {
  const y = window.scrollY - listTop();
  const seen = blocks.length && y > 0 ? blocks[Math.max(0, above(tops, y, blocks.length) - 1)] : null;
  const from = seen ? y - tops[blocks.indexOf(seen)] : 0;
  return () => {
    const at = seen ? paragraphs.findIndex((paragraph) => paragraph.end > seen.paragraph.start) : -1;
    if (at < 0) return;
    const w = seen.paragraph.words[seen.from] ?? -1; // of a long paragraph, its part
    const block = blockOf[w] >= 0 ? blockOf[w] : paragraphs[at].block;
    $("after").style.height = `${tops[blocks.length]}px`; // or there is nothing to scroll to
    window.scrollTo({ top: listTop() + tops[block] + from, behavior: "instant" });
  };
}

/** What gives the focus back to whoever used the keyboard in the transcript, once its elements have been made anew. */
function focusing() {
  if (document.activeElement === document.body) return () => {};
  const control = document.activeElement.closest("#feed :is(button, a):focus-visible");
  const start = control && paragraphs[control.closest("article").dataset.paragraph].start;
  return () => {
    if (document.activeElement !== document.body) return;
    const at = control ? paragraphs.findIndex((paragraph) => paragraph.end > start) : -1;
    const again = shown.get(paragraphs[at]?.block)?.querySelector("button.who");
    (again ?? main).focus({ preventScroll: true });
  };
}

/** Rebuild the page after a step; what was at the top of the window stays there. */
function refresh() {
  const stay = staying(), focus = focusing();
  keepDraft();
  derive();
  chosen = null;
  search(false);
  clear();
  layOut();
  stay();
  showAll();
  showTools();
  focus();
}

function showAll() {
  showSpeakers();
  render();
  drawTimeline();
  enable($("undo"), steps.length > 0);
  enable($("save"), desk || steps.length > 0);
  $("save").classList.toggle("main", !desk && unsaved() && steps.length > 0);
  $("empty").hidden = blocks.length > 0;
  if (!blocks.length) $("empty").textContent = "No speech was found in this recording.";
}

function bringIntoView(block, part = 0.3) {
  window.scrollTo({ top: listTop() + tops[block] - barHeight() - window.innerHeight * part * 0.4,
    behavior: "instant" });
  render();
}

function barHeight() {
  const bar = $("bar");
  return getComputedStyle(bar).position === "sticky" ? bar.getBoundingClientRect().height : 0;
}

/** Scroll so that a word can be read. */
function reveal(w, always) {
  if (blockOf[w] < 0) return;
  if (!spans.has(w)) bringIntoView(blockOf[w]);
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
