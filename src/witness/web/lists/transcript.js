// @ts-check
/* The page of a transcript on the desk. */
import "./asking.js";
import { announce, offerWords } from "./again.js";
import { start } from "../editor/main.js";
import { play } from "../editor/sound.js";
import { setPeaks } from "../editor/timeline.js";
import { call } from "./call.js";
import { wentOn } from "./listening.js";
import { showReview, upTo } from "./reviewing.js";
import { changed, onSaved, save, seen, served, takeUp } from "./saving.js";
import { askRemember, askVoice, suggest } from "./voices.js";

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
  codes: async () => (await call("/api/notes/codes")).codes,
});
showReview();
if (wentOn(served.id)) play();

// The outline of the sound, which may take a moment the first time.
fetch("outline").then(async (answer) => setPeaks(answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null))
  .catch(() => setPeaks(null));

suggest();
announce();
onSaved(offerWords);
