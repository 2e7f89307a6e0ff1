/* Steps that are taken, undone, saved and joined with those of others. */
import assert from "node:assert/strict";
import { merged } from "../../src/witness/web/editor/retyped.js";
import { test } from "node:test";
import { areSteps, asDocument, checkName, checkText } from "../../src/witness/web/editor/corrections.js";
import { derive } from "../../src/witness/web/editor/derive.js";
import { Edits, joined, twice } from "../../src/witness/web/editor/edits.js";
import { piecesOf, prepare, wordsIn } from "../../src/witness/web/editor/transcript.js";
import { talk } from "./talk.js";

const transcript = prepare(talk());
const name = (text, who = 0) => [{ kind: "name", who, name: text }];
const fresh = (who, w, called) => [
  { kind: "new", who, pieces: piecesOf(transcript, [w]) }, { kind: "name", who, name: called },
];

test("a step can be undone and redone, until another one is taken", () => {
  const edits = new Edits();
  assert.equal(edits.undo(), false);
  edits.take(name("Ann"));
  edits.take(name("Anna"));
  assert.ok(edits.undo());
  assert.deepEqual([edits.steps, edits.undone], [[name("Ann")], [name("Anna")]]);
  assert.ok(edits.redo());
  assert.equal(edits.redo(), false);
  edits.undo();
  edits.take(name("Ben"));
  assert.deepEqual([edits.steps, edits.undone], [[name("Ann"), name("Ben")], []]);
});

test("it is known whether all is saved, whatever is undone meanwhile", () => {
  const edits = new Edits();
  edits.take(name("Ann"));
  edits.take(name("Anna"));
  assert.ok(edits.unsaved);
  const sent = edits.steps.slice();
  edits.take(name("Annie"));
  edits.arrived(sent);
  assert.ok(edits.unsaved);
  edits.undo();
  assert.ok(!edits.unsaved);
  // As many steps as were saved, but another one among them.
  edits.undo();
  edits.take(name("Ben"));
  assert.equal(edits.steps.length, edits.base.length);
  assert.ok(edits.unsaved);
  edits.arrived(sent);
  assert.ok(edits.unsaved);
  edits.arrived(edits.steps.slice());
  assert.ok(!edits.unsaved);
});

test("my steps go after those of others, and whom both added are two people", () => {
  const common = name("Ann");
  const theirs = [common, fresh(2, 0, "Tom")];
  const steps = [common, fresh(2, 3, "Mia"), [{ kind: "merge", who: 0, gone: 2 }]];
  const both = joined(transcript, theirs, { steps, base: [common], sent: [] });
  assert.deepEqual(both, [...theirs, fresh(3, 3, "Mia"), [{ kind: "merge", who: 0, gone: 3 }]]);
  const { names, owner, same } = derive(transcript, both);
  assert.deepEqual([owner[0], names[2]], [2, "Tom"]);
  assert.equal(owner[3], 0);
  assert.equal(same[3], 0);
  assert.equal(steps[1][0].who, 2, "what I have is as it was");
});

test("what either has undone is gone, and what either has done since is there", () => {
  const [ann, ben, bea] = [name("Ann"), name("Ben", 1), name("Bea", 1)];
  const of = (steps, base, theirs, sent = []) => joined(transcript, theirs, { steps, base, sent });
  assert.deepEqual(of([ann], [ann, ben], [ann, ben, bea]), [ann, bea], "I undid, they went on");
  assert.deepEqual(of([ann, ben, bea], [ann, ben], [ann]), [ann, bea], "they undid, I went on");
  assert.deepEqual(of([ann, ben], [ann], []), [ben], "they undid before what I did");
  assert.deepEqual(of([bea], [ann], [ben]), [ben, bea], "both undid");
  assert.deepEqual(of([ann], [ann], [ann, ben]), [ann, ben]);
  assert.deepEqual(of([ann], [ann], []), []);
  // What was sent without an answer is mine: undone since then, it stays undone.
  assert.deepEqual(of([ann], [ann], [ann, ben], [[ann, ben]]), [ann]);
  assert.deepEqual(of([ann, bea], [ann], [ann, ben], [[ann, ben]]), [ann, bea]);
});

test("a speaker whom somebody has used stays, though the other has undone them", () => {
  const [tom, mia] = [fresh(2, 0, "Tom"), fresh(2, 3, "Mia")];
  const used = name("Thomas", 2);
  const of = (steps, theirs) => joined(transcript, theirs, { steps, base: [tom], sent: [] });
  assert.deepEqual(of([], [tom, used]), [tom, used]);
  assert.deepEqual(of([tom, used], []), [tom, used]);
  assert.deepEqual(of([mia], [tom, used]), [tom, used, fresh(3, 3, "Mia")]);
  assert.deepEqual(of([mia], [tom]), [mia], "nobody used them");
  for (const all of [of([mia], [tom, used]), of([mia], [tom])]) assert.ok(areSteps(transcript, all));
});

test("a word that both have corrected is named, unless they agree", () => {
  const text = (w, said) => [{ kind: "text", text: said, pieces: piecesOf(transcript, [w]) }];
  assert.deepEqual(twice(transcript, [text(1, "evening"), text(2, "Who")], [text(1, "night"), text(3, "is")]), [["evening", "night"]]);
  assert.deepEqual(twice(transcript, [text(1, "evening")], [text(1, "evening")]), []);
  const filled = (said) => [[{ kind: "fill", gap: 0, text: said }]];
  assert.deepEqual(twice(transcript, filled("Yes."), filled("No.")), [["Yes.", "No."]]);
});

test("a moved mark of progress counts as a step to save", () => {
  const edits = new Edits();
  edits.review = { checked: false, until: 12.5 };
  assert.ok(edits.unsaved);
  edits.adoptReview({ checked: true, until: 0 });
  assert.equal(edits.review.until, 12.5, "mine stays while it is not saved");
  edits.arrived([], edits.review);
  assert.ok(!edits.unsaved);
  edits.adoptReview({ checked: true, until: 20 });
  assert.deepEqual([edits.review.until, edits.unsaved], [20, false]);
});

test("only steps of this page are steps", () => {
  const pieces = [[0, 1]];
  const good = [
    [], [name("Ann")], [[{ kind: "merge", who: 0, gone: 1 }]], [[{ kind: "text", text: "", pieces }]], [fresh(2, 0, "Tom")],
    [[{ kind: "fill", gap: 0, text: "Yes" }]], [[{ kind: "move", who: 1, pieces }]],
  ];
  for (const steps of good) assert.ok(areSteps(transcript, steps), JSON.stringify(steps));
  const bad = [
    null, 7, "x", {}, [null], [[null]], [[{}]], [[{ kind: "shout" }]], [name("Ann", 2)], [name("Ann", -1)], [name("Ann", 0.5)],
    [name(" Ann")], [name("")], [name("a\u202eb")], [name("x".repeat(101))], [name(7)], [[{ kind: "merge", who: 0, gone: 2 }]],
    [fresh(3, 0, "Tom")], [[{ kind: "text", text: "a\nb", pieces }]], [[{ kind: "text", text: "a", pieces: [] }]],
    [[{ kind: "text", text: "a", pieces: [["a", "b"]] }]], [[{ kind: "text", text: "a", pieces: [[1]] }]],
    [[{ kind: "text", text: "a", pieces: [[0, Infinity]] }]], [[{ kind: "move", who: 0 }]],
    [[{ kind: "fill", gap: 1, text: "Yes" }]], [[{ kind: "fill", gap: 0, text: "" }]],
  ];
  for (const steps of bad) assert.ok(!areSteps(transcript, steps), JSON.stringify(steps));
});

test("names and texts are those that Witness takes", () => {
  assert.equal(checkName("  Zoe\u0308 "), "Zo\u00eb");
  assert.equal(checkName("x".repeat(100)).length, 100);
  assert.equal(checkName("👩".repeat(100)), "👩".repeat(100));
  for (const text of ["", "  ", "a\tb", "a\u2028b", "a\u00a0b", "x".repeat(101)]) assert.equal(checkName(text), null);
  assert.equal(checkText("x".repeat(10000)), null);
  for (const text of ["x".repeat(10001), "a\nb", "\ud800"]) assert.match(checkText(text), /no line breaks/);
});

test("pieces of time hold the words that were meant and no others", () => {
  const { words } = transcript;
  const all = words.text.map((_, w) => w);
  for (const list of [[0], [1, 2], [0, 3], all]) {
    assert.deepEqual(wordsIn(transcript, piecesOf(transcript, list)), list);
  }
  assert.equal(piecesOf(transcript, all).length, 1);
});

test("who has lost all speech to a new speaker is in no file", () => {
  const own = transcript.words.speaker.map((who, w) => [who, w]).filter(([who]) => who === 1).map(([, w]) => w);
  const words = own.filter((w) => transcript.words.gap[w] < 0);
  const steps = [name("Ben", 1), [{ kind: "new", who: 2, pieces: piecesOf(transcript, words) }]];
  const { turns } = derive(transcript, steps);
  assert.ok(!turns.speaker.includes(1));
  assert.deepEqual(asDocument(transcript, turns, steps).corrections.map(({ kind }) => kind), ["new"]);
});

test("what was written where no word was recognized is a word like all others", () => {
  const w = transcript.gapWord[0];
  const filled = [[{ kind: "fill", gap: 0, text: "Yes." }]];
  const text = (steps) => derive(transcript, steps).texts[w];
  assert.equal(text([]), "");
  assert.equal(text(filled), " Yes.");
  const fixed = [...filled, [{ kind: "text", text: "No.", pieces: piecesOf(transcript, [w]) }]];
  assert.equal(text(fixed), " No.", "the space before it stays");
  assert.equal(text(fixed.slice(1)), "", "there is no word to correct");
});

test("two people's changes of a word are merged by word", () => {
  const text = (w, said) => [{ kind: "text", text: said, pieces: piecesOf(transcript, [w]) }];
  const of = (steps, base, theirs) => derive(transcript, joined(transcript, theirs, { steps, base, sent: [] })).texts;
  assert.equal(of([text(1, "morning. mine")], [], [text(1, "morning. theirs")])[1], " morning. theirs mine");
  const base = [text(1, "morning. a1")];
  assert.equal(of([...base, text(1, "morning. a1 b2")], base, [...base, text(1, "morning. a17")])[1], " morning. a17 b2");
  assert.equal(of([text(1, "")], [], [text(1, "morning. theirs")])[1], " theirs", "what I have deleted goes, what they wrote stays");
  assert.equal(of([text(1, "evening.")], [], [text(1, "night.")])[1], " evening.", "of the same word mine stays");
  const filled = (said) => [{ kind: "fill", gap: 0, text: said }];
  assert.equal(of([filled("two")], [], [filled("one")])[transcript.gapWord[0]], " one two");
  assert.deepEqual(twice(transcript, [text(1, "morning. theirs")], [text(1, "morning. theirs mine")]), []);
  assert.equal(merged("a b c", "a x b c", "a b y"), "a x b y");
});

test("the mark of progress is undone in its order among the steps", () => {
  const edits = new Edits();
  edits.mark({ checked: false, until: 60 });
  edits.take(name("Ann"));
  edits.mark({ checked: false, until: 5 });
  assert.ok(edits.undo());
  assert.deepEqual([edits.review.until, edits.steps.length], [60, 1]);
  assert.ok(edits.undo());
  assert.deepEqual([edits.review.until, edits.steps.length], [60, 0]);
  assert.ok(edits.undo());
  assert.equal(edits.review.until, 0);
  assert.ok(!edits.undo());
});
