/* Selecting words, copying them as a quotation, and links to moments. */

/* ---------- selecting words ---------- */

let chosen = null; // [first, last] in reading order; null: nothing is selected
let fixedEnd = 0; // the end of the selection that stays where it is
let movingEnd = 0; // the other end

function choose(from, to = from, { view = true } = {}) {
  fixedEnd = from;
  movingEnd = to;
  chosen = [Math.min(from, to), Math.max(from, to)];
  paint();
  if (view) reveal(order[to]);
  showTools();
}

function unchoose() {
  chosen = null;
  paint();
  showTools();
}

function chosenWords() {
  return chosen ? order.slice(chosen[0], chosen[1] + 1) : [];
}

/** The selected words, or those of the paragraph that is being read or heard. */
function meant() {
  if (chosen) return chosenWords();
  const paragraph = paragraphs[paragraphNow()];
  return paragraph ? paragraph.words.slice() : [];
}

function paragraphNow() {
  if (chosen) return paragraphOf[order[chosen[0]]];
  const focused = document.activeElement?.closest?.("article.p");
  if (focused) return Number(focused.dataset.paragraph);
  let at = playing >= 0 ? paragraphOf[playing] : -1;
  if (at < 0) {
    at = paragraphs.length - 1;
    while (at > 0 && paragraphs[at].start > position) at -= 1;
  }
  return at;
}

function showTools() {
  const tools = $("tools");
  const ends = chosen && [order[chosen[0]], order[chosen[1]]].map((w) => spans.get(w)).filter(Boolean);
  // A single word was clicked to hear it: do not cover its neighbors.
  hide(tools, !ends || !ends.length || chosen[0] === chosen[1]);
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

feed.addEventListener("click", (event) => {
  const target = event.target.closest("[data-w], [data-time], [data-fill], button.who");
  if (!target) { unchoose(); return; }
  if (target.matches("button.who")) { speakerMenu(Number(target.dataset.paragraph)); return; }
  if (target.dataset.fill !== undefined) { fillIn(paragraphs[target.dataset.fill]); return; }
  if (target.dataset.time !== undefined) {
    event.preventDefault();
    unchoose();
    history.replaceState(null, "", `#t=${(target.dataset.time / 1000).toFixed(1)}`);
    seek(Number(target.dataset.time), true);
    return;
  }
  const dragged = getSelection();
  if (!dragged.isCollapsed) return; // handled when the pointer goes up
  const w = Number(target.dataset.w);
  if (event.shiftKey && chosen) { choose(fixedEnd, place[w], { view: false }); return; }
  choose(place[w], place[w], { view: false });
  seek(words.start[w], event.detail < 2);
});
feed.addEventListener("dblclick", (event) => {
  if (!event.target.closest("[data-w], .inaudible")) return;
  getSelection().removeAllRanges();
  audio.pause();
  fix(); // of an inaudible passage: the click before has gone there
});
document.addEventListener("pointerup", () => setTimeout(() => {
  const dragged = getSelection();
  if (dragged.isCollapsed || !dragged.rangeCount) return;
  const range = dragged.getRangeAt(0);
  if (!feed.contains(dragged.anchorNode) && !feed.contains(dragged.focusNode)) return;
  const inside = [...spans].filter(([, element]) => range.intersectsNode(element)).map(([w]) => place[w]);
  if (inside.length < 2) return; // a double click
  dragged.removeAllRanges();
  choose(Math.min(...inside), Math.max(...inside), { view: false });
}, 0));

/* ---------- copying ---------- */

function quotation(list) {
  const lines = [];
  let paragraph = -1;
  for (const w of list) {
    if (paragraphOf[w] !== paragraph) {
      paragraph = paragraphOf[w];
      lines.push(`[${clock(words.start[w])}] ${nameOf(owner[w])}: `);
      lines[lines.length - 1] += texts[w].trimStart();
    } else {
      lines[lines.length - 1] += texts[w];
    }
  }
  return lines.join("\n");
}

let clipping = null;
document.addEventListener("copy", (event) => {
  const typing = event.target.closest?.("input");
  const text = clipping ?? (!typing && chosen && getSelection().isCollapsed ? quotation(chosenWords()) : null);
  if (text === null) return;
  event.clipboardData.setData("text/plain", text);
  event.preventDefault();
});

async function copy(text, what) {
  clipping = text;
  let done = document.execCommand("copy"); // needs no permission, even from a file
  clipping = null;
  // Safari does this only if something is selected in the document.
  if (!done) done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  toast(done ? what : "This browser could not copy.");
}

function quote() {
  const list = meant();
  if (list.length) copy(quotation(list), `Copied: ${shortened(quotation(list))}`);
}

function link() {
  const ms = chosen ? words.start[order[chosen[0]]] : position;
  const hash = `#t=${(ms / 1000).toFixed(1)}`;
  history.replaceState(null, "", hash);
  copy(location.href.replace(/#.*$/, "") + hash, `Copied a link to ${clock(ms)}`);
}

function shortened(text) {
  const letters = [...text];
  return letters.length > 80 ? `${letters.slice(0, 79).join("")}…` : text;
}

function followHash() {
  const match = /^#t=(\d+(?:\.\d+)?)$/.exec(location.hash);
  if (!match) return;
  seek(Number(match[1]) * 1000, false);
  showMoment(true);
}

/** Scroll to what is said at the position, or to what comes next. */
function showMoment(mark) {
  if (!order.length) {
    if (paragraphs.length) bringIntoView(paragraphs[Math.max(0, paragraphNow())].block);
    return;
  }
  let w = wordAt(position);
  if (w < 0) w = Math.min(texts.length - 1, above(words.start, position));
  while (w < texts.length && place[w] < 0) w += 1;
  if (w >= texts.length) w = order[order.length - 1];
  bringIntoView(blockOf[w]);
  reveal(w, true);
  if (mark) choose(place[w]);
}
