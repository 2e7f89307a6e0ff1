// @ts-check
/* Light and dark colors, and those of speakers. */
import { $ } from "./dom.js";
import { keep, kept } from "./storage.js";

const CHOSEN = "witness-colors";

/** The rules of the style sheet for dark colors. */
const darkRules = [...document.styleSheets[0].cssRules].filter((rule) => rule instanceof CSSMediaRule)
  .find((rule) => rule.media.mediaText.includes("dark"));
const darkMedia = darkRules?.media.mediaText ?? "";

/** @param {string} choice "light", "dark", or "" for what the system has */
function setColors(choice) {
  const media = { light: "not all", dark: "screen" }[choice] ?? darkMedia;
  if (darkRules) darkRules.media.mediaText = media;
  document.documentElement.style.colorScheme = choice;
  $("colors").value = choice;
}

setColors(["light", "dark"].find((choice) => choice === kept(CHOSEN)) ?? "");
$("colors").addEventListener("change", () => {
  setColors($("colors").value);
  keep(CHOSEN, $("colors").value || null);
});

export const COLORS = 10; // of speakers in the style sheet; after them they are used again, with stripes

/** @param {number} who */
export const isStriped = (who) => Math.floor(who / COLORS) % 2 === 1;

/** The classes of a speaker's color. @param {number} who */
export const look = (who) => (who < 0 ? "nobody" : `c${who % COLORS}${isStriped(who) ? " striped" : ""}`);
