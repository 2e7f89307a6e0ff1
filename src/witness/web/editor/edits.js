// @ts-check
/* The steps that a person took, those that were undone, those that are saved, and how far the person has got. */
import { countAll } from "./corrections.js";
import { merged } from "./retyped.js";
import { piecesOf, wordsIn } from "./transcript.js";
/** @import { Correction, Step } from "./corrections.js" */
/** @import { Prepared } from "./transcript.js" */

/**
 * @typedef {{ checked: boolean, until: number }} Review as in the JSON; `until`: seconds
 * @typedef {{ steps: Step[], base: Step[], sent: Step[][] }} Mine what one page has; `base`: what it knows to be saved;
 *   `sent`: what may be saved, too, because no answer came
 */

/** @param {unknown} one @param {unknown} other */
export const alike = (one, other) => one === other || JSON.stringify(one) === JSON.stringify(other);

export class Edits {
  /** @type {Step[]} */
  steps = [];
  /** The last one undone comes last. @type {Step[]} */
  undone = [];
  /** The saved steps. @type {Step[]} */
  base = [];
  /** Steps that may be saved, too. @type {Step[][]} */
  sent = [];
  /** The steps that were taken in this window. @type {Step[]} */
  own = [];
  review = { checked: false, until: 0 };
  /** The review that is saved. */
  reviewed = this.review;

  /** Earlier reviews, with the number of steps then. @type {{ count: number, review: Review }[]} */
  reviews = [];

  get unsaved() {
    return this.steps.length !== this.base.length || common(this.steps, this.base) < this.base.length
      || !alike(this.review, this.reviewed);
  }

  /** @param {Correction[]} made */
  take(made) {
    this.steps.push(made);
    this.own.push(made);
    this.undone = [];
  }

  /** Change how far the person has got, which can be undone. @param {Review} review */
  mark(review) {
    this.reviews.push({ count: this.steps.length, review: this.review });
    this.review = review;
  }

  /** Undo the last step or mark. Returns whether there was one. */
  undo() {
    const mark = this.reviews[this.reviews.length - 1];
    if (mark && mark.count >= this.steps.length) {
      this.reviews.pop();
      this.review = mark.review;
      return true;
    }
    const step = this.steps.pop();
    if (step) this.undone.push(step);
    return Boolean(step);
  }

  /** Redo what was undone last. Returns whether there was something. */
  redo() {
    const step = this.undone.pop();
    if (step) this.steps.push(step);
    return Boolean(step);
  }

  /** Replace the steps; `base` are saved.
      @param {Step[]} steps @param {Step[]} [undone] @param {Step[]} [base] */
  adopt(steps, undone = [], base = steps) {
    Object.assign(this, { steps, undone, base: base.slice(), sent: [] });
  }

  /** Take up the saved review; mine stays if it is not saved yet. @param {Review} review */
  adoptReview(review) {
    if (alike(this.review, this.reviewed)) this.review = review;
    this.reviewed = review;
  }

  /** These are saved now; meanwhile others may have been taken and undone. @param {Step[]} sent @param {Review} [review] */
  arrived(sent, review = this.review) {
    this.base = sent;
    this.sent = [];
    this.reviewed = review;
  }
}

/** Return the number of equal steps at the start of two lists. @param {readonly Step[]} one @param {readonly Step[]} other */
function common(one, other) {
  let count = 0;
  while (count < one.length && count < other.length && alike(one[count], other[count])) count += 1;
  return count;
}

/** The steps of two pages of one transcript: what either has undone is gone, mine come after theirs, and a word has the changes of both.
    @param {Prepared} transcript @param {Step[]} theirs @param {Mine} mine */
export function joined(transcript, theirs, { steps, base, sent }) {
  const saved = [base, ...sent].reduce((best, one) => (common(one, theirs) > common(best, theirs) ? one : best));
  const they = common(saved, theirs), me = common(saved, steps);
  const count = (/** @type {readonly Step[]} */ some) => countAll(transcript, some.flat());
  const together = (/** @type {number} */ kept) => {
    const all = saved.slice(0, kept), stay = count(all);
    const mine = steps.slice(me);
    for (const [fresh, before] of /** @type {const} */ ([[theirs.slice(they), they], [mine, me]])) {
      const after = renumbered(fresh, stay, count(saved.slice(0, before)), count(all));
      if (!after) return null;
      all.push(...(fresh !== mine ? after : after.map((step) => step.flatMap((made) => mergedStep(transcript, saved, theirs, made)))));
    }
    return all;
  };
  // A speaker whom one has undone and the other one used stays.
  return together(Math.min(they, me)) ?? together(Math.max(they, me)) ?? steps;
}

/** Steps with other numbers for the speakers that steps have added; null: they need one who is gone.
    @param {readonly Step[]} steps @param {number} stay the number of speakers who are the same
    @param {number} before the number of speakers there were @param {number} now the number of speakers there are */
function renumbered(steps, stay, before, now) {
  let gone = false;
  const moved = (/** @type {number} */ who) => {
    if (who >= stay && who < before) gone = true;
    return who >= before ? who - before + now : who;
  };
  const found = steps.map((step) => step.map((made) => {
    const copy = { ...made };
    if ("who" in copy) copy.who = moved(copy.who);
    if ("gone" in copy) copy.gone = moved(copy.gone);
    return copy;
  }));
  return gone ? null : found;
}

/** Return the new texts of words after some steps. @param {Prepared} transcript @param {readonly Step[]} steps */
function textsOf(transcript, steps) {
  /** @type {Map<number, string>} */
  const texts = new Map();
  for (const made of steps.flat()) {
    if (made.kind === "text") wordsIn(transcript, made.pieces).forEach((w, n) => texts.set(w, n ? "" : made.text));
    else if (made.kind === "fill") texts.set(transcript.gapWord[made.gap], made.text);
  }
  return texts;
}

/** Return a correction of mine with what others have made of its words since.
    @param {Prepared} transcript @param {readonly Step[]} saved before that @param {readonly Step[]} theirs @param {Correction} made
    @returns {Correction[]} */
function mergedStep(transcript, saved, theirs, made) {
  if (made.kind !== "text" && made.kind !== "fill") return [made];
  const [before, after] = [saved, theirs].map((steps) => {
    const texts = textsOf(transcript, steps);
    return (/** @type {number} */ w) => texts.get(w) ?? transcript.words.text[w].trim();
  });
  const list = made.kind === "fill" ? [transcript.gapWord[made.gap]] : wordsIn(transcript, made.pieces);
  if (list.every((w) => before(w) === after(w))) return [made];
  const joinedTexts = (/** @type {(w: number) => string} */ textOf) => list.map(textOf).filter(Boolean).join(" ");
  if (made.text) return [{ ...made, text: merged(joinedTexts(before), joinedTexts(after), made.text) }];
  return list.map((w) => ({ kind: "text", text: merged(before(w), after(w), ""), pieces: piecesOf(transcript, [w]) }));
}

/** Return the two texts of each word that both have rewritten so that a word of one is missing: [theirs, mine].
    @param {Prepared} transcript @param {readonly Step[]} theirs @param {readonly Step[]} mine @returns {[string, string][]} */
export function twice(transcript, theirs, mine) {
  const own = textsOf(transcript, mine);
  const has = (/** @type {string} */ text, /** @type {string} */ other) => other !== ""
    && other.split(" ").every((word) => text.split(" ").includes(word));
  return [...textsOf(transcript, theirs)].flatMap(([w, text]) => {
    const other = own.get(w);
    const kept = other === undefined || other === text || has(other, text) || has(text, other);
    return kept ? [] : [/** @type {[string, string]} */ ([text, other])];
  });
}
