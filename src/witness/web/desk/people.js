// @ts-check
/* The people whose voices are known: who appears where, a search for them, and forgetting them. */
import { span } from "../editor/clock.js";
import { $, button, make, press, write } from "../editor/dom.js";
import { linkTo, searchPerson } from "./finding.js";
import { counted } from "./library.js";
import { request } from "./request.js";

/** @typedef {{ name: string, seconds: number, recordings: { id: string, recording: string }[] }} Person */

let stop = new AbortController();
$("voices").addEventListener("close", () => stop.abort());
press($("people-list"), async () => {
  await show();
  $("voices").showModal();
});

async function show() {
  /** @type {{ people: Person[], left: string[] }} */
  const { people, left } = await request("/api/people");
  stop.abort();
  $("voices-about").textContent = people.length ? ""
    : "Nobody is known yet. Open a transcript, and press “voice” beside a speaker: then the desk tells where that person speaks.";
  $("people").replaceChildren(...people.map(itemOf), ...left.map((line) => make("li", "why", line)));
}

/** @param {Person} person */
function itemOf({ name, seconds, recordings }) {
  const about = `by ${span(1000 * seconds)} of speech; ${
    recordings.length ? `named in ${counted(recordings.length, "recording")}:` : "named in no recording"}`;
  const state = make("p", "quiet", "", { role: "status" });
  const places = make("ul", "places");
  const search = button("flat", "", async () => {
    stop.abort();
    stop = new AbortController();
    places.replaceChildren();
    await searchPerson(name, stop, state, (match) => places.append(make("li", "", [linkTo(match)])));
  });
  const forget = button("flat forget", "", async () => {
    if (forget.dataset.sure === undefined) {
      forget.dataset.sure = "";
      write(forget, "Forget it? Press again", name);
      return;
    }
    await request("/api/people/forget", { name });
    await show();
    $("voices").focus();
  });
  write(search, "Look for them", name);
  write(forget, "Forget this voice", name);
  return make("li", "person", [
    make("h3", "", [make("bdi", "", name)]), make("p", "quiet", about),
    make("ul", "places", recordings.map(({ id, recording }) => (
      make("li", "", [make("a", "", recording, { href: `/t/${id}/`, dir: "auto" })])))),
    make("p", "row", [search, forget]), state, places,
  ]);
}
