// @ts-check
/* The row of a recording. What people said, their names and those of files reach the document through textContent
   only. */
import { clock, span } from "../editor/clock.js";
import { make, press, toast, wordsOf } from "../editor/dom.js";
import { request } from "./request.js";

/**
 * A recording, as serve/routes/library.py tells of it.
 * @typedef {{
 *   id: string, name: string, folder: string, seconds: number | null, speakers: string[], date: string | null,
 *   state: string, until: number, why: string | null, not_again?: string | null, tags?: string[],
 * }} Recording
 */

/** Row -> what it was filled with. @type {WeakMap<HTMLElement, string>} */
const filled = new WeakMap();

/** Write into a row what is known of the recording now. @param {HTMLElement} row @param {Recording} one
    @param {() => unknown} changed */
export function fillRow(row, one, changed) {
  const said = JSON.stringify(one);
  if (filled.get(row) === said) return;
  filled.set(row, said);
  cellsOf(one, changed).forEach((cell, n) => {
    const before = row.children[n];
    if (!before) row.append(cell);
    else if (!before.isEqualNode(cell)) before.replaceWith(cell); // the others may be pressed, or have the focus
  });
}

const MOST_NAMED = 8; // speakers
const SHORT = 80; // characters of a line that needs nothing to open

/** Why something failed: one line, with the rest to open. @param {string} why */
function reason(why) {
  const short = why.split(/; |\n/)[0];
  if (why.length <= SHORT) return make("span", "why", why);
  const details = make("details", "why"), line = make("summary", "", short.length > SHORT ? `${short.slice(0, SHORT)}…` : short);
  details.append(line, make("p", "", why));
  return details;
}

/** @param {Recording} one @param {() => unknown} changed */
function cellsOf(one, changed) {
  const name = make("td", "text name");
  const undone = one.state === "failed" || one.state === "canceled";
  const there = one.seconds !== null && !undone;
  const title = make(there ? "a" : "span", "", one.name);
  title.dir = "auto";
  if (title instanceof HTMLAnchorElement) title.href = `/t/${one.id}/`;
  name.append(title);
  if (one.folder) {
    const folder = make("span", "folder", one.folder);
    folder.dir = "auto";
    name.append(folder);
  }
  if (one.tags?.length) {
    const tags = make("span", "tags");
    one.tags.forEach((tag) => tags.append(make("bdi", "label", tag), " "));
    name.append(tags);
  }
  const people = make("td", "text speakers");
  one.speakers.slice(0, MOST_NAMED).forEach((called, n) => people.append(n ? ", " : "", make("bdi", "", called)));
  if (one.speakers.length > MOST_NAMED) people.append(` and ${one.speakers.length - MOST_NAMED} more`);
  const state = make("td", "text state");
  state.append(make("span", `tag ${one.state}`, one.state));
  if (one.state === "in progress" && one.until) state.append(make("span", "why", `up to ${clock(1000 * one.until)}`));
  if (one.why) state.append(reason(one.why));
  if (one.not_again) {
    state.append(reason(`Could not be transcribed again: ${one.not_again}`), jobButton("Try again", one.id, "retry", changed),
      jobButton("Dismiss", one.id, "dismiss", changed));
  }
  if (undone) state.append(jobButton("Try again", one.id, "retry", changed));
  const more = make("td", "more");
  if (one.state !== "working" && one.state !== "waiting") {
    const button = make("button", "flat small", "⋯");
    button.type = "button";
    button.title = "Name, folder, tags, trash";
    button.setAttribute("aria-label", `Change ${one.name}`);
    button.dataset.change = one.id;
    more.append(button);
  }
  return [name, make("td", "length", one.seconds === null ? "" : span(1000 * one.seconds)), people,
    make("td", "date", one.date ? new Date(one.date).toLocaleDateString(undefined, { dateStyle: "medium" }) : ""), state, more];
}

/** @param {string} text @param {string} id @param {"retry" | "cancel" | "dismiss"} action @param {() => unknown} changed */
export function jobButton(text, id, action, changed) {
  const button = make("button", "flat small", text);
  button.type = "button";
  press(button, async () => {
    try { await request(`/api/jobs/${id}/${action}`, undefined, "POST"); } catch (error) { toast(wordsOf(error)); }
    changed();
  });
  return button;
}
