// @ts-check
/* The notes of all recordings. What people wrote reaches the document through textContent only. */
import "../editor/colors.js";
import { clock, momentAt } from "../editor/clock.js";
import { $, make, wordsOf } from "../editor/dom.js";
import { request } from "./request.js";

/** @typedef {{ id: string, name: string, start: number, quote: string, speaker: string, text: string, codes: string[] }} Listed */

const PAUSE = 200; // ms after the last key until the notes are searched
let asked = 0, timer = 0;

async function list() {
  asked += 1;
  const mine = asked, code = $("code").value;
  const query = new URLSearchParams({ q: $("query").value, code }).toString();
  try {
    const said = await request(`/api/notes?${query}`);
    if (mine !== asked) return;
    $("facts").textContent = said.total === 1 ? "1 note" : `${said.total.toLocaleString("en")} notes`;
    $("code").replaceChildren($("code").options[0], ...said.codes.map((/** @type {string} */ name) => new Option(name, name)));
    $("code").value = code;
    $("notes").replaceChildren(...said.notes.map(row));
    $("empty").hidden = said.total > 0;
    $("project").href = `/api/notes/project?${query}`;
  } catch (error) {
    if (mine === asked) $("facts").textContent = wordsOf(error);
  }
}

/** @param {Listed} note */
function row({ id, name, start, quote, speaker, text, codes }) {
  return make("li", "", [
    make("a", "", `${name}, ${clock(1000 * start)}`, { dir: "auto", href: `/t/${id}/${momentAt(1000 * start)}` }),
    make("p", "quote", [...(speaker ? [make("bdi", "quiet", speaker), " "] : []), make("q", "", quote)], { dir: "auto" }),
    ...codes.map((code) => make("bdi", "code", code)),
    ...(text ? [make("p", "about", text, { dir: "auto" })] : []),
  ]);
}

$("query").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(list, PAUSE); });
$("code").addEventListener("change", list);
$("search").addEventListener("submit", (event) => { event.preventDefault(); list(); });
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") list(); });
list().then(() => { document.documentElement.dataset.ready = "yes"; });
