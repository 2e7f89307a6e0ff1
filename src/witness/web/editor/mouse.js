// @ts-check
/* Clicking, and dragging over, words. */
import { momentAt } from "./clock.js";
import { around } from "./dom.js";
import { fillIn, fix, speakerMenu } from "./editing.js";
import { choose, chooseTo, unchoose } from "./selection.js";
import { audio, seek } from "./sound.js";
import { page, words } from "./state.js";
import { feed, spans } from "./text.js";

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
