// @ts-check
/* Texts that the browser keeps, for all pages alike. */

/** @param {string} key */
export function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

/** Keep a text, or with null forget it. Returns whether the browser does. @param {string} key @param {string | null} text */
export function keep(key, text) {
  try {
    if (text === null) localStorage.removeItem(key); else localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

const LISTENING = "witness-listening";

/** Remember, in this tab, that the recording of this id is being played. @param {string} id */
export function goOn(id) {
  try { sessionStorage.setItem(LISTENING, id); } catch { /* the sound stops, and no more */ }
}

/** Return whether the recording of this id was being played a moment ago; it is asked once. @param {string} id */
export function wentOn(id) {
  try {
    const before = sessionStorage.getItem(LISTENING);
    sessionStorage.removeItem(LISTENING);
    return before === id;
  } catch {
    return false;
  }
}
