// @ts-check
/* Recordings and folders that are dropped on the page or chosen. */
import { $, press, toast } from "../editor/dom.js";
import { below, isHidden, recordingsIn } from "./folders.js";
import { add } from "./jobs.js";
import { aboutSettings, forNew, openSettings } from "./settings.js";

const ENDINGS = new Set((document.body.dataset.endings ?? "").split(" "));

/** @param {readonly File[]} files of folders */
function addFolders(files) {
  const recordings = recordingsIn(files, ENDINGS);
  if (recordings.length) add(recordings);
  else toast("No recording is among these files.");
}

$("add").addEventListener("click", () => $("files").click());
$("add-folder").addEventListener("click", () => $("folder").click());
press($("with"), () => openSettings({
  title: "New recordings are transcribed with…",
  about: "What you choose holds for recordings that are added in this tab, until it is closed.",
  go: "Use these",
  before: forNew.settings,
  done(settings) {
    forNew.settings = settings;
    const about = aboutSettings(settings);
    $("with").textContent = about ? `With ${about}…` : "With…";
  },
}));
$("files").addEventListener("change", () => { add($("files").files ?? []); $("files").value = ""; });
$("folder").addEventListener("change", () => {
  addFolders([...$("folder").files ?? []].filter((file) => !isHidden(file.webkitRelativePath)));
  $("folder").value = "";
});

/** @param {DragEvent} event */
const brings = (event) => event.dataTransfer?.types.includes("Files");
let inside = 0;
document.addEventListener("dragenter", (event) => {
  if (!brings(event)) return;
  inside += 1;
  $("drop").hidden = false;
});
document.addEventListener("dragleave", (event) => {
  if (!brings(event)) return;
  inside = Math.max(0, inside - 1);
  $("drop").hidden = inside === 0;
});
document.addEventListener("dragover", (event) => { if (brings(event)) event.preventDefault(); });
document.addEventListener("drop", async (event) => {
  const dropped = event.dataTransfer;
  if (!dropped || !brings(event)) return;
  event.preventDefault();
  inside = 0;
  $("drop").hidden = true;
  const entries = [...dropped.items].map((item) => item.webkitGetAsEntry?.() ?? null).filter((entry) => entry !== null);
  const files = [...dropped.files];
  if (!entries.some((entry) => entry.isDirectory)) { add(files); return; }
  /** @type {string[]} */
  const unread = [];
  addFolders((await Promise.all(entries.map((entry) => below(entry, unread)))).flat());
  if (unread.length) toast(`Could not be read: ${unread.join(", ")}`);
});
