/* Which words are doubtful, and where the next one is. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { derive } from "../../src/witness/web/editor/derive.js";
import { doubtfulPlaces, isDoubtful, justHeard, nextPlace, unsurePlaces } from "../../src/witness/web/editor/doubts.js";
import { languageOf, piecesOf, prepare } from "../../src/witness/web/editor/transcript.js";
import { talk } from "./talk.js";

/** A talk whose words have these probabilities. @param {Record<number, number>} told @param {any[]} steps */
function heard(told, steps = []) {
  const data = talk();
  for (const [w, probability] of Object.entries(told)) data.words.probability[Number(w)] = probability;
  const transcript = prepare(data);
  return { transcript, words: transcript.words, page: derive(transcript, steps) };
}

test("few are those that are more often wrong than right, many are more, and off is none", () => {
  const { page, words } = heard({ 0: 49, 1: 50, 2: 79, 3: 80, 4: -1 });
  const marked = [0, 1, 2].map((level) => page.order.filter((w) => isDoubtful(page, words, w, level)));
  assert.deepEqual(marked, [[], [0], [0, 1, 2]]);
});

test("a word that a person has rewritten is doubtful no more", () => {
  const { transcript } = heard({ 1: 10, 2: 10 });
  const step = [{ kind: "text", pieces: piecesOf(transcript, [1]), text: "evening." }];
  const { page, words } = heard({ 1: 10, 2: 10 }, [step]);
  assert.deepEqual(page.order.filter((w) => isDoubtful(page, words, w, 1)), [2]);
});

test("the next doubtful word, the one before, and on from the other end", () => {
  const { page, words } = heard({ 1: 10, 4: 20 });
  const after = (/** @type {number} */ at, /** @type {number} */ by) => nextPlace(doubtfulPlaces(page, words, 1), at, by);
  assert.deepEqual([after(-0.5, 1), after(1, 1), after(2.5, 1), after(4, 1)], [1, 4, 4, 1]);
  assert.deepEqual([after(4, -1), after(2.5, -1), after(1, -1), after(-0.5, -1)], [1, 1, 4, 4]);
  assert.equal(nextPlace(doubtfulPlaces(page, words, 0), 0, 1), -1);
});

test("words in a row that may be somebody else's count once, and not once somebody has said whose they are", () => {
  const data = talk();
  for (const w of [1, 2, 4, 5, 9]) data.words.sure[w] = 40;
  const transcript = prepare(data);
  const places = (/** @type {any[]} */ ...steps) => {
    const page = derive(transcript, steps);
    return unsurePlaces(page, transcript.words).map((at) => page.order[at]);
  };
  assert.deepEqual(places(), [1, 4, 5, 9], "4 and 5 are in two paragraphs");
  assert.deepEqual(places([{ kind: "move", who: 0, pieces: piecesOf(transcript, [1]) }]), [2, 4, 5, 9]);
});

test("a paragraph is in the language of most of its words", () => {
  const { transcript } = heard({});
  transcript.words.language.splice(0, 4, 1, 1, -1, -1);
  assert.equal(languageOf(transcript, [0, 1, 2, 3, 4]), 1);
  assert.equal(languageOf(transcript, [1, 4]), 1);
  assert.equal(languageOf(transcript, [2, 3]), -1);
});

test("whoever stops the sound means the word that ended when they must have heard it, sooner a doubtful one", () => {
  const { page, words } = heard({ 1: 10 });
  const stopped = (/** @type {number} */ ms, playing = true) => justHeard(page, words, ms, playing, 1);
  assert.equal(stopped(words.end[7] + 600), 7);
  assert.equal(stopped(words.end[7] + 400), 7, "nobody is faster than by a word");
  assert.equal(stopped(words.end[7] + 1000), 8, "the next word has ended since");
  assert.equal(stopped(words.end[2] + 600), 1, "the one before is doubtful");
  assert.equal(stopped(words.end[4] + 600), 4, "it is too long ago");
  assert.equal(stopped(words.start[8] + 399, false), 8, "the sound stands still already");
  assert.equal(stopped(words.end[1] + 500, false), 1, "what was played because of a doubtful word");
  assert.equal(stopped(0), 0);
  const silent = heard({});
  assert.equal(justHeard({ ...silent.page, order: [] }, silent.words, 5000, true, 1), -1);
});
