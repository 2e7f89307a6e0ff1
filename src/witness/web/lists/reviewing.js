// @ts-check
/* How far the person has got with correcting, and whether they are done. */
import { clock } from "../editor/clock.js";
import { $, toast } from "../editor/dom.js";
import { keepDraft } from "../editor/drafts.js";
import { chosenEnd, showMoment } from "../editor/selection.js";
import { seek } from "../editor/sound.js";
import { edits, on, page, refused, words } from "../editor/state.js";
import { drawTimeline } from "../editor/timeline.js";
import { wordNow } from "../editor/caret.js";
/** @import { Review } from "../editor/edits.js" */

export function showReview() {
  const { checked, until } = edits.review;
  $("checked").setAttribute("aria-pressed", String(checked));
  $("until").hidden = !until;
  $("until").textContent = `corrected up to ${clock(1000 * until)}`;
}

/** @param {Partial<Review>} now */
function review(now) {
  if (refused()) return;
  edits.review = { ...edits.review, ...now };
  keepDraft();
  showReview();
  drawTimeline();
}

/** Note that all up to the word that is written in, selected or heard is corrected. */
export function upTo() {
  const written = wordNow();
  const w = written >= 0 ? written : page.chosen ? page.order[chosenEnd()] : -1;
  const until = Math.round(w >= 0 ? words.end[w] : page.position) / 1000;
  review({ until });
  toast(`Corrected up to ${clock(1000 * until)}.`);
}

on("steps", showReview); // others may have got farther
$("checked").addEventListener("click", () => review({ checked: !edits.review.checked }));
$("until").addEventListener("click", () => { seek(1000 * edits.review.until); showMoment(true); });
