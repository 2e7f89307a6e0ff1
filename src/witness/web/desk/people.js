// @ts-check
/* The people whose voices are known: who appears where, a search for them, and forgetting them. */
import { span } from "../editor/clock.js";
import { $, make, press, toast, wordsOf, write } from "../editor/dom.js";
import { request } from "./request.js";
import { placeOf, searchPerson } from "./finding.js";
import { counted } from "./library.js";

/** @typedef {{ name: string, seconds: number, recordings: { id: string, recording: string }[] }} Person */

let stop = new AbortController();
$("voices").addEventListener("close", () => stop.abort());

press($("people-list"), async () => {
  try {
    const { people, left } = await request("/api/people");
    show(people, left);
    $("voices").showModal();
  } catch (error) {
    toast(wordsOf(error));
  }
});

/** @param {Person[]} people @param {string[]} left */
function show(people, left) {
  stop.abort();
  $("voices-about").textContent = people.length ? ""
    : "Nobody is known yet. Open a transcript, and press “voice” beside a speaker: then the desk tells where that person speaks.";
  $("people").replaceChildren(...people.map(itemOf), ...left.map((line) => make("li", "why", line)));
}

/** @param {Person} person */
function itemOf(person) {
  const item = make("li", "person");
  const name = make("h3");
  name.append(make("bdi", "", person.name));
  const about = make("p", "quiet", `by ${span(1000 * person.seconds)} of speech; ${
    person.recordings.length ? `named in ${counted(person.recordings.length, "recording")}:` : "named in no recording"}`);
  const places = make("ul", "places");
  for (const { id, recording } of person.recordings) {
    const open = make("a", "", recording), place = make("li");
    open.href = `/t/${id}/`;
    open.dir = "auto";
    place.append(open);
    places.append(place);
  }
  const state = make("p", "quiet");
  state.setAttribute("role", "status");
  const found = make("ul", "places");
  const look = make("button", "flat"), gone = make("button", "flat forget");
  look.type = gone.type = "button";
  write(look, "Look for them", person.name);
  write(gone, "Forget this voice", person.name);
  press(look, async () => {
    stop.abort();
    stop = new AbortController();
    found.replaceChildren();
    await searchPerson(person.name, stop, state, (one) => {
      const place = make("li");
      place.append(placeOf(one));
      found.append(place);
    });
  });
  press(gone, async () => {
    if (gone.dataset.sure === undefined) {
      gone.dataset.sure = "";
      write(gone, "Forget it? Press again", person.name);
      return;
    }
    try {
      await request("/api/people/forget", { name: person.name });
      const { people, left } = await request("/api/people");
      show(people, left);
      $("voices").focus();
    } catch (error) {
      toast(wordsOf(error));
    }
  });
  const row = make("p", "row");
  row.append(look, gone);
  item.append(name, about, places, row, state, found);
  return item;
}
