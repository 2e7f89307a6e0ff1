/* Keyboard shortcuts and buttons, printing, and the start. */

function step(by, extend) {
  if (!order.length) return;
  let at;
  if (chosen) {
    at = Math.min(order.length - 1, Math.max(0, movingEnd + by));
  } else {
    const w = wordAt(position);
    at = w >= 0 ? place[w] : Math.max(0, place[Math.max(0, above(words.start, position) - 1)]);
  }
  choose(extend && chosen ? fixedEnd : at, at);
  if (!extend) seek(words.start[order[at]], false);
  $("announce").textContent = `${texts[order[at]].trim()}, ${nameOf(owner[order[at]])}`;
}

function stepParagraph(by) {
  const wordy = paragraphs.map((paragraph, n) => n).filter((n) => paragraphs[n].words.length);
  const now = paragraphNow();
  if (!wordy.length) {
    const next = paragraphs[Math.min(paragraphs.length - 1, Math.max(0, now + by))];
    if (next) { seek(next.start, false); bringIntoView(next.block); }
    return;
  }
  const at = wordy.indexOf(now);
  const next = paragraphs[wordy[Math.min(wordy.length - 1, Math.max(0, at + by))]];
  choose(place[next.words[0]]);
  seek(next.start, false);
  $("announce").textContent = `${nameOf(next.who)}, ${clock(next.start)}: ${shortened(quotation(next.words))}`;
}

const actions = {
  copy: quote, link, move: () => askMove(meant(), "Who said this?"), fix, voice: () => desk.voice(chosenWords()),
};
const keys = {
  " ": toggle,
  c: quote,
  l: link,
  e: fix,
  F2: fix,
  m: actions.move,
  v: () => desk?.voice(chosenWords()),
  r: () => withSpeaker(askName),
  g: () => withSpeaker(askMerge),
  n: () => goTo(1),
  N: () => goTo(-1),
  "/": openSearch,
  "?": () => $("keys").showModal(),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  ",": () => seek(position - 5000),
  ".": () => seek(position + 5000),
  Escape: () => { if (chosen || $("search").hidden) unchoose(); else closeSearch(); },
};

/** The key by its letter, or where the keyboard has other letters, as Russian ones, by the place of the key. */
function keyOf(event) {
  const other = event.key.length === 1 && event.key > "\u007f" && event.code.match(/^Key([A-Z])$/);
  const key = other ? (event.shiftKey ? other[1] : other[1].toLowerCase()) : event.key;
  return key.length === 1 && key !== "N" ? key.toLowerCase() : key;
}

/** Whether the text around the selection runs from right to left. */
function rightToLeft() {
  const here = spans.get(chosen ? order[movingEnd] : playing) ?? spans.values().next().value;
  return Boolean(here) && getComputedStyle(here).direction === "rtl";
}

function withSpeaker(action) {
  const paragraph = paragraphs[paragraphNow()];
  if (paragraph && paragraph.who >= 0) action(paragraph.who);
}

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.altKey || composes(event)) return;
  const key = keyOf(event);
  if (event.ctrlKey || event.metaKey) {
    if (key === "z" && !event.target.closest("input")) { if (event.shiftKey) redo(); else undo(); }
    else if (key === "y" && !event.target.closest("input")) redo();
    else if (key === "s") save();
    else if (key === "f" && document.activeElement !== $("query")) openSearch();
    else return;
    event.preventDefault();
    return;
  }
  if (event.target.closest("input, select, textarea")) return;
  const onButton = event.target.closest("button, a, summary");
  if (onButton && (key === " " || key === "Enter")) return;
  if (["PageUp", "PageDown", "Home", "End"].includes(key)) following = false;
  const way = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (way) step(rightToLeft() ? -way : way, event.shiftKey);
  else if (key === "ArrowUp" || key === "ArrowDown") stepParagraph(key === "ArrowUp" ? -1 : 1);
  else if (keys[key]) keys[key]();
  else return;
  event.preventDefault();
});

$("play").addEventListener("click", toggle);
document.addEventListener("click", (event) => {
  if (!event.target.closest("#warnings")) $("warnings")?.removeAttribute("open");
});
$("rate").addEventListener("change", () => { audio.playbackRate = Number($("rate").value); });
$("undo").addEventListener("click", undo);
$("save").addEventListener("click", save);
$("help").addEventListener("click", () => $("keys").showModal());
$("closer").addEventListener("click", () => zoom(0.5));
$("wider").addEventListener("click", () => zoom(2));
$("tools").addEventListener("click", (event) => actions[event.target.closest("button")?.dataset.do]?.());

for (const event of ["wheel", "touchmove"]) {
  window.addEventListener(event, () => { following = false; }, { passive: true });
}
window.addEventListener("scroll", soon, { passive: true });
let lastWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (printing) return;
  drawTimeline();
  if (window.innerWidth === lastWidth) { soon(); return; }
  lastWidth = window.innerWidth;
  const stay = staying(), focus = focusing();
  clear();
  layOut();
  stay();
  render();
  showTools();
  focus();
});
window.addEventListener("hashchange", followHash);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);
$("colors").addEventListener("change", drawTimeline);

let stayAfterPrint = () => {};
window.addEventListener("beforeprint", () => {
  stayAfterPrint = staying();
  printing = true;
  clear();
  $("before").style.height = $("after").style.height = "0";
  $("warnings")?.toggleAttribute("open", true);
  for (const paragraph of paragraphs) {
    const element = make("article", "p printed");
    const name = make("span", "name", speakerOf(paragraph));
    name.dir = "auto";
    const head = make("header");
    head.append(name, make("span", "time", clock(paragraph.start)));
    const text = paragraph.words.map((w) => texts[w]).join("").trim();
    const said = make("p", "said", text || (data.listened ? "[inaudible]" : `until ${clock(paragraph.end)}`));
    said.dir = "auto";
    element.append(head, said);
    if (paragraph.who < 0 && paragraph.words.length) element.classList.add("ghosts");
    feed.append(element);
  }
});
window.addEventListener("afterprint", () => {
  feed.replaceChildren();
  $("warnings")?.toggleAttribute("open", false);
  printing = false;
  clear();
  layOut();
  stayAfterPrint();
  render();
  drawTimeline();
});

const announce = make("p", "hidden");
announce.id = "announce";
announce.setAttribute("aria-live", "polite");
document.body.append(announce);

const restored = restoreDraft();
desk?.open(restored);
derive();
layOut();
showAll();
if (restored && steps.length && !desk) toast("Your corrections from before are here again. They are not saved to a file yet.");
openSound();
followHash();
document.documentElement.dataset.ready = "yes";
