// @ts-check
/* The server's work on a transcript beside saving corrections: other formats, another number of speakers, the
   machine's version. */
import { ask, pick } from "../editor/dialogs.js";
import { $, toast } from "../editor/dom.js";
import { data, edits, redo } from "../editor/state.js";
import { askAgain, showDifferences } from "./again.js";
import { request } from "./request.js";
import { openExport } from "./exporting.js";
import { leave, seen, served, settled, show, showState } from "./saving.js";

/** Save all corrections, then ask for a change of the whole transcript, and show the result.
    @param {string} address @param {object} body */
async function change(address, body) {
  await settled();
  if (edits.unsaved) { toast("Your corrections are not saved yet; try again when they are."); return; }
  show("Working…", "busy");
  try {
    await request(address, { version: seen.version, ...body });
    await settled(); // later corrections are refused, and are for the person to decide
    if (edits.unsaved) showState(); else leave();
  } catch (error) {
    toast(error);
    showState();
  }
}

async function askCount() {
  let wanted = /** @type {number | null | undefined} */ (undefined);
  const before = String(served.asked ?? "");
  await ask("How many people speak?", "A number; leave it empty if you do not know it", before, (text) => {
    const number = text.trim() ? Number(text) : null;
    if (number !== null && !(Number.isInteger(number) && number >= 1 && number <= 10000)) return "A whole number, 1 or more.";
    wanted = number;
    return null;
  });
  if (wanted !== undefined) await change("speakers", { speakers: wanted });
}

async function askMore() {
  const earlier = served.corrected || (served.asked !== null && !served.lack);
  const choices = served.lack ? [] : [{ value: "count", label: "Another number of speakers…" }];
  if (!served.refusal) choices.push({ value: "again", label: "Transcribe again with…" });
  if (served.replaced) choices.push({ value: "differences", label: "What the last transcription changed…" });
  if (served.restorable && (edits.steps.length || earlier)) {
    choices.push({ value: "original", label: "Back to the machine's version…" });
  }
  if (!choices.length) { toast(served.refusal ?? served.lack ?? ""); return; }
  const done = await pick("This transcript", served.lack ?? "", choices);
  if (done === "count") await askCount();
  else if (done === "again") await askAgain();
  else if (done === "differences") await showDifferences().catch(toast);
  else if (done === "original") {
    const about = earlier
      ? "All corrections are dropped, those of earlier days too. This cannot be undone. Notes stay."
      : "All corrections are undone; Redo brings them back. Notes stay.";
    const sure = await pick("Back to the machine's version?", about, [{ value: true, label: "Drop all corrections" }]);
    if (sure) await change("original", {});
  }
}

$("redo").addEventListener("click", redo);
$("export").addEventListener("click", () => openExport({
  formats: served.formats, recordings: [{ id: served.id, name: data.title }], ready: settled,
}));
$("more").addEventListener("click", askMore);
