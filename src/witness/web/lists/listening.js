// @ts-check
/* Whoever listens while a recording is transcribed goes on listening in its transcript. */

const LISTENING = "witness-listening";

/** Remember, in this tab, that the recording of this id is being played. @param {string} id */
export function goOn(id) {
  try { sessionStorage.setItem(LISTENING, id); } catch { /* the sound stops, and no more */ }
}

/** Whether the recording of this id was being played a moment ago; it is asked once. @param {string} id */
export function wentOn(id) {
  try {
    const before = sessionStorage.getItem(LISTENING);
    sessionStorage.removeItem(LISTENING);
    return before === id;
  } catch {
    return false;
  }
}
