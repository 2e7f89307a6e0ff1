// @ts-check
/* The row of a recording. Words, names of people and of files reach the document through textContent
   only. */
import { clock, span } from "../editor/clock.js";
import { button, make, toast } from "../editor/dom.js";
import { request } from "./request.js";

/**
 * A recording, as serve/routes/library.py sends it.
 * @typedef {{
 *   id: string, name: string, folder: string, seconds: number | null, speakers: string[], date: string | null,
 *   state: string, until: number, why: string | null, not_again?: string | null, tags?: string[],
 * }} Recording
 */

/** Row -> its content. @type {WeakMap<HTMLElement, string>} */
const filled = new WeakMap();

/** Write the present state of a recording into its row. @param {HTMLElement} row @param {Recording} recording
    @param {() => unknown} changed */
export function fillRow(row, recording, changed) {
  const content = JSON.stringify(recording);
  if (filled.get(row) === content) return;
  filled.set(row, content);
  cellsOf(recording, changed).forEach((cell, n) => {
    const before = row.children[n];
    if (!before) row.append(cell);
    else if (!before.isEqualNode(cell)) before.replaceWith(cell); // the others may be pressed, or have the focus
  });
}

const MOST_NAMED = 8; // speakers
const SHORT = 80; // characters of a line that needs nothing to open

/** Return a reason of a failure: one line, with the rest to open. @param {string} why */
function reason(why) {
  if (why.length <= SHORT) return make("span", "why", why);
  const short = why.split(/; |\n/)[0];
  return make("details", "why", [
    make("summary", "", short.length > SHORT ? `${short.slice(0, SHORT)}…` : short), make("p", "", why),
  ]);
}

/** @param {Recording} recording @param {() => unknown} changed */
function cellsOf({ id, name, folder, seconds, speakers, date, state, until, why, not_again: notAgain, tags }, changed) {
  const undone = state === "failed" || state === "canceled";
  const title = seconds === null || undone ? make("span", "", name, { dir: "auto" }) : make("a", "", name, { dir: "auto", href: `/t/${id}/` });
  const named = make("td", "text name", [title]);
  if (folder) named.append(make("span", "folder", folder, { dir: "auto" }));
  if (tags?.length) named.append(make("span", "tags", tags.flatMap((tag) => [make("bdi", "label", tag), " "])));
  const people = make("td", "text speakers", speakers.slice(0, MOST_NAMED).flatMap((speaker, n) => [n ? ", " : "", make("bdi", "", speaker)]));
  if (speakers.length > MOST_NAMED) people.append(` and ${speakers.length - MOST_NAMED} more`);
  const status = make("td", "text state", [make("span", `tag ${state}`, state)]);
  if (state === "in progress" && until) status.append(make("span", "why", `up to ${clock(1000 * until)}`));
  if (why) status.append(reason(why));
  if (notAgain) status.append(reason(`Could not be transcribed again: ${notAgain}`));
  if (notAgain || undone) status.append(jobButton("Try again", id, "retry", changed));
  if (notAgain) status.append(jobButton("Dismiss", id, "dismiss", changed));
  const more = make("td", "more", state === "working" || state === "waiting" ? [] : [make("button", "flat small", "⋯", {
    title: "Name, folder, tags, trash", ariaLabel: `Change ${name}`, dataset: { change: id },
  })]);
  return [named, make("td", "length", seconds === null ? "" : span(1000 * seconds)), people,
    make("td", "date", date ? new Date(date).toLocaleDateString(undefined, { dateStyle: "medium" }) : ""), status, more];
}

/** @typedef {"retry" | "cancel" | "dismiss"} JobAction */

/** Retry, cancel or dismiss a job. @param {string} id @param {JobAction} action */
export const requestJob = (id, action) => request(`/api/jobs/${id}/${action}`, undefined, "POST");

/** @param {string} text @param {string} id @param {JobAction} action @param {() => unknown} changed */
export const jobButton = (text, id, action, changed) => (
  button("flat small", text, () => requestJob(id, action).catch(toast).then(changed)));
