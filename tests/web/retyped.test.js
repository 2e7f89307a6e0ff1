/* What is typed into a paragraph, and which word it belongs to. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { printed, retyped } from "../../src/witness/web/editor/retyped.js";

const spaced = (text) => text.split(" ").map((word, n) => (n ? ` ${word}` : word));
const became = (before, typed) => retyped(spaced(before), typed);

test("words that were left alone stay what they are", () => {
  assert.deepEqual(became("we met in may", "we met in May"), ["we", "met", "in", "May"]);
  assert.deepEqual(became("we met in may", " we  met\u00a0in may "), ["we", "met", "in", "may"]);
});

test("as many words in the place of others are one for one", () => {
  assert.deepEqual(became("she works at the sea men's plant", "She works at the Siemens plant"),
    ["She", "works", "at", "the", "Siemens", "", "plant"]);
  assert.deepEqual(became("a b c d", "a x y d"), ["a", "x", "y", "d"]);
});

test("words that came share the time of the one before, or at the beginning of the one after", () => {
  assert.deepEqual(became("we in may", "we met in may"), ["we met", "in", "may"]);
  assert.deepEqual(became("met in may", "well we met in may"), ["well we met", "in", "may"]);
  assert.deepEqual(became("met in may", "met in may then"), ["met", "in", "may then"]);
});

test("words that went are empty", () => {
  assert.deepEqual(became("we um met in um may", "we met in may"), ["we", "", "met", "in", "", "may"]);
  assert.deepEqual(became("um", ""), [""]);
  assert.deepEqual(became("a b", ""), ["", ""]);
});

test("several places of a paragraph at once", () => {
  assert.deepEqual(became("the cat sat on a mat and slapped well", "the bad cat sat on mat and slept well"),
    ["the bad", "cat", "sat", "on", "", "mat", "and", "slept", "well"]);
});

test("a word that was a passage already may change in part", () => {
  assert.deepEqual(retyped(["so", " it is", " now"], "so it was now"), ["so", "it was", "now"]);
});

test("a script without spaces", () => {
  assert.deepEqual(retyped(["今日", "は", "雨", "です"], "今日は晴れです"), ["今日", "は", "晴れ", "です"]);
  assert.deepEqual(retyped(["今日", "は"], "今日は雨"), ["今日", "は雨"]);
  assert.deepEqual(retyped(["今日", "は"], "ああ今日は"), ["ああ今日", "は"]);
  assert.deepEqual(retyped(["今日", "は"], "は"), ["", "は"]);
});

test("whatever is typed, it is what the words say together", () => {
  let seed = 7;
  const random = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed % n; };
  for (let round = 0; round < 500; round += 1) {
    const words = () => Array.from({ length: 1 + random(9) }, () => "abcab"[random(5)].repeat(1 + random(2)));
    const before = spaced(words().join(" ")), typed = words().join(" ");
    const now = retyped(before, typed);
    assert.equal(now.length, before.length);
    assert.equal(now.filter(Boolean).join(" "), typed);
  }
});

test("thousands of words are compared in a moment", () => {
  const many = Array.from({ length: 3000 }, (_, n) => `w${n}`);
  const typed = many.map((word) => `${word}x`).join(" ");
  assert.equal(retyped(spaced(many.join(" ")), typed).filter(Boolean).join(" "), typed);
});

test("a passage with spaces of its own stays what it is beside other changes", () => {
  assert.deepEqual(retyped(["so", " 10\u00a0000", " it  is", " now"], "So 10 000 it is now then"), ["So", "10\u00a0000", "it  is", "now then"]);
});

test("two places of a script without spaces leave the words between them alone", () => {
  assert.deepEqual(retyped(["今日", "は", "雨", "です"], "昨日は雨でした"), ["昨日", "は", "雨", "でした"]);
});

test("joiners, marks and parts of emoji in words that were left alone or typed", () => {
  const before = ["می‌خواهم", " \u200fשלום", " 👨‍👩‍👧"];
  assert.deepEqual(retyped(before, "می‌خواهم \u200fשלום 👨‍👩‍👧 👩🏽‍🚀"), ["می‌خواهم", "\u200fשלום", "👨‍👩‍👧 👩🏽‍🚀"]);
  assert.equal(printed("👩🏽‍🚀\u0007 a\u2028b می‌خواهم"), "👩🏽‍🚀 a b می‌خواهم");
});
