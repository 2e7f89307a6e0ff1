// @ts-check
/* A person whose voice is known, in all recordings. */
import { momentAt } from "../editor/clock.js";
import { make, wordsOf } from "../editor/dom.js";

/**
 * A speaker who sounds like the person, as serve/routes/people.py tells of them.
 * @typedef {{
 *   id: string, version: string, recording: string, start: number, likely: string, speaker: string, called: string,
 * }} Found `called`: the speaker's name, or id
 */

/**
 * Look for a person; `found` is told of each recording as it is found, and `about` of how far the search is.
 * @param {string} name
 * @param {AbortController} stop
 * @param {HTMLElement} about
 * @param {(found: Found) => void} tell
 */
export async function searchPerson(name, stop, about, tell) {
  about.textContent = "Looking…";
  let count = 0;
  try {
    const answer = await fetch(`/api/people/search?name=${encodeURIComponent(name)}`, { signal: stop.signal });
    if (!answer.ok || !answer.body) throw new Error((await answer.json()).error.message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const { found, seen: searched, total, left } = JSON.parse(line);
        if (found) { count += 1; tell(found); }
        const missing = left ? ` ${left} could not be searched.` : "";
        about.textContent = searched === undefined ? about.textContent
          : searched < total ? `${searched} of ${total} recordings searched, ${count} found`
            : `${count || "None"} of ${total} ${total === 1 ? "recording" : "recordings"}.${missing}`;
      }
    }
  } catch (error) {
    if (!stop.signal.aborted) about.textContent = wordsOf(error);
  }
}

/** Where somebody is heard, with a link. @param {Found} found */
export function placeOf(found) {
  const text = make("span", "name");
  const open = make("a", "", found.recording);
  open.href = `/t/${found.id}/${momentAt(1000 * found.start)}`;
  open.target = "_blank";
  open.dir = "auto";
  text.append(open, make("br"), make("span", "quiet", found.likely));
  return text;
}
