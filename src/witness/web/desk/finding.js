// @ts-check
/* A person whose voice is known, in all recordings. */
import { momentAt } from "../editor/clock.js";
import { make, wordsOf } from "../editor/dom.js";

/**
 * A speaker who sounds like the person, as serve/routes/people.py sends them.
 * @typedef {{
 *   id: string, version: string, recording: string, start: number, likely: string, speaker: string, called: string,
 * }} Found `called`: the speaker's name, or id
 */

/** Look for a person: `show` gets each match, and `about` tells how far the search is.
    @param {string} name @param {AbortController} stop @param {HTMLElement} about @param {(match: Found) => void} show */
export async function searchPerson(name, stop, about, show) {
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
        if (found) { count += 1; show(found); }
        if (searched === undefined) continue;
        const missing = left ? ` ${left} could not be searched.` : "";
        about.textContent = searched < total ? `${searched} of ${total} recordings searched, ${count} found`
          : `${count || "None"} of ${total} ${total === 1 ? "recording" : "recordings"}.${missing}`;
      }
    }
  } catch (error) {
    if (!stop.signal.aborted) about.textContent = wordsOf(error);
  }
}

/** Make a link to a person in a recording. @param {Found} match */
export function linkTo({ id, recording, start, likely }) {
  const link = make("a", "", recording, { href: `/t/${id}/${momentAt(1000 * start)}`, target: "_blank", dir: "auto" });
  return make("span", "name", [link, make("br"), make("span", "quiet", likely)]);
}
