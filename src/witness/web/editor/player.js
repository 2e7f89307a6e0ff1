// @ts-check
/* How somebody listens: speed, how far the sound goes back when it goes on, loops, and pauses that are skipped. */
import { $, toast } from "./dom.js";
import { chosenWords, paragraphNow } from "./selection.js";
import { player, seek, setSpeed } from "./sound.js";
import { page, words } from "./state.js";
import { keep, kept } from "./storage.js";
import { wordNow } from "./caret.js";

const BACK = "witness-back";

/** Hear the selected words, or the paragraph, again and again; or go on. */
export function loopHere() {
  if (player.loop) player.loop = null;
  else {
    const w = wordNow();
    const here = page.paragraphs[w >= 0 ? page.paragraphOf[w] : paragraphNow()];
    const chosen = chosenWords();
    if (!here && !chosen.length) return;
    player.loop = chosen.length > 1
      ? [words.start[chosen[0]], Math.max(...chosen.map((each) => words.end[each]))] : [here.start, here.end];
    seek(player.loop[0], true);
  }
  $("loop").setAttribute("aria-pressed", String(player.loop !== null));
}

export function skipPauses() {
  player.skips = !player.skips;
  $("skip").setAttribute("aria-pressed", String(player.skips));
  toast(player.skips ? "Pauses are skipped." : "Pauses are heard.");
}

$("loop").addEventListener("click", loopHere);
$("skip").addEventListener("click", skipPauses);
$("rate").addEventListener("change", () => setSpeed(Number($("rate").value)));
$("back").addEventListener("change", () => {
  player.back = Number($("back").value);
  keep(BACK, $("back").value);
});
if ([...$("back").options].some(({ value }) => value === kept(BACK))) $("back").value = kept(BACK) ?? "";
player.back = Number($("back").value);
