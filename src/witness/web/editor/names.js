// @ts-check
/* Names of speakers. */
import { look } from "./colors.js";
import { make } from "./dom.js";
import { data, page } from "./state.js";
import { called } from "./transcript.js";
/** @import { Paragraph } from "./derive.js" */

/** @param {number} who */
export function nameOf(who) {
  if (who < 0) return "nobody heard";
  return page.names[who] ?? (data.first ? called(idOf(who)) : idOf(who)); // older transcripts show their ids
}

/** The id in the files; speakers whom a person adds get the next ones. @param {number} who */
function idOf(who) {
  const { next, speakers } = data;
  return speakers[who]?.[0] ?? `SPEAKER_${String(next + who - speakers.length).padStart(2, "0")}`;
}

/** Return the name of a paragraph's speaker, who may be unknown if it has no words. @param {Paragraph} paragraph */
export function speakerOf(paragraph) {
  return paragraph.who < 0 && !paragraph.words.length ? "unknown" : nameOf(paragraph.who);
}

/** Up to two characters that stand for a speaker, beside the color. @param {number} who */
export function initials(who) {
  if (who < 0) return "–";
  const name = page.names[who];
  if (!name) return String(Number(/\d+$/.exec(idOf(who))?.[0] ?? who + 1));
  const parts = name.split(/[\s.-]+/).filter(Boolean);
  return parts.slice(0, 2).map((part) => [...part][0]).join("").toUpperCase();
}

/** @param {number} who */
export const chip = (who) => make("span", `chip ${look(who)}`, initials(who), { ariaHidden: "true" });
