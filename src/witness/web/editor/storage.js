// @ts-check
/* What the browser keeps, for all pages alike. */

/** @param {string} key */
export function kept(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

/**
 * Keep a text, or with null forget it. Returns whether the browser does.
 * @param {string} key
 * @param {string | null} text
 */
export function keep(key, text) {
  try {
    if (text === null) localStorage.removeItem(key); else localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}
