// @ts-check
/* The recording of this page transcribed again, what became different, and words that are corrected often. */
import { clock } from "../editor/clock.js";
import { $, make, toast, wordsOf } from "../editor/dom.js";
import { seek } from "../editor/sound.js";
import { take } from "../editor/state.js";
import { request } from "./request.js";
import { leave, seen, served, settled } from "./saving.js";
import { openSettings, small } from "./settings.js";

/** @typedef {{ kind: "words" | "kept" | "name" | "place", start: number, end: number, before: string, now: string, yours: boolean, pieces: [number, number][] }} Deviation */

const SHOWN = 200; // of the differences that touch nobody's work
const LONGEST = 160; // characters of each text

/** A line below the bar, with what can be done. @param {string} text @param {...HTMLElement} buttons */
function notice(text, ...buttons) {
  const line = make("p", "refusal notice", text);
  line.setAttribute("role", "status");
  const words = make("span", "", " ");
  line.append(words, ...buttons);
  $("refusal").after(line);
  return line;
}

export async function askAgain() {
  try {
    await openSettings({
      title: "Transcribe again with…",
      about: "Names, corrections and notes go to the new words. What is heard otherwise is shown, and this transcript can be had back.",
      go: "Transcribe again",
      before: served.asked ? { speakers: served.asked } : {},
      async done(settings) {
        await settled();
        await request("again", settings);
        watch();
      },
    });
  } catch (error) {
    toast(wordsOf(error));
  }
}

/** Tell how far it is; a new transcript shows itself. */
function watch() {
  const stop = () => { events.close(); line.remove(); };
  const text = make("span", "", "waiting"), line = notice("Being transcribed again: ", text,
    small("Cancel", () => request(`/api/jobs/${served.id}/cancel`, undefined, "POST").catch((error) => toast(wordsOf(error)))));
  line.setAttribute("aria-live", "off");
  const events = new EventSource("/api/events");
  let begun = false;
  events.addEventListener("job", (event) => {
    const job = JSON.parse(event.data);
    if (job.id !== served.id) return;
    text.textContent = job.state === "working" ? `${Math.round(100 * job.share)} % ` : `${job.state} `;
    if (job.state === "waiting" || job.state === "working") { begun = true; return; }
    if (!begun) return; // an earlier one
    stop();
    if (job.state === "failed") tellFailure(job.why ?? "it is not known why");
    if (job.state === "canceled") toast("It was canceled; this transcript is as it was.");
  });
}

/** Say why there is no new transcript, until somebody has answered that. @param {string} why */
function tellFailure(why) {
  const answer = async (/** @type {string} */ what) => {
    try {
      await request(`/api/jobs/${served.id}/${what}`, undefined, "POST");
      line.remove();
      if (what === "retry") watch();
    } catch (error) { toast(wordsOf(error)); }
  };
  const buttons = served.refusal ? [] : [small("Try again", () => answer("retry")), small("Dismiss", () => answer("dismiss"))];
  const line = notice(`It could not be transcribed again, and is as it was: ${why}. `, ...buttons);
}

/** @param {string} text */
const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text || "nothing");

/** What one may do about a difference. @param {Deviation} one */
function wayOut({ kind, before, now, pieces }) {
  const text = kind === "kept" ? now : before;
  if (!pieces.length || kind === "place" || kind === "name") return null;
  const button = small(`Write “${short(text)}”`, () => {
    take({ kind: "text", text, pieces: pieces.map(([start, end]) => [1000 * start, 1000 * end]) });
    button.disabled = true;
  });
  button.dir = "auto";
  return button;
}

/** @param {Deviation} one */
function itemOf(one) {
  const item = make("li"), time = small(clock(1000 * one.start), () => seek(1000 * one.start, true));
  const words = make("span");
  words.dir = "auto";
  words.textContent = one.kind === "kept" ? ` you wrote “${short(one.before)}”, which stands; heard now: “${short(one.now)}” `
    : one.kind === "name" ? ` no speaker is called “${short(one.before)}” anymore `
      : one.kind === "place" ? ` the words of “${short(one.before)}” are not there anymore `
        : ` “${short(one.before)}” is now “${short(one.now)}” `;
  const way = wayOut(one);
  item.append(time, words, ...(way ? [way] : []));
  return item;
}

export async function showDifferences() {
  try {
    const said = await request("differences");
    const dialog = make("dialog", "export"), head = make("h2", "", "What the last transcription changed"), row = make("p", "row");
    head.id = "differences-title";
    dialog.setAttribute("aria-labelledby", head.id);
    /** @type {Deviation[]} */
    const all = said.differences, mine = all.filter((one) => one.yours), rest = all.filter((one) => !one.yours);
    dialog.append(head, make("p", "quiet", `${said.kept} corrections and notes are kept. ${mine.length} places of yours differ, ${rest.length} others.`));
    for (const [title, list] of /** @type {[string, Deviation[]][]} */ ([["Where you had worked", mine], ["Elsewhere", rest]])) {
      if (!list.length) continue;
      const part = make("details"), items = make("ul", "differences");
      part.open = list === mine;
      items.append(...list.slice(0, list === mine ? list.length : SHOWN).map(itemOf));
      part.append(make("summary", "", title), items);
      if (list === rest && rest.length > SHOWN) part.append(make("p", "quiet", `and ${rest.length - SHOWN} more`));
      dialog.append(part);
    }
    const over = async (/** @type {string} */ address, /** @type {boolean} */ anew) => {
      try {
        await settled();
        await request(address, { version: seen.version });
        dialog.close();
        if (anew) leave();
      } catch (error) { toast(wordsOf(error)); }
    };
    const close = make("button", "main", "Close");
    close.type = "button";
    close.addEventListener("click", () => dialog.close());
    row.append(small("Back to the earlier transcript", () => over("earlier", true)), small("I have looked through them", () => over("differences", false)), close);
    dialog.append(row);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  } catch (error) {
    toast(wordsOf(error));
  }
}

/** What there is to say when the page opens. */
export async function announce() {
  if (served.working) watch(); else if (served.notAgain) tellFailure(served.notAgain);
  if (served.foreign) notice(`${served.foreign}. `, small("Transcribe again…", askAgain));
  if (!served.replaced) return;
  const said = await request("differences").catch(() => ({ seen: true }));
  const mine = (said.differences ?? []).filter((/** @type {Deviation} */ one) => one.yours).length;
  if (!said.seen) notice(`Transcribed again: ${said.kept} corrections and notes are kept, ${mine} places of yours differ. `, small("Look…", showDifferences));
}

/** Words that were not answered yet. @type {Set<string>} */
const offered = new Set();
let soon = 0;

/** Offer what was corrected often, a moment after a correction was saved. */
export function offerWords() {
  clearTimeout(soon);
  soon = setTimeout(async () => {
    const said = await request("vocabulary").catch(() => ({ offers: [] }));
    const [one] = said.offers.filter((/** @type {{ written: string }} */ offer) => !offered.has(offer.written));
    if (!one || served.refusal) return;
    offered.add(one.written);
    const answer = async (/** @type {object} */ body) => {
      try { await request("vocabulary", body); line.remove(); } catch (error) { toast(wordsOf(error)); }
    };
    const line = notice(`“${one.written}” was written for “${one.heard}” ${one.times} times. `,
      small("Expect it in later recordings of this folder", () => answer({ take: [one.written] })),
      small("No", () => answer({ drop: [one.written] })));
  }, 1000);
}
