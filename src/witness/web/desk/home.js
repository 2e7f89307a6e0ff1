// @ts-check
/* The page with all recordings. */
import "../editor/colors.js";
import "./dropping.js";
import "./people.js";
import { offer } from "./recording.js";
import "./replacing.js";
import "./shelving.js";
import { $, press, toast } from "../editor/dom.js";
import "./jobs.js";
import { chosen, list } from "./library.js";
import { search } from "./passages.js";
import { openExport } from "./exporting.js";
import { request } from "./request.js";
/** @import { Recording } from "./rows.js" */

document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") list(); });

/** States of recordings without a transcript. */
const UNDONE = new Set(["failed", "canceled", "waiting", "working"]);

press($("export"), async () => {
  const { formats } = await request("/api/formats");
  /** @type {Recording[]} */
  const listed = [];
  for (;;) { // it gives no more than so many at a time
    const said = await request(`/api/library?${chosen()}&sort=name&order=up&offset=${listed.length}&limit=500`);
    listed.push(...said.recordings);
    if (!said.recordings.length || listed.length >= said.total) break;
  }
  const recordings = listed.filter(({ seconds, state }) => seconds !== null && !UNDONE.has(state));
  if (recordings.length) openExport({ formats, recordings }); else toast(chosen() ? "There is no transcript to export among those that are listed." : "There is no transcript to export yet.");
});

const linked = new URLSearchParams(location.hash.slice(1));
// A field may already have text that was typed while the page loaded.
$("query").value ||= linked.get("q") ?? "";
$("speaker").value ||= linked.get("speaker") ?? "";
list().then(() => { document.documentElement.dataset.ready = "yes"; });
if ($("query").value || $("speaker").value) search();
offer();
