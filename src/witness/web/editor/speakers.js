// @ts-check
/* The list of speakers. */
import { span } from "./clock.js";
import { BAD_NAME, checkName } from "./corrections.js";
import { $, button, composes, make, showIn, toast } from "./dom.js";
import { askMerge, rename } from "./editing.js";
import { look } from "./colors.js";
import { chip, initials, nameOf } from "./names.js";
import { data, page, refused } from "./state.js";

export function showSpeakers() {
  showIn($("speakers"), page.speakers, (one) => one.who, speakerItem, (item, { who, ms, share }) => {
    const parts = partsOf.get(item);
    if (!parts) return;
    const { mark, name, merge, filled, about, hint } = parts;
    mark.textContent = initials(who);
    name.textContent = nameOf(who);
    name.ariaLabel = `Rename ${nameOf(who)}`;
    merge.hidden = page.speakers.length < 2;
    merge.ariaLabel = `Merge ${nameOf(who)} with another speaker`;
    filled.style.width = `${(100 * share).toFixed(1)}%`;
    about.textContent = `${Math.round(100 * share)} % · ${span(ms)}`;
    const suggested = page.names[who] ? undefined : page.suggestions.get(who);
    if (!suggested) { hint.remove(); return; }
    hint.textContent = suggested.sure ? `sounds like ${suggested.name}` : `may be ${suggested.name}`;
    if (!hint.isConnected) item.children[0].after(hint);
  });
  $("speakers-title").textContent = page.speakers.length === 1 ? "1 speaker" : `${page.speakers.length} speakers`;
}

/** The parts of a speaker's item that may change.
    @type {WeakMap<HTMLElement, Record<"mark" | "name" | "merge" | "filled" | "about" | "hint", HTMLElement>>} */
const partsOf = new WeakMap();

/** The item of a speaker, without what may change. @param {{ who: number }} speaker */
function speakerItem({ who }) {
  const mark = chip(who), filled = make("span"), about = make("p", "quiet");
  const name = make("button", "name", "", {
    dir: "auto", title: who < data.speakers.length ? `Rename (${data.speakers[who][0]} in the files)` : "Rename",
    onclick: () => renameHere(name, who),
  });
  const merge = make("button", "flat small", "merge", { title: "Merge with another speaker", onclick: () => askMerge(who) });
  const { desk } = page;
  const voice = desk ? [button("flat small", "voice", () => desk.remember(who), {
    title: "Remember this voice, and find the person in all recordings", ariaLabel: `Remember the voice of ${nameOf(who)}`,
  })] : [];
  const hint = button("flat hint-name", "", () => {
    const suggested = page.suggestions.get(who);
    if (!suggested || refused()) return;
    name.focus(); // the suggestion goes
    rename(who, suggested.name);
  }, { dir: "auto", title: "Give this name; listen before you do" });
  const item = make("li", look(who), [make("div", "row", [mark, name, merge, ...voice]), make("div", "share", [filled]), about]);
  partsOf.set(item, { mark, name, merge, filled, about, hint });
  return item;
}

/** @param {HTMLButtonElement} name @param {number} who */
function renameHere(name, who) {
  if (refused()) return;
  const before = page.names[who] ?? "";
  const field = make("input", "name", "", { value: before, placeholder: nameOf(who), dir: "auto", ariaLabel: `Name of ${nameOf(who)}` });
  let done = false;
  const finish = (/** @type {boolean} */ keep) => {
    if (done) return;
    done = true;
    const trouble = keep && field.value.trim() && field.value !== before ? rename(who, field.value) : null;
    if (trouble) toast(trouble);
    field.replaceWith(name);
  };
  field.addEventListener("keydown", (event) => {
    if (composes(event)) return;
    const saving = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s"; // this name, too
    if (!saving && event.key !== "Enter" && event.key !== "Escape") return;
    if (!saving) event.preventDefault(); // or Enter would press the button that gets the focus
    if (event.key === "Enter" && field.value.trim() && checkName(field.value) === null) { toast(BAD_NAME); return; }
    finish(event.key !== "Escape");
    name.focus();
  });
  // Another person may have merged this speaker meanwhile; then the name goes to no other one.
  field.addEventListener("blur", () => finish(page.speakers.some((one) => one.who === who)));
  name.replaceWith(field);
  field.select();
  field.focus();
}
