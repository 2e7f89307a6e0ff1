// @ts-check
/* The list of speakers. */
import { span } from "./clock.js";
import { BAD_NAME, checkName } from "./corrections.js";
import { $, composes, make, press, showIn, toast } from "./dom.js";
import { askMerge, rename } from "./editing.js";
import { chip, initials, look, nameOf } from "./names.js";
import { data, page, refused } from "./state.js";

export function showSpeakers() {
  showIn($("speakers"), page.speakers, (one) => one.who, speakerItem, (item, { who, ms, share }) => {
    const parts = partsOf.get(item);
    if (!parts) return;
    const { mark, name, merge, filled, about, hint } = parts;
    mark.textContent = initials(who);
    name.textContent = nameOf(who);
    name.setAttribute("aria-label", `Rename ${nameOf(who)}`);
    merge.hidden = page.speakers.length < 2;
    merge.setAttribute("aria-label", `Merge ${nameOf(who)} with another speaker`);
    filled.style.width = `${(100 * share).toFixed(1)}%`;
    about.textContent = `${Math.round(100 * share)} % · ${span(ms)}`;
    const suggested = page.names[who] ? undefined : page.suggestions.get(who);
    if (!suggested) { hint.remove(); return; }
    hint.textContent = suggested.sure ? `sounds like ${suggested.name}` : `may be ${suggested.name}`;
    if (!hint.isConnected) item.children[0].after(hint);
  });
  $("speakers-title").textContent = page.speakers.length === 1 ? "1 speaker" : `${page.speakers.length} speakers`;
}

/**
 * What may change in the item of a speaker.
 * @typedef {Record<"mark" | "name" | "merge" | "filled" | "about" | "hint", HTMLElement>} Parts
 * @type {WeakMap<HTMLElement, Parts>}
 */
const partsOf = new WeakMap();

/** The item of a speaker, without what may change. @param {{ who: number }} speaker */
function speakerItem({ who }) {
  const item = make("li", look(who));
  const row = make("div", "row");
  const mark = chip(who);
  const name = make("button", "name");
  name.type = "button";
  name.dir = "auto";
  name.title = who < data.speakers.length ? `Rename (${data.speakers[who][0]} in the files)` : "Rename";
  name.addEventListener("click", () => renameHere(name, who));
  const merge = make("button", "flat small", "merge");
  merge.type = "button";
  merge.title = "Merge with another speaker";
  merge.addEventListener("click", () => askMerge(who));
  row.append(mark, name, merge);
  const { desk } = page;
  if (desk) {
    const voice = make("button", "flat small", "voice");
    voice.type = "button";
    voice.title = "Remember this voice, and find the person in all recordings";
    voice.setAttribute("aria-label", `Remember the voice of ${nameOf(who)}`);
    press(voice, () => desk.remember(who));
    row.append(voice);
  }
  const hint = make("button", "flat hint-name");
  hint.type = "button";
  hint.dir = "auto";
  hint.title = "Give this name; listen before you do";
  press(hint, () => {
    const suggested = page.suggestions.get(who);
    if (!suggested || refused()) return;
    name.focus(); // the suggestion goes
    rename(who, suggested.name);
  });
  const bar = make("div", "share");
  const filled = make("span");
  bar.append(filled);
  const about = make("p", "quiet");
  item.append(row, bar, about);
  partsOf.set(item, { mark, name, merge, filled, about, hint });
  return item;
}

/**
 * @param {HTMLButtonElement} button
 * @param {number} who
 */
function renameHere(button, who) {
  if (refused()) return;
  const field = make("input", "name");
  field.value = page.names[who] ?? "";
  field.placeholder = nameOf(who);
  field.dir = "auto";
  field.setAttribute("aria-label", `Name of ${nameOf(who)}`);
  const before = field.value;
  let done = false;
  const finish = (/** @type {boolean} */ keep) => {
    if (done) return;
    done = true;
    const trouble = keep && field.value.trim() && field.value !== before ? rename(who, field.value) : null;
    if (trouble) toast(trouble);
    field.replaceWith(button);
  };
  field.addEventListener("keydown", (event) => {
    if (composes(event)) return;
    const saving = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s"; // this name, too
    if (!saving && event.key !== "Enter" && event.key !== "Escape") return;
    if (!saving) event.preventDefault(); // or Enter would press the button that gets the focus
    if (event.key === "Enter" && field.value.trim() && checkName(field.value) === null) { toast(BAD_NAME); return; }
    finish(event.key !== "Escape");
    button.focus();
  });
  // Another person may have merged this speaker meanwhile; then the name goes to no other one.
  field.addEventListener("blur", () => finish(page.speakers.some((one) => one.who === who)));
  button.replaceWith(field);
  field.select();
  field.focus();
}
