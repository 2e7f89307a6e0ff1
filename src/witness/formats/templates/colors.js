/* What the browser keeps, for all pages alike, and light and dark colors. */

function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

/** Keep a text, or with null forget it. Returns whether the browser does. */
function keep(key, text) {
  try {
    if (text === null) localStorage.removeItem(key); else localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

const COLORS_CHOSEN = "witness-colors";
const darkRules = [...document.styleSheets[0].cssRules].find((rule) => rule.media?.mediaText.includes("dark"));
const darkMedia = darkRules.media.mediaText;

/** "light", "dark", or "" for what the system has. */
function setColors(choice) {
  darkRules.media.mediaText = { light: "not all", dark: "screen" }[choice] ?? darkMedia;
  document.documentElement.style.colorScheme = choice;
  $("colors").value = choice;
}

setColors(["light", "dark"].find((choice) => choice === kept(COLORS_CHOSEN)) ?? "");
$("colors").addEventListener("change", () => {
  setColors($("colors").value);
  keep(COLORS_CHOSEN, $("colors").value || null);
});
