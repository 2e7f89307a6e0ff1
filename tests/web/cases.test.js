/* The page comes to what Witness comes to: the table that tests/page_cases.py makes. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { areSteps, asDocument } from "../../src/witness/web/editor/corrections.js";
import { derive, last } from "../../src/witness/web/editor/derive.js";
import { prepare } from "../../src/witness/web/editor/transcript.js";

const talks = JSON.parse(readFileSync(new URL("../data/page_cases.json", import.meta.url), "utf-8"));

talks.forEach(({ data, cases }, talk) => {
  const transcript = prepare(data);
  cases.forEach((one, number) => {
    test(`talk ${talk}, corrections ${number}`, () => {
      assert.ok(areSteps(transcript, one.steps));
      const found = derive(transcript, one.steps);
      assert.deepEqual(asDocument(transcript, found.turns, one.steps).corrections, one.corrections);
      const paragraphs = found.paragraphs.map(({ start, end, who, words }) => [
        start, end, who < 0 ? -1 : last(found.same, who), who < 0 ? null : found.names[last(found.same, who)],
        words.map((w) => found.texts[w]).join(""), words.filter((w) => !found.heard[w]).length,
      ]);
      assert.deepEqual(paragraphs, one.paragraphs);
      assert.deepEqual(found.speakers.map(({ who }) => [who, found.names[who]]), one.speakers.map((who) => who.slice(0, 2)));
      for (const [n, { share }] of found.speakers.entries()) assert.ok(Math.abs(share - one.speakers[n][2]) < 0.002);
    });
  });
});

test("the table has corrections of all kinds, on both tracks, with and without words", () => {
  const kinds = new Set(talks.flatMap(({ cases }) => cases.flatMap(({ steps }) => steps.flat().map(({ kind }) => kind))));
  assert.deepEqual([...kinds].sort(), ["end", "fill", "join", "merge", "move", "name", "new", "split", "start", "text"]);
  assert.deepEqual(new Set(talks.flatMap(({ data }) => data.words.track)), new Set([0, 1]));
  assert.deepEqual(new Set(talks.map(({ data }) => data.listened)), new Set([true, false]));
});
