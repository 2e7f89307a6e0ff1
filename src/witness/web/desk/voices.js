// @ts-check
/* The voice of the selected words, and the person in all recordings. A name is given only where the person
   confirms it. */
import { span } from "../editor/clock.js";
import { BAD_NAME, checkName } from "../editor/corrections.js";
import { ask } from "../editor/dialogs.js";
import { $, button, isolated, make, toast } from "../editor/dom.js";
import { rename } from "../editor/editing.js";
import { showSpeakers } from "../editor/speakers.js";
import { data, edits, page, refused, words } from "../editor/state.js";
import { request } from "./request.js";
import { linkTo, searchPerson } from "./finding.js";
import { leave, seen, served, settled } from "./saving.js";
/** @import { Found } from "./finding.js" */

/** Transcript -> its version since a speaker was named from here. @type {Map<string, string>} */
const named = new Map();

/** Ask whose voice it is; null: no answer. @param {string} label @param {number} who */
async function askWhose(label, who) {
  let name = /** @type {string | null} */ (null);
  await ask("Whose voice is this?", label, page.names[who] ?? "", (text) => {
    name = checkName(text);
    return name === null ? BAD_NAME : null;
  });
  return name;
}

/** @param {number[]} list */
export async function askVoice(list) {
  if (served.lack) { toast(served.lack); return; }
  if (!list.length) { toast("Select what one person says, 10 seconds or more."); return; }
  const name = await askWhose("Name", page.owner[list[0]]);
  if (name === null) return;
  const start = words.start[list[0]] / 1000, end = Math.max(...list.map((w) => words.end[w])) / 1000;
  try {
    await request("voice", { name, start, end });
    await findPerson(name);
  } catch (error) {
    toast(error);
  }
}

/** Save the voice of a speaker, from all passages in which only they speak. @param {number} who */
export async function askRemember(who) {
  if (served.lack) { toast(served.lack); return; }
  if (refused()) return;
  const name = await askWhose("Name; an earlier voice of this name is replaced", who);
  if (name === null) return;
  rename(who, name); // by which the server finds the speaker, whatever was merged
  await settled();
  if (edits.unsaved) { toast("Your corrections are not saved yet; try again when they are."); return; }
  const { seconds } = await request("voice", { name, speaker: name });
  toast(`${isolated(name)} is remembered by ${span(1000 * seconds)} of speech.`);
  await findPerson(name);
}

/** Ask for likely names of the speakers without one. */
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
  await searchPerson(name, stop, about, (match) => people.append(personIn(match, name)));
}

/** @param {Found} match @param {string} name */
export function personIn(match, name) {
  const { id, called, speaker } = match, link = linkTo(match);
  if (called === name) return make("li", "", [link, make("span", "quiet", "has this name")]);
  const naming = button("flat", `Name ${called} so`, async () => {
    await settled();
    const version = named.get(id) ?? (id === served.id ? seen.version : match.version);
    const said = await request(`../${id}/name`, { version, speaker, name });
    named.set(id, said.version); // another speaker of it may be the same person
    if (id === served.id) $("voices").addEventListener("close", leave, { once: true });
    const done = make("span", "quiet", "named", { tabIndex: -1 });
    naming.replaceWith(done);
    done.focus();
  }, { title: `Call ${called} “${name}” in this recording` });
  return make("li", "", [link, naming]);
}
