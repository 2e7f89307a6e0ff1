// @ts-check
/* Words replaced in all recordings: first shown, each with a box to keep it, then written. */
import { $, hide, make, press, toast, wordsOf } from "../editor/dom.js";
import { request } from "./request.js";
import { counted } from "./library.js";
import { search } from "./passages.js";

/**
 * @typedef {{ place: number, before: string, old: string, new: string, after: string }} Occurrence
 * @typedef {{ id: string, name: string, version: string, boxes: Map<HTMLInputElement, number> }} Found by recording
 */

const ABOUT = $("replacing-about").textContent;
const MOST = 200; // recordings that are looked at in one go

/** @type {Found[]} */
let found = [];
let looked = 0; // the number of the latest look, whose answer counts
let rule = { heard: "", written: "" };

const chosen = () => found.flatMap(({ boxes }) => [...boxes.keys()].filter((box) => box.checked)).length;

function showCount() {
  const count = chosen();
  $("replace-all").textContent = `Replace ${count}`;
  $("replace-all").disabled = !count;
}

/** Show all places that would be rewritten. */
async function look() {
  looked += 1;
  const mine = looked;
  rule = { heard: $("heard").value.trim(), written: $("written").value.trim() };
  found = [];
  hide($("replace-all"));
  $("replacing-list").replaceChildren();
  const about = $("replacing-about");
  about.textContent = "Looking…";
  try {
    const query = new URLSearchParams({ q: `"${rule.heard.replaceAll('"', " ")}"`, limit: String(MOST) });
    const { groups, recordings } = await request(`/api/search?${query}`);
    for (const [n, group] of groups.entries()) {
      const said = await request(`/t/${group.id}/replace?${new URLSearchParams(rule)}`);
      if (mine !== looked) return;
      if (said.places.length) $("replacing-list").append(shown(group, said.version, said.places));
      about.textContent = `${n + 1} of ${groups.length} recordings read…`;
    }
    const left = recordings > groups.length ? ` More recordings have it; replace these first, then look again.` : "";
    const count = chosen();
    about.textContent = count
      ? `${counted(count, "place")} in ${counted(found.length, "recording")}.${left}` : "Nobody says this.";
    hide($("replace-all"), !count);
    showCount();
  } catch (error) {
    if (mine === looked) about.textContent = wordsOf(error);
  }
}

/** A recording with its places. @param {{ id: string, name: string }} group @param {string} version
    @param {readonly Occurrence[]} places */
function shown({ id, name }, version, places) {
  /** @type {Found["boxes"]} */
  const boxes = new Map();
  const rows = places.map(({ place, before, old, new: fresh, after }) => {
    const box = make("input", "", "", { type: "checkbox", checked: true });
    boxes.set(box, place);
    const text = [`${before} `, make("del", "", old), " ", make("ins", "", fresh), ` ${after}`];
    return make("li", "", [make("label", "", [box, make("span", "", text, { dir: "auto" })])]);
  });
  found.push({ id, name, version, boxes });
  return make("li", "", [make("h3", "", [make("bdi", "", name)]), make("ol", "", rows)]);
}

/** Write the chosen places, one recording after the other; refused ones stay in the list, with the reason. */
async function write() {
  let done = 0, where = 0;
  const refused = [];
  for (const { id, name, version, boxes } of found) {
    const places = [...boxes].filter(([box]) => box.checked).map(([, place]) => place);
    if (!places.length) continue;
    try {
      await request(`/t/${id}/replace`, { version, ...rule, places });
      done += places.length;
      where += 1;
    } catch (error) {
      refused.push(`${name}: ${wordsOf(error)}`);
    }
  }
  toast(`${counted(done, "place")} replaced in ${counted(where, "recording")}; each transcript can undo it.`);
  found = [];
  hide($("replace-all"));
  $("replacing-list").replaceChildren();
  $("replacing-about").textContent = refused.join(" ");
  if (!refused.length) $("replacing").close();
  setTimeout(search, 1500); // the index reads them meanwhile
}

$("replace").addEventListener("click", () => {
  const query = $("query").value.trim();
  if (!/["*~]|\b(OR|NOT)\b/.test(query)) $("heard").value = query;
  $("replacing-about").textContent = ABOUT;
  $("replacing-list").replaceChildren();
  hide($("replace-all"));
  $("replacing").showModal();
  $($("heard").value ? "written" : "heard").focus();
});
$("replacing-form").addEventListener("submit", (event) => { event.preventDefault(); look(); });
$("replacing-list").addEventListener("change", showCount);
press($("replace-all"), write);
