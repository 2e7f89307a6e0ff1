/* How far the start and the end of a paragraph may be moved. */
import { test } from "node:test";
import { bounds } from "../../src/witness/web/editor/derive.js";

import assert from "node:assert/strict";

const part = { start: 1000, end: 30000 };
const list = [[2000, 5000, 0], [4000, 7000, 1], [8000, 12000, 0], [9000, 10000, -1], [13000, 20000, 0]]
  .map(([start, end, who]) => ({ start, end, who }));
const of = (n, kind) => bounds(part, list, n, kind);

test("the first and the last one go as far as the part of the recording", () => {
  assert.deepEqual(of(0, "start"), [1000, 3999], "the next one begins after it");
  assert.deepEqual(of(4, "end"), [13100, 30000]);
});

test("what one person says does not run into what they say before or after; others may talk at the same time", () => {
  assert.deepEqual(of(2, "start"), [5000, 8999]);
  assert.deepEqual(of(0, "end"), [2100, 8000]);
  assert.deepEqual(of(1, "end"), [4100, 30000]);
  assert.deepEqual(of(1, "start"), [2001, 6900], "they stay in their order");
  assert.deepEqual(of(3, "end"), [9100, 30000], "of nobody in particular");
});

test("where it is beyond that already, it may stay there", () => {
  const tight = [{ start: 500, end: 3000, who: 0 }, { start: 2500, end: 2550, who: 0 }];
  assert.deepEqual(bounds(part, tight, 0, "end"), [600, 3000]);
  assert.deepEqual(bounds(part, tight, 0, "start"), [500, 2499]);
  assert.deepEqual(bounds(part, tight, 1, "start"), [2500, 2500]);
  assert.deepEqual(bounds(part, tight, 1, "end"), [2550, 30000]);
});
