// @ts-check
/* The recording of this page transcribed again, the differences, and words that are corrected often. */
import { clock } from "../editor/clock.js";
import { $, button, make, toast } from "../editor/dom.js";
import { seek } from "../editor/sound.js";
import { take } from "../editor/state.js";
import { showDialog } from "./forms.js";
import { isOpen } from "./progress.js";
import { listen, request } from "./request.js";
import { requestJob } from "./rows.js";
import { leave, seen, served, settled } from "./saving.js";
import { openSettings } from "./settings.js";

/** @typedef {{ kind: "words" | "kept" | "name" | "place", start: number, end: number, before: string, now: string, yours: boolean, pieces: [number, number][] }} Deviation */

const SHOWN = 200; // of the differences apart from the person's work
const LONGEST = 160; // characters of each text

/** Show a line below the bar, with buttons. @param {string} text @param {...HTMLElement} buttons */
function notice(text, ...buttons) {
  const line = make("p", "refusal notice", [text, make("span", "", [" ", ...buttons])], { role: "status" });
  $("refusal").after(line);
  return line;
}

export async function askAgain() {
  await openSettings({
    title: "Transcribe again with…",
    about: "Names, corrections and notes go to the new words. The differences are shown, and you can go back to this transcript.",
    go: "Transcribe again",
    before: served.asked ? { speakers: served.asked } : {},
    async done(settings) {
      await settled();
      await request("again", settings);
      watch();
    },
  }).catch(toast);
}

/** Tell how far it is; a new transcript shows itself. */
function watch() {
  const text = make("span", "", "waiting");
  const line = notice("Being transcribed again: ", text, button("flat small", "Cancel", () => requestJob(served.id, "cancel")));
  line.ariaLive = "off";
  let begun = false;
  const source = listen("/api/events", {
    job(job) {
      if (job.id !== served.id) return;
      text.textContent = job.state === "working" ? `${Math.round(100 * job.share)} % ` : `${job.state} `;
      if (isOpen(job)) begun = true;
      if (isOpen(job) || !begun) return; // else an earlier one
      source.close();
      line.remove();
      if (job.state === "failed") tellFailure(job.why ?? "it is not known why");
      if (job.state === "canceled") toast("It was canceled; this transcript is as it was.");
    },
  });
}

/** Say why there is no new transcript, until the person has answered. @param {string} why */
function tellFailure(why) {
  const answer = (/** @type {"retry" | "dismiss"} */ action) => async () => {
    await requestJob(served.id, action);
    line.remove();
    if (action === "retry") watch();
  };
  const buttons = served.refusal ? [] : [button("flat small", "Try again", answer("retry")), button("flat small", "Dismiss", answer("dismiss"))];
  const line = notice(`It could not be transcribed again, and is as it was: ${why}. `, ...buttons);
}

/** @param {string} text */
const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text || "nothing");

/** Return a button that takes a difference back. @param {Deviation} one */
function wayOut({ kind, before, now, pieces }) {
  const text = kind === "kept" ? now : before;
  if (!pieces.length || kind === "place" || kind === "name") return [];
  const write = make("button", "flat small", `Write “${short(text)}”`, { dir: "auto", onclick() {
    take({ kind: "text", text, pieces: pieces.map(([start, end]) => [1000 * start, 1000 * end]) });
    write.disabled = true;
  } });
  return [write];
}

/** @param {Deviation} one */
function itemOf(one) {
  const before = short(one.before), now = short(one.now);
  const words = {
    kept: ` you wrote “${before}”, which stands; heard now: “${now}” `,
    name: ` no speaker is called “${before}” anymore `,
    place: ` the words of “${before}” are not there anymore `,
    words: ` “${before}” is now “${now}” `,
  }[one.kind];
  return make("li", "", [
    button("flat small", clock(1000 * one.start), () => seek(1000 * one.start, true)), make("span", "", words, { dir: "auto" }), ...wayOut(one),
  ]);
}

/** @param {string} title @param {Deviation[]} list @param {boolean} open */
function partOf(title, list, open) {
  const part = make("details", "", [
    make("summary", "", title), make("ul", "differences", list.slice(0, open ? list.length : SHOWN).map(itemOf)),
  ], { open });
  if (!open && list.length > SHOWN) part.append(make("p", "quiet", `and ${list.length - SHOWN} more`));
  return list.length ? [part] : [];
}

export async function showDifferences() {
  const said = await request("differences");
  /** @type {Deviation[]} */
  const all = said.differences, mine = all.filter((one) => one.yours), rest = all.filter((one) => !one.yours);
  const over = (/** @type {string} */ address, /** @type {boolean} */ anew) => async () => {
    await settled();
    await request(address, { version: seen.version });
    dialog.close();
    if (anew) leave();
  };
  const dialog = showDialog("What the last transcription changed", make("div", "", [
    make("p", "quiet", `${said.kept} corrections and notes are kept. ${mine.length} places of yours differ, ${rest.length} others.`),
    ...partOf("Where you had worked", mine, true), ...partOf("Elsewhere", rest, false),
    make("p", "row", [
      button("flat small", "Back to the earlier transcript", over("earlier", true)),
      button("flat small", "I have looked through them", over("differences", false)),
      make("button", "main", "Close", { dataset: { close: "" } }),
    ]),
  ]));
}

/** Show the notices of the page's start. */
export async function announce() {
  if (served.working) watch(); else if (served.notAgain) tellFailure(served.notAgain);
  if (served.foreign) notice(`${served.foreign}. `, button("flat small", "Transcribe again…", askAgain));
  if (!served.replaced) return;
  const said = await request("differences").catch(() => ({ seen: true }));
  const mine = (said.differences ?? []).filter((/** @type {Deviation} */ one) => one.yours).length;
  if (!said.seen) notice(`Transcribed again: ${said.kept} corrections and notes are kept, ${mine} places of yours differ. `, button("flat small", "Look…", showDifferences));
}

/** Words that were not answered yet. @type {Set<string>} */
const offered = new Set();
let soon = 0;

/** Offer words that were corrected often, a moment after a correction was saved. */
export function offerWords() {
  clearTimeout(soon);
  soon = setTimeout(async () => {
    const said = await request("vocabulary").catch(() => ({ offers: [] }));
    const [one] = said.offers.filter((/** @type {{ written: string }} */ offer) => !offered.has(offer.written));
    if (!one || served.refusal) return;
    offered.add(one.written);
    const answer = (/** @type {object} */ body) => async () => {
      await request("vocabulary", body);
      line.remove();
    };
    const line = notice(`“${one.written}” was written for “${one.heard}” ${one.times} times. `,
      button("flat small", "Expect it in later recordings of this folder", answer({ take: [one.written] })),
      button("flat small", "No", answer({ drop: [one.written] })));
  }, 1000);
}
