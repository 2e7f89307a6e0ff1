// @ts-check
/* The page as a whole: drawing it again after changes, and its start. */
import { collapse } from "./across.js";
import { keepingCaret } from "./caret.js";
import { showDoubts } from "./keys.js";
import "./ownkeys.js";
import { $, around, enable, toast } from "./dom.js";
import { keepDraft, restoreDraft, deriveNow, edits, on, page, words } from "./state.js";
import { showNotes } from "./noting.js";
import { searchAgain } from "./search.js";
import { followHash, showTools, choose, chooseTo, unchoose } from "./selection.js";
import { openSound, audio, seek } from "./sound.js";
import { showSpeakers } from "./speakers.js";
import {
  clear, focusing, isPrinting, layOut, printAll, printed, relabel, render, soon, staying, feed, spans,
} from "./text.js";
import { drawTimeline } from "./timeline.js";
import { settle } from "./writing.js";
import { momentAt } from "./clock.js";
import { fillIn, fix, speakerMenu } from "./editing.js";
/** @import { Desk } from "./state.js" */

feed.addEventListener("click", (event) => {
  const target = around(event, "[data-w], [data-time], [data-fill], button.who");
  if (page.writing && around(event, ".said[contenteditable]")) return;
  if (!target) { unchoose(); return; }
  const { w, time, fill, paragraph } = target.dataset;
  if (target.matches("button.who")) { speakerMenu(Number(paragraph)); return; }
  if (fill !== undefined) { fillIn(page.paragraphs[Number(fill)]); return; }
  if (time !== undefined) {
    event.preventDefault();
    unchoose();
    history.replaceState(null, "", momentAt(Number(time)));
    seek(Number(time), true);
    return;
  }
  if (!getSelection()?.isCollapsed) return; // handled when the pointer goes up
  const at = page.place[Number(w)];
  if (event.shiftKey && page.chosen) { chooseTo(at, { view: false }); return; }
  choose(at, at, { view: false });
  seek(words.start[Number(w)], event.detail < 2);
});

feed.addEventListener("dblclick", (event) => {
  if (!around(event, page.writing ? ".inaudible" : "[data-w], .inaudible")) return;
  getSelection()?.removeAllRanges();
  audio.pause();
  const empty = around(event, ".inaudible")?.closest("article");
  if (empty) fillIn(page.paragraphs[Number(empty.dataset.paragraph)]); else fix();
});

document.addEventListener("pointerup", () => setTimeout(() => {
  if (page.writing) return;
  const dragged = getSelection();
  if (!dragged || dragged.isCollapsed || !dragged.rangeCount) return;
  const range = dragged.getRangeAt(0);
  if (!feed.contains(dragged.anchorNode) && !feed.contains(dragged.focusNode)) return;
  const inside = [...spans].filter(([, element]) => range.intersectsNode(element)).map(([w]) => page.place[w]);
  if (inside.length < 2) return; // a double click
  dragged.removeAllRanges();
  choose(Math.min(...inside), Math.max(...inside), { view: false });
}, 0));

on("steps", (onlyNames) => {
  if (onlyNames) showNames(); else refresh();
});

function showNames() {
  keepDraft();
  deriveNow();
  relabel();
  showAll();
  showTools();
}

/** Lay out the text again once `change` is done; the top of the window stays in view. @param {() => void} change @param {() => void} show */
function layOutAgain(change, show) {
  collapse(); // what was selected has other elements now
  const stay = staying(), caret = keepingCaret(), focus = focusing();
  change();
  clear();
  layOut();
  stay();
  show();
  showTools();
  caret();
  focus();
}

/** Rebuild the page after a step. */
const refresh = () => layOutAgain(() => {
  keepDraft();
  deriveNow();
  page.chosen = null;
  searchAgain();
}, showAll);

function showAll() {
  const { desk, blocks } = page;
  showSpeakers();
  render();
  drawTimeline();
  showDoubts();
  showNotes();
  enable($("undo"), edits.steps.length + edits.reviews.length > 0);
  enable($("save"), desk !== null || edits.steps.length > 0);
  $("save").classList.toggle("main", !desk && edits.unsaved && edits.steps.length > 0);
  $("empty").hidden = blocks.length > 0;
  if (!blocks.length) $("empty").textContent = "No speech was found in this recording.";
}

/* ---------- the window ---------- */

for (const event of ["wheel", "touchmove"]) {
  window.addEventListener(event, () => { page.following = false; }, { passive: true });
}
window.addEventListener("scroll", soon, { passive: true });
let lastWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (isPrinting()) return;
  drawTimeline();
  if (window.innerWidth === lastWidth) { soon(); return; }
  lastWidth = window.innerWidth;
  settle();
  layOutAgain(() => {}, render);
});
window.addEventListener("hashchange", followHash);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);
$("colors").addEventListener("change", drawTimeline);

const warnings = document.getElementById("warnings");
document.addEventListener("click", (event) => {
  if (!around(event, "#warnings")) warnings?.removeAttribute("open");
});

let stayAfterPrint = () => {};
window.addEventListener("beforeprint", () => {
  stayAfterPrint = staying();
  warnings?.toggleAttribute("open", true);
  printAll();
});
window.addEventListener("afterprint", () => {
  warnings?.toggleAttribute("open", false);
  printed();
  stayAfterPrint();
  render();
  drawTimeline();
});

/* ---------- the start ---------- */

/** Show the transcript. @param {Desk | null} desk what saves the corrections; null: the page is a file */
export function start(desk) {
  page.desk = desk;
  const restored = restoreDraft();
  desk?.open(restored);
  deriveNow();
  layOut();
  showAll();
  if (restored && edits.steps.length && !desk) {
    toast("Your corrections from before are here again. They are not saved to a file yet.");
  }
  openSound();
  followHash();
  document.documentElement.dataset.ready = "yes";
}
