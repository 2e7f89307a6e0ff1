// @ts-check
/* Times as people read them. They are milliseconds everywhere in the page. */

/** @param {number} ms */
export function clock(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${two(Math.floor(s / 3600))}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

/** @param {number} ms */
export function span(ms) {
  const s = Math.round(ms / 1000);
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
}

/** A link to a moment, within the page of a transcript. @param {number} ms */
export const momentAt = (ms) => `#t=${(ms / 1000).toFixed(1)}`;
