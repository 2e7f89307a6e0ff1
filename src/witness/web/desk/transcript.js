// @ts-check
/* The page of a transcript on the desk. */
import "./asking.js";
import { announce, offerWords } from "./again.js";
import { start } from "../editor/main.js";
import { play, seek } from "../editor/sound.js";
import { setPeaks, drawTimeline } from "../editor/timeline.js";
import { request } from "./request.js";
import { wentOn } from "../editor/storage.js";
import { changed, save, seen, served, takeUp } from "./saving.js";
import { askRemember, askVoice, suggest } from "./voices.js";
import { clock } from "../editor/clock.js";
import { $, enable, toast } from "../editor/dom.js";
import { keepDraft, edits, on, page, refused, words } from "../editor/state.js";
import { chosenEnd, showMoment } from "../editor/selection.js";
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
  edits.mark({ ...edits.review, ...now });
  enable($("undo"), true);
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

start({
  soundless: "the recording is not where it was, or this browser cannot play it",
  get version() { return seen.version; },
  get refusal() { return served.refusal; },
  get noting() { return served.noting; },
  open: takeUp,
  changed,
  save,
  voice: askVoice,
  upTo,
  remember: askRemember,
  codes: async () => (await request("/api/notes/codes")).codes,
});
showReview();
if (wentOn(served.id)) play();

// The outline of the sound, which may take a moment the first time.
fetch("outline").then(async (answer) => setPeaks(answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null))
  .catch(() => setPeaks(null));

suggest();
announce();
on("saved", offerWords);
