// @ts-check
/* The voice of the selected words, and the person in all recordings. A name is given only where somebody
   confirms it. */
import { span } from "../editor/clock.js";
import { BAD_NAME, checkName } from "../editor/corrections.js";
import { ask } from "../editor/dialogs.js";
import { $, isolated, make, press, toast, wordsOf } from "../editor/dom.js";
import { rename } from "../editor/editing.js";
import { showSpeakers } from "../editor/speakers.js";
import { data, edits, page, refused, words } from "../editor/state.js";
import { request } from "./request.js";
import { placeOf, searchPerson } from "./finding.js";
import { leave, seen, served, settled } from "./saving.js";
/** @import { Found } from "./finding.js" */

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
    await request("voice", { name: wanted, start, end });
    await findPerson(wanted);
  } catch (error) {
    toast(wordsOf(error));
  }
}

/** Remember the voice of a speaker from all that they say while nobody else does. @param {number} who */
export async function askRemember(who) {
  if (served.lack) { toast(served.lack); return; }
  if (refused()) return;
  let wanted = /** @type {string | null} */ (null);
  await ask("Whose voice is this?", "Name; an earlier voice of this name is replaced", page.names[who] ?? "", (text) => {
    wanted = checkName(text);
    return wanted === null ? BAD_NAME : null;
  });
  if (wanted === null) return;
  rename(who, wanted); // by which the server finds the speaker, whatever was merged
  await settled();
  if (edits.unsaved) { toast("Your corrections are not saved yet; try again when they are."); return; }
  try {
    const { seconds } = await request("voice", { name: wanted, speaker: wanted });
    toast(`${isolated(wanted)} is remembered by ${span(1000 * seconds)} of speech.`);
    await findPerson(wanted);
  } catch (error) {
    toast(wordsOf(error));
  }
}

/** Ask whom the speakers without a name sound like. */
export async function suggest() {
  if (served.lack || !data.speakers.some(([, name]) => !name)) return;
  const { speakers } = await request("suggestions").catch(() => ({ speakers: {} })); // without them all works as well
  data.speakers.forEach(([id], who) => { if (speakers[id]) page.suggestions.set(who, speakers[id]); });
  showSpeakers();
}

/** Look for a person whose voice is known, and list the recordings as they are found. @param {string} name */
async function findPerson(name) {
  const dialog = $("voices"), about = $("voices-about"), people = $("people");
  const stop = new AbortController();
  $("voices-title").textContent = `Where is ${name}?`;
  people.replaceChildren();
  dialog.onclose = () => stop.abort();
  dialog.showModal();
  await searchPerson(name, stop, about, (found) => people.append(personIn(found, name)));
}

/** @param {Found} found @param {string} name */
export function personIn(found, name) {
  const item = make("li");
  item.append(placeOf(found));
  if (found.called === name) { item.append(make("span", "quiet", "has this name")); return item; }
  const button = make("button", "flat", `Name ${found.called} so`);
  button.type = "button";
  button.title = `Call ${found.called} “${name}” in this recording`;
  press(button, async () => {
    try {
      await settled();
      const version = named.get(found.id) ?? (found.id === served.id ? seen.version : found.version);
      const said = await request(`../${found.id}/name`, { version, speaker: found.speaker, name });
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
