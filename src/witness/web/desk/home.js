// @ts-check
/* The page with all recordings. */
import "../editor/colors.js";
import "./dropping.js";
import "./people.js";
import { offer } from "./recording.js";
import "./replacing.js";
import "./shelving.js";
import { $, press, toast, wordsOf } from "../editor/dom.js";
import { listen } from "./jobs.js";
import { chosen, list } from "./library.js";
import { search } from "./passages.js";
import { openExport } from "./exporting.js";
import { request } from "./request.js";
/** @import { Recording } from "./rows.js" */

document.addEventListener("visibilitychange", () => {
  listen();
  if (document.visibilityState === "visible") list();
});

/** States of what has no transcript. */
const UNDONE = new Set(["failed", "canceled", "waiting", "working"]);

press($("export"), async () => {
  try {
    const { formats } = await request("/api/formats");
    /** @type {Recording[]} */
    const found = [];
    for (;;) { // it gives no more than so many at a time
      const said = await request(`/api/library?${chosen()}&sort=name&order=up&offset=${found.length}&limit=500`);
      found.push(...said.recordings);
      if (!said.recordings.length || found.length >= said.total) break;
    }
    const recordings = found.filter((one) => one.seconds !== null && !UNDONE.has(one.state));
    if (recordings.length) openExport({ formats, recordings }); else toast(chosen() ? "There is no transcript to export among those that are listed." : "There is no transcript to export yet.");
  } catch (error) {
    toast(wordsOf(error));
  }
});

const given = new URLSearchParams(location.hash.slice(1));
// What is in a field by now was typed while the page loaded.
$("query").value ||= given.get("q") ?? "";
$("speaker").value ||= given.get("speaker") ?? "";
list().then(() => { document.documentElement.dataset.ready = "yes"; });
if ($("query").value || $("speaker").value) search();
listen();
offer();
