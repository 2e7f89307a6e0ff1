// @ts-check
/* The voice of the selected words, and the person in all recordings. A name is given only where somebody
   confirms it. */
import { momentAt } from "../../formats/web/clock.js";
import { BAD_NAME, checkName } from "../../formats/web/corrections.js";
import { ask } from "../../formats/web/dialogs.js";
import { $, make, press, toast, wordsOf } from "../../formats/web/dom.js";
import { page, words } from "../../formats/web/state.js";
import { call } from "./call.js";
import { leave, seen, served, settled } from "./saving.js";

/**
 * A speaker who sounds like the person, as serve/pages.py tells of them.
 * @typedef {{
 *   id: string, version: string, recording: string, start: number, likely: string, speaker: string, called: string,
 * }} Found `called`: the speaker's name, or id
 */

/** Transcript -> its version since a speaker was named from here. @type {Map<string, string>} */
const named = new Map();

/** @param {number[]} list */
export async function askVoice(list) {
  if (served.lack) { toast(served.lack); return; }
  if (!list.length) { toast("Select what one person says, 10 seconds or more."); return; }
  const who = page.owner[list[0]];
  let wanted = /** @type {string | null} */ (null);
  await ask("Whose voice is this?", "Name", who < 0 ? "" : page.names[who] ?? "", (text) => {
    wanted = checkName(text);
    return wanted === null ? BAD_NAME : null;
  });
  if (wanted === null) return;
  const start = words.start[list[0]] / 1000, end = Math.max(...list.map((w) => words.end[w])) / 1000;
  try {
    await call("voice", { name: wanted, start, end });
    await findPerson(wanted);
  } catch (error) {
    toast(wordsOf(error));
  }
}

/** Look for a person whose voice is known, and list the recordings as they are found. @param {string} name */
async function findPerson(name) {
  const dialog = $("voices"), about = $("voices-about"), people = $("people");
  const stop = new AbortController();
  $("voices-title").textContent = `Where is ${name}?`;
  about.textContent = "Looking…";
  people.replaceChildren();
  dialog.onclose = () => stop.abort();
  dialog.showModal();
  let count = 0;
  try {
    const answer = await fetch(`voice?name=${encodeURIComponent(name)}`, { signal: stop.signal });
    if (!answer.ok || !answer.body) throw new Error((await answer.json()).error.message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const { found, seen: searched, total, left } = JSON.parse(line);
        if (found) { count += 1; people.append(personIn(found, name)); }
        const missing = left ? ` ${left} could not be searched.` : "";
        about.textContent = searched === undefined ? about.textContent
          : searched < total ? `${searched} of ${total} recordings searched, ${count} found`
            : `${count || "None"} of ${total} ${total === 1 ? "recording" : "recordings"}.${missing}`;
      }
    }
  } catch (error) {
    if (!stop.signal.aborted) about.textContent = wordsOf(error);
  }
}

/** @param {Found} found @param {string} name */
export function personIn(found, name) {
  const item = make("li");
  const text = make("span", "name");
  const open = make("a", "", found.recording);
  open.href = `../${found.id}/${momentAt(1000 * found.start)}`;
  open.target = "_blank";
  open.dir = "auto";
  text.append(open, make("br"), make("span", "quiet", found.likely));
  item.append(text);
  if (found.called === name) { item.append(make("span", "quiet", "has this name")); return item; }
  const button = make("button", "flat", `Name ${found.called} so`);
  button.type = "button";
  button.title = `Call ${found.called} “${name}” in this recording`;
  press(button, async () => {
    try {
      await settled();
      const version = named.get(found.id) ?? (found.id === served.id ? seen.version : found.version);
      const said = await call(`../${found.id}/name`, { version, speaker: found.speaker, name });
      named.set(found.id, said.version); // another speaker of it may be the same person
      if (found.id === served.id) $("voices").addEventListener("close", leave, { once: true });
      const done = make("span", "quiet", "named");
      done.tabIndex = -1;
      button.replaceWith(done);
      done.focus();
    } catch (error) {
      toast(wordsOf(error));
    }
  });
  item.append(button);
  return item;
}
