// @ts-check
/* Names of speakers. */
import { look } from "./colors.js";
import { make } from "./dom.js";
import { page } from "./state.js";
/** @import { Paragraph } from "./derive.js" */

/** @param {number} who */
export function nameOf(who) {
  return who < 0 ? "nobody heard" : page.names[who] ?? `Speaker ${who + 1}`;
}

/** Return the name of a paragraph's speaker, who may be unknown if it has no words. @param {Paragraph} paragraph */
export function speakerOf(paragraph) {
  return paragraph.who < 0 && !paragraph.words.length ? "unknown" : nameOf(paragraph.who);
}

/** Up to two characters that stand for a speaker, beside the color. @param {number} who */
export function initials(who) {
  if (who < 0) return "–";
  const name = page.names[who];
  if (!name) return String(who + 1);
  const parts = name.split(/[\s.-]+/).filter(Boolean);
  return parts.slice(0, 2).map((part) => [...part][0]).join("").toUpperCase();
}

/** @param {number} who */
export const chip = (who) => make("span", `chip ${look(who)}`, initials(who), { ariaHidden: "true" });
