/* What is typed over words of several paragraphs, and what it comes to. */
import { test } from "node:test";
import { derive } from "../../src/witness/web/editor/derive.js";
import { beginning, over, overtyped, rewriting } from "../../src/witness/web/editor/retyped.js";
import { piecesOf, prepare, wordsIn } from "../../src/witness/web/editor/transcript.js";
import { talk } from "./talk.js";

import assert from "node:assert/strict";

const transcript = prepare(talk()); // A: Good morning. How are you?  B: Fine, the budget is fine.  A: [inaudible]
const said = (page) => page.paragraphs.filter(({ words }) => words.length)
  .map(({ who, words }) => `${who}: ${words.map((w) => page.texts[w]).join("").trim()}`);

/** Type over what is between `before` of the first and `after` of the last paragraph with words. */
function type(text, before, after, { steps = [], apart = false, paragraphs = [0, Infinity] } = {}) {
  const page = derive(transcript, steps);
  const fields = page.paragraphs.filter(({ words }) => words.length).slice(paragraphs[0], paragraphs[1]).map(({ words }) => words);
  const given = over(transcript, page, fields, before, after, apart);
  const made = overtyped(transcript, page, given, given.lead + text + given.tail);
  const now = derive(transcript, [...steps, made]);
  for (const [w, owner] of now.owner.entries()) assert.equal(owner, page.owner[w], "whose a word is stays");
  return { page: now, made, given };
}

test("it takes the place of the first person's words, and the other's remaining ones stay theirs", () => {
  const { page, made } = type("Hello", "Good morning. ", "is fine.");
  assert.deepEqual(said(page), ["0: Good morning. Hello", "1: is fine."]);
  assert.deepEqual(page.texts.slice(0, 3), [" Good", " morning.", " Hello"], "the first word that went has its place");
  assert.equal(made.filter(({ kind }) => kind === "join" || kind === "move").length, 0);
  assert.equal(made.filter(({ text }) => text === "").length, 1, "all words that went, in one correction");
});

test("words that are typed again keep their times", () => {
  const split = [[{ kind: "split", pieces: piecesOf(transcript, [2]) }]];
  const { page } = type("morning. Who are", "Good ", " you?", { steps: split, paragraphs: [0, 2] });
  assert.deepEqual(said(page), ["0: Good morning. Who are you?", "1: Fine, the budget is fine."]);
  assert.deepEqual(page.texts.slice(0, 5), [" Good", " morning.", " Who", " are", " you?"]);
});

test("what the same person says before and after becomes one paragraph", () => {
  const steps = [[{ kind: "split", pieces: piecesOf(transcript, [2]) }], [{ kind: "split", pieces: piecesOf(transcript, [4]) }]];
  const all = type("", "Good ", "you?", { steps, paragraphs: [0, 3] });
  assert.deepEqual(said(all.page), ["0: Good you?", "1: Fine, the budget is fine."]);
  const end = type("", "Good morning.", " are", { steps, paragraphs: [0, 2] });
  assert.deepEqual(said(end.page)[0], "0: Good morning. are", "nothing of the first one was selected");
  assert.equal(end.given.into, 1);
});

test("nothing but what is between two paragraphs", () => {
  const steps = [[{ kind: "split", pieces: piecesOf(transcript, [2]) }]];
  const same = type(" then", "Good morning.", "How are you?", { steps, paragraphs: [0, 2] });
  assert.ok(same.given.none);
  assert.deepEqual(said(same.page)[0], "0: Good morning. then How are you?");
  const other = type(" then", "Good morning. How are you?", "Fine, the budget is fine.");
  assert.deepEqual(said(other.page), ["0: Good morning. How are you? then", "1: Fine, the budget is fine."]);
});

test("parts of words, and all of the last paragraph", () => {
  const parts = type("x", "Good mor", "get is fine.");
  assert.deepEqual(said(parts.page), ["0: Good morx", "1: get is fine."]);
  assert.ok(parts.given.inside);
  assert.deepEqual(said(type("Bye.", "Good morning. ", "").page), ["0: Good morning. Bye."]);
  assert.deepEqual(said(type("", "", "").page), []);
});

test("Enter in its place begins a paragraph with the next word that is left", () => {
  const steps = [[{ kind: "split", pieces: piecesOf(transcript, [2]) }]];
  const { page, given } = type("", "Good ", "you?", { steps, apart: true, paragraphs: [0, 2] });
  assert.deepEqual(said(page), ["0: Good", "0: you?", "1: Fine, the budget is fine."]);
  assert.equal(beginning(given, (w) => page.texts[w]), 4);
  const other = type("", "Good ", "is fine.", { apart: true });
  assert.deepEqual(said(other.page), ["0: Good", "1: is fine."]);
  assert.equal(other.made.filter(({ kind }) => kind === "split").length, 0, "somebody else's is one already");
});

test("a third person's words between two of the same go, and no other's place is taken", () => {
  const steps = [[{ kind: "move", who: 1, pieces: piecesOf(transcript, [2]) }]];
  const before = derive(transcript, steps);
  assert.deepEqual(said(before).map((text) => text[0]), ["0", "1", "0", "1"]);
  const { page } = type("we met", "Good ", " you?", { steps, paragraphs: [0, 3] });
  assert.deepEqual(said(page), ["0: Good we met you?", "1: Fine, the budget is fine."]);
  assert.deepEqual(page.texts.slice(1, 5), [" we", "", " met", " you?"]);
});

test("a replacement has the time of what it replaces, and the rest of the sentence stays with it", () => {
  const { page, made } = type("Hello", "Good ", " you?", { paragraphs: [0, 1] });
  assert.deepEqual(said(page)[0], "0: Good Hello you?");
  assert.equal(made.length, 1);
  assert.deepEqual(wordsIn(transcript, made[0].pieces), [1, 2, 3]);
  const cut = derive(transcript, [rewriting(transcript, transcript.words.text, new Map([[1, "Hello"], [2, ""], [3, ""], [4, ""]]))]);
  assert.equal(cut.paragraphs[0].end, transcript.words.end[4]);
});

test("a deletion makes no pause; a pause of the recording stays", () => {
  const data = talk();
  data.words.start = data.words.start.map((ms, n) => 900 * n + (n > 6 ? 3000 : 0));
  data.words.end = data.words.start.map((ms) => ms + 800);
  data.words.speaker = data.words.speaker.map(() => 0);
  data.words.text = "we um you know like went home".split(" ").concat(["and", "slept", "then"]).map((text) => ` ${text}`);
  data.silent = { start: [], end: [], speaker: [], track: [], mark: [] };
  const prepared = prepare(data), gone = (list) => [[{ kind: "text", text: "", pieces: piecesOf(prepared, list) }]];
  const shown = (steps) => { const page = derive(prepared, steps); return said(page); };
  assert.deepEqual(shown([]), ["0: we um you know like went home", "0: and slept then"]);
  assert.deepEqual(shown(gone([1, 2, 3, 4])), ["0: we went home", "0: and slept then"]);
  assert.deepEqual(shown(gone([6, 7])), ["0: we um you know like went", "0: slept then"]);
});
