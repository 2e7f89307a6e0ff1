// @ts-check
/* A page that a server shows: corrections are saved in the transcript as they are made, and no work is
   lost. `seen.version` is the transcript that this page has seen; the server refuses to write over another one. */
import { momentAt } from "../editor/clock.js";
import { areSteps } from "../editor/corrections.js";
import { pick } from "../editor/dialogs.js";
import { $, enable, toast, wordsOf } from "../editor/dom.js";
import { forgetDraft, keepDraft, data, edits, page, tell, transcript } from "../editor/state.js";
import { corrections, download } from "../editor/editing.js";
import { alike, joined, twice } from "../editor/edits.js";
import { choose, chosenWords } from "../editor/selection.js";
import { isCalm } from "../editor/sound.js";
import { giveWay, settle } from "../editor/writing.js";
import { listen, request, RequestError } from "./request.js";
/** @import { Step } from "../editor/corrections.js" */
/** @import { Review } from "../editor/edits.js" */
/** @import { Kept } from "../editor/state.js" */
/** @import { FormatAbout } from "./exporting.js" */

const PAUSE = 700; // ms after the last step until it is saved
const MOST_SENT = 3; // of those without an answer that are remembered
const AGAIN = 4000; // ms until a server that did not answer is asked again

/** The transcript's state, as serve/editing/views.py sends it. `noting`: whether notes can be saved in spite of `refusal`; `working`:
    whether it is being transcribed again, `notAgain`: why that failed, `lack`: why its speakers cannot be counted or heard again.
    @type {{ id: string, working: boolean, notAgain: string | null, formats: FormatAbout[], version: string, review: Review, steps: unknown, undone: unknown[], refusal: string | null, noting: boolean, lack: string | null, restorable: boolean, replaced: boolean, foreign: string | null, history: string, corrected: boolean, asked: number | null, }} */
export const served = /** @type {any} */ (data.served);
export const seen = { version: served.version };

/** Messages about unchanged files, each of which appears once. @type {Set<string>} */
const told = new Set();
/** The request that is under way. @type {Promise<any> | null} */
let sending = null;
let timer = 0;
/** The reason for which saving has stopped until the person decides; `mine`: others have made another transcript meanwhile. */
let stuck = /** @type {{ message: string, mine: boolean } | null} */ (null);

/** Return whether no change can be saved. */
const barred = () => served.refusal !== null && !served.noting;

const AGAIN_HEARD = "this recording was transcribed again";

/** Note that the page shows another transcript than the desk now has, and why. */
async function renew() {
  const said = await request("differences").catch(() => ({ there: false }));
  stuck = { message: said.there && !said.seen ? AGAIN_HEARD : "someone else changed this transcript", mine: true };
  showState();
}

/** @param {string} text @param {string} [kind] @param {string} [title] */
export function show(text, kind = "", title = text) {
  const state = $("save");
  state.className = `state ${kind}`;
  state.textContent = text;
  state.title = title;
}

export function showState() {
  const { unsaved } = edits;
  enable($("redo"), edits.undone.length > 0);
  const ways = served.noting ? "read, commented, and exported" : "read and exported";
  $("refusal").textContent = served.refusal ? `This transcript can be ${ways}, not corrected: ${served.refusal}.` : "";
  $("refusal").hidden = !served.refusal;
  if (barred()) show(unsaved ? "Cannot be saved" : "Read only", unsaved ? "bad" : "busy", served.refusal ?? "");
  else if (stuck) show(unsaved || page.typing ? `Not saved: ${stuck.message}` : `Load it anew: ${stuck.message}`, "bad");
  else if (sending) show("Saving…", "busy");
  else if (unsaved || page.typing) show("Not saved yet", "busy");
  else show("Saved");
}

/** Take up the server's steps, and those that this browser kept because they could not be saved.
    @param {Kept | null} draft */
export function takeUp(draft) {
  /** @type {Step[]} */
  let steps = [];
  if (areSteps(transcript, served.steps)) ({ steps } = served);
  else {
    served.refusal = `${served.history}, which holds your steps, is damaged; remove it and load this page again`;
    served.noting = false;
  }
  const undone = [...served.undone];
  edits.adopt(steps, areSteps(transcript, [...steps, ...undone.slice().reverse()]) ? /** @type {any} */ (undone) : []);
  edits.review = edits.reviewed = served.review;
  if (draft) {
    const sent = [...draft.sent, draft.steps];
    const both = joined(transcript, steps, { ...draft, sent });
    if (!alike(both, steps)) edits.adopt(both, [], steps);
    // Until a later version is seen, what was sent when the page was closed may still arrive.
    if (draft.version === seen.version) edits.sent = sent;
    if (draft.review) edits.review = draft.review;
  }
  showState();
  if (edits.unsaved && !stuck) timer = setTimeout(send, PAUSE);
}

export function changed() {
  showState();
  clearTimeout(timer);
  if (edits.unsaved && !stuck && !barred()) timer = setTimeout(send, PAUSE);
}

export function save() {
  if (served.refusal && barred()) { toast(served.refusal); return; }
  if (stuck?.mine) decide();
  else { stuck = null; send(); }
}

/** Return whether the person is about to answer or to type, which must not go to something else. */
const asking = () => document.querySelector("dialog[open]") !== null;
const busy = () => asking() || Boolean(document.activeElement?.closest("input, [contenteditable]"));

/** Return whether no button of the mouse is pressed, and no word is being composed. */
const mayChange = () => isCalm() && !page.composing;

/** Wait for a moment in which the page may change. @param {() => boolean} may */
async function until(may) {
  while (!may()) await new Promise((done) => { setTimeout(done, 100); });
}

async function send() {
  clearTimeout(timer);
  if (sending || stuck || barred() || !edits.unsaved) { showState(); return; }
  const sent = edits.steps.slice();
  const { undone, review } = edits;
  edits.sent = [...edits.sent, sent].slice(-MOST_SENT);
  sending = served.noting ? sendNotes(seen.version, sent)
    : request("corrections", { version: seen.version, steps: sent, undone, corrections: corrections(), review }, "PUT");
  showState();
  try {
    const said = await sending;
    const left = said.left.filter((/** @type {string} */ line) => !told.has(line));
    if (left.length) toast(left.join("; "));
    left.forEach((/** @type {string} */ line) => told.add(line));
    arrived(said.version, sent, review);
  } catch (error) {
    const status = error instanceof RequestError ? error.status : 0;
    if (status === 409) await overtaken(sent);
    else if (status && status < 500 && status !== 408 && status !== 429) {
      stuck = { message: wordsOf(error), mine: false };
    } else {
      show(`Not saved: ${wordsOf(error)}`, "bad", "This browser keeps your corrections and tries again");
      timer = setTimeout(send, AGAIN);
      return;
    }
  } finally {
    sending = null;
  }
  keepDraft(); // and save what was corrected meanwhile
  if (heard && heard !== seen.version) catchUp();
}

/** Add the new steps of a person who may only add notes. @param {string} version @param {Step[]} steps */
const sendNotes = (version, steps) => request("notes", { version, steps: steps.slice(edits.base.length) });

/** Note that the sent steps are in this version of the transcript. @param {string} now @param {Step[]} sent @param {Review} review */
function arrived(now, sent, review) {
  seen.version = now;
  edits.arrived(sent, review);
  tell("saved");
}

/** After another person saved: join their steps and mine, or let the person decide. @param {Step[]} sent */
async function overtaken(sent) {
  try {
    const theirs = await request("corrections");
    if (alike(theirs.steps, sent)) { arrived(theirs.version, sent, theirs.review); return; } // it was me; the answer was lost
    await until(mayChange);
    if (theirs.page !== data.page || !areSteps(transcript, theirs.steps)) {
      await renew();
      until(() => !busy() && isCalm()).then(decide);
      return;
    }
    const { base } = edits, count = adopt(theirs);
    const both = count ? twice(transcript, theirs.steps.slice(base.length), edits.steps.slice(-count)) : [];
    if (both.length) toast(`Somebody else wrote ${quoted(both[0][0])} where you wrote ${quoted(both[0][1])}: yours is shown, and Undo shows theirs.`);
    else toast("Somebody else corrected this transcript, too: their corrections and yours are both here.");
  } catch (error) {
    show(`Not saved: ${wordsOf(error)}`, "bad");
    timer = setTimeout(send, AGAIN);
  }
}

/** @param {string} text */
const quoted = (text) => (text ? `“${text}”` : "nothing");

/** Show the steps that others have saved, with mine that are not saved yet; returns the number of these.
    @param {{ version: string, steps: Step[], undone: Step[], review: Review }} theirs */
function adopt(theirs) {
  const again = giveWay(), selected = chosenWords(), count = edits.steps.filter((step) => !edits.base.includes(step)).length;
  const both = joined(transcript, theirs.steps, edits);
  const undone = edits.unsaved ? edits.undone : theirs.undone;
  const possible = areSteps(transcript, [...both, ...undone.slice().reverse()]);
  seen.version = theirs.version;
  edits.adopt(both, possible ? undone.slice() : [], theirs.steps);
  edits.adoptReview(theirs.review);
  page.adopting = true;
  tell("steps", false);
  page.adopting = false;
  again();
  const places = selected.map((w) => page.place[w]).filter((at) => at >= 0);
  if (places.length) choose(places[0], places[places.length - 1], { view: false });
  return count;
}

/** Both changed the transcript in ways that no rule joins. */
async function decide() {
  settle();
  if (!edits.unsaved) { leave(); return; }
  const title = stuck?.message === AGAIN_HEARD ? "This recording was transcribed again" : "Somebody else changed this transcript";
  const done = await pick(title, "Yours are kept in this browser until you choose.", [
    { value: "add", label: "Add my corrections to theirs" },
    { value: "file", label: "Save mine to a file, and show theirs" },
  ]);
  if (done === null) { showState(); return; }
  try {
    if (done === "add") {
      const theirs = await request("corrections");
      const { version } = theirs;
      if (served.noting) await sendNotes(version, edits.steps);
      else await request("corrections", { version, corrections: corrections() });
    } else {
      download();
    }
    leave();
  } catch (error) {
    toast(error);
  }
}

/** Load the page again. */
export function leave() {
  edits.adopt([]);
  edits.review = edits.reviewed;
  forgetDraft();
  history.replaceState(null, "", page.position > data.start ? momentAt(page.position) : location.pathname);
  location.reload();
}

/** Show the changes of others once the person comes back to the page. */
async function catchUp() {
  if (sending || stuck || edits.unsaved || page.typing || asking()) return;
  try {
    if ((await request("version")).version === seen.version) return;
    const theirs = await request("corrections");
    await until(mayChange);
    if (theirs.version === seen.version || sending || edits.unsaved || asking()) return;
    if (theirs.page !== data.page || !areSteps(transcript, theirs.steps)) {
      if (busy()) await renew(); else leave();
      return;
    }
    const over = twice(transcript, theirs.steps.slice(edits.base.length), edits.own);
    adopt(theirs);
    if (over.length) toast(`Somebody else wrote ${quoted(over[0][0])} where you wrote ${quoted(over[0][1])}; Undo shows yours.`);
  } catch { /* the server is gone; the next correction tells so */ }
}

/** Wait until all corrections are saved, or cannot be. */
export async function settled() {
  await sending?.catch(() => {});
  if (edits.unsaved) await send();
}

/** The version that the server told of last. */
let heard = "";

listen("events", { version({ version }) {
  heard = version;
  if (heard !== seen.version) catchUp();
} });
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "hidden") send(); else catchUp(); });
window.addEventListener("focus", catchUp);
window.addEventListener("online", () => { if (edits.unsaved) send(); });
window.addEventListener("pagehide", () => { if (edits.unsaved) send(); });
