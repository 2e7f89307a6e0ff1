/* Searching and replacing, times in words, and what the desk says of its jobs. */
import { test } from "node:test";
import { above, prepare } from "../../src/witness/web/editor/transcript.js";
import { clock, momentAt, span } from "../../src/witness/web/editor/clock.js";
import { derive, inReadingOrder } from "../../src/witness/web/editor/derive.js";
import { haystackOf, matchAt, matchesOf, patternOf, replacing } from "../../src/witness/web/editor/matches.js";
import { isHidden, recordingsIn } from "../../src/witness/web/desk/folders.js";
import { aboutJob, untilAll } from "../../src/witness/web/desk/progress.js";
import { talk } from "./talk.js";

import assert from "node:assert/strict";

const transcript = prepare(talk());
const shown = derive(transcript, []);
const found = (query) => matchesOf(haystackOf(shown), query)
  .map(([first, end]) => shown.order.slice(first, end + 1).map((w) => shown.texts[w].trim()).join(" "));

test("a search finds words whatever their case, and several in a row, but not across paragraphs", () => {
  assert.deepEqual(found("FINE"), ["Fine,", "fine."]);
  assert.deepEqual(found(" how  are "), ["How are"]);
  assert.deepEqual(found("n"), ["morning.", "Fine,", "fine."]);
  assert.deepEqual(found("you? fine"), []);
  assert.deepEqual(found("zebra"), []);
  assert.deepEqual(found("  "), []);
});

test("a match in a script without spaces ends with its word", () => {
  const { order, texts, paragraphOf } = { order: [0, 1, 2], texts: ["こん", "にち", "は"], paragraphOf: new Int32Array(3) };
  const haystack = haystackOf({ order, texts, paragraphOf });
  assert.deepEqual(matchesOf(haystack, "こん"), [[0, 0]]);
  assert.deepEqual(matchesOf(haystack, "んに"), [[0, 1]]);
});

test("a long paragraph is in several blocks, and its words know theirs", () => {
  const paragraph = (words) => ({ start: 0, end: 1, who: 0, words, gap: -1, block: -1 });
  const paragraphs = [paragraph([2, 0]), paragraph([]), paragraph(Array.from({ length: 500 }, (_, n) => n + 3))];
  const { order, place, paragraphOf, blockOf, blocks } = inReadingOrder(paragraphs, 503);
  assert.deepEqual(paragraphs.map(({ block }) => block), [0, 1, 2]);
  assert.deepEqual(blocks.map(({ number, from, to }) => [number, from, to]),
    [[0, 0, 2], [1, 0, 0], [2, 0, 240], [2, 240, 480], [2, 480, 500]]);
  assert.deepEqual(order.slice(0, 3), [2, 0, 3]);
  assert.deepEqual([place[0], place[1], place[502], paragraphOf[1], paragraphOf[2], blockOf[1], blockOf[502]], [1, -1, 501, -1, 0, -1, 4]);
});

test("the match of a word", () => {
  const matches = [[1, 2], [5, 5]];
  assert.deepEqual([0, 1, 2, 3, 5, 6].map((at) => matchAt(matches, at)), [-1, 0, 0, -1, 1, -1]);
});

test("what is replaced keeps its times if there are as many words, and nothing in it is a pattern", () => {
  const replace = (query, by) => {
    const [match] = matchesOf(haystackOf(shown), query);
    return replacing(transcript, shown, match, patternOf(query), by);
  };
  const one = replace("how are", "How were");
  assert.deepEqual(one.map(({ kind, text, pieces }) => [kind, text, pieces.length]), [["text", "were", 1]]);
  assert.deepEqual(replace("how are", "Hi").map(({ text }) => text), ["Hi"]);
  assert.deepEqual(replace("you?", "$&").map(({ text }) => text), ["$&"]);
  assert.deepEqual(replace("how are", "How are"), []);
  assert.deepEqual(replace("how", "a\nb"), [], "no text of a line");
});

test("times as people read them", () => {
  assert.deepEqual([0, 999, 61000, 3599999, 36000000].map(clock), ["00:00:00", "00:00:00", "00:01:01", "00:59:59", "10:00:00"]);
  assert.deepEqual([400, 59000, 61000, 3660000].map(span), ["0 s", "59 s", "1 min 1 s", "1 h 1 min"]);
  assert.equal(momentAt(40300), "#t=40.3");
});

test("the first place above a value", () => {
  assert.deepEqual([0, 1, 2, 5].map((value) => above([1, 1, 3], value)), [0, 2, 2, 3]);
  assert.equal(above([1, 2, 3], 0, 0), 0);
});

test("what the desk says of a job, and when all will be done", () => {
  const job = { id: "a", name: "a", stage: "decode", share: 0.5, why: null };
  const working = { ...job, state: "working", seconds_left: 90, seconds_after: 3600 };
  const waiting = { ...job, state: "waiting", seconds_left: null, seconds_after: null };
  assert.deepEqual(aboutJob(working), { what: "reading the sound, 1 min 30 s left", share: 0.5 });
  assert.deepEqual(aboutJob(waiting), { what: "waiting", share: null });
  assert.equal(untilAll([working, waiting]), ", all done in about 1 h 2 min");
  assert.equal(untilAll([working, { ...working, seconds_after: 20 }, { ...waiting }]), ", all done in about 1 h 2 min");
  for (const unknown of [[], [working], [waiting], [{ ...working, seconds_left: null }, waiting]]) {
    assert.equal(untilAll(unknown), "");
  }
});

test("the recordings of a folder, as people list them", () => {
  const files = ["talk 10.wav", "talk 9.WAV", "notes.txt", "Other.mp3"].map((name) => ({ name }));
  const names = recordingsIn(files, new Set(["wav", "mp3"])).map(({ name }) => name);
  assert.deepEqual(names, ["Other.mp3", "talk 9.WAV", "talk 10.wav"]);
  assert.deepEqual(["a/b.wav", "a/._b.wav", "a/.c/b.wav", ".a/b.wav"].map(isHidden), [false, true, true, false]);
});
