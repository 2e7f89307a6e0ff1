// @ts-check
/* Light and dark colors. */
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
