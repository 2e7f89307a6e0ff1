// @ts-check
/* Which recordings are listed: by folder, state, tag, speaker and date. This tab remembers it. */
import { $, enable, make } from "../editor/dom.js";

const KEPT = "witness-filters";
/** The fields, by what the server calls them. @type {readonly (readonly [string, HTMLInputElement | HTMLSelectElement])[]} */
const fields = [["name", $("by-name")], ["folder", $("by-folder")], ["state", $("by-state")], ["tag", $("by-tag")],
  ["speaker", $("by-speaker")], ["since", $("since")], ["until", $("till")]];
/** @type {Record<string, string>} */
const wanted = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");

/** What is chosen, for the server. */
export const chosen = () => String(new URLSearchParams(wanted));

function read() {
  for (const [name, field] of fields) {
    if (field.value) wanted[name] = field.value; else delete wanted[name];
  }
  sessionStorage.setItem(KEPT, JSON.stringify(wanted));
  enable($("all-again"), Object.keys(wanted).length > 0);
  $("filters").dispatchEvent(new Event("chosen"));
}

/** What there is to choose from. @param {Record<string, string[]>} choices by kind, as serve/library/library.py has them */
export function showChoices({ folders, tags, states, speakers }) {
  options($("by-folder"), "All folders", folders);
  options($("by-state"), "Any state", states);
  options($("by-tag"), "Any tag", tags);
  options($("by-speaker"), "Any speaker", speakers);
  $("folders").replaceChildren(...folders.map(option));
  $("tags").replaceChildren(...tags.map(option));
  for (const [name, field] of fields) if (field !== document.activeElement) field.value = wanted[name] ?? "";
  enable($("all-again"), Object.keys(wanted).length > 0);
}

/** @param {string} text */
function option(text) {
  const one = make("option", "", text);
  one.value = text;
  return one;
}

/** @param {HTMLSelectElement} list @param {string} all @param {string[]} names */
function options(list, all, names) {
  const before = [...list.options].map((one) => one.value).join("\n");
  if (before === ["", ...names].join("\n") && list.options.length) return; // it may be open
  const first = make("option", "", all);
  first.value = "";
  list.replaceChildren(first, ...names.map(option));
}

let typed = 0;
$("by-name").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(read, 150); });
$("filters").addEventListener("change", (event) => { if (event.target !== $("sort")) read(); });
$("filters").addEventListener("submit", (event) => { event.preventDefault(); read(); });
$("all-again").addEventListener("click", () => {
  for (const [, field] of fields) field.value = "";
  read();
});
