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
  const mine = asked;
  const code = $("code").value;
  const query = new URLSearchParams({ q: $("query").value, code }).toString();
  try {
    const said = await request(`/api/notes?${query}`);
    if (mine !== asked) return;
    $("facts").textContent = said.total === 1 ? "1 note" : `${said.total.toLocaleString("en")} notes`;
    const options = said.codes.map((/** @type {string} */ one) => {
      const option = make("option", "", one);
      option.value = one;
      return option;
    });
    $("code").replaceChildren($("code").options[0], ...options);
    $("code").value = code;
    $("notes").replaceChildren(...said.notes.map(row));
    $("empty").hidden = said.total > 0;
    $("project").href = `/api/notes/project?${query}`;
  } catch (error) {
    if (mine === asked) $("facts").textContent = wordsOf(error);
  }
}

/** @param {Listed} note */
function row(note) {
  const item = make("li");
  const link = make("a", "", `${note.name}, ${clock(1000 * note.start)}`);
  link.dir = "auto";
  link.href = `/t/${note.id}/${momentAt(1000 * note.start)}`;
  const quote = make("p", "quote");
  if (note.speaker) quote.append(make("bdi", "quiet", note.speaker), " ");
  quote.append(make("q", "", note.quote));
  quote.dir = "auto";
  item.append(link, quote);
  for (const code of note.codes) item.append(make("bdi", "code", code));
  if (note.text) {
    const text = make("p", "about", note.text);
    text.dir = "auto";
    item.append(text);
  }
  return item;
}

$("query").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(list, PAUSE); });
$("code").addEventListener("change", list);
$("search").addEventListener("submit", (event) => { event.preventDefault(); list(); });
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") list(); });
list().then(() => { document.documentElement.dataset.ready = "yes"; });
