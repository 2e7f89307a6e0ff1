// @ts-check
/* The steps that a person took, those that were undone, and how many of them are saved. */
import { areSteps, countAll } from "./corrections.js";
/** @import { Correction, Step } from "./corrections.js" */
/** @import { Prepared } from "./transcript.js" */

/** @typedef {{ steps: Step[], saved: number, lost: boolean }} Mine what one page has, and knows to be saved */

/** @param {unknown} one @param {unknown} other */
export const alike = (one, other) => JSON.stringify(one) === JSON.stringify(other);

export class Edits {
  /** @type {Step[]} */
  steps = [];
  /** The last one undone comes last. @type {Step[]} */
  undone = [];
  /** The number of steps that are saved. */
  saved = 0;
  /** Whether a step that was saved has been undone and replaced. */
  lost = false;

  get unsaved() {
    return this.lost || this.steps.length !== this.saved;
  }

  /** @param {Correction[]} made */
  take(made) {
    if (this.steps.length < this.saved) this.lost = true;
    this.steps.push(made);
    this.undone = [];
  }

  /** Undo the last step. Returns whether there was one. */
  undo() {
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

  /**
   * Have these steps instead, of which the first `saved` are saved.
   * @param {Step[]} steps
   * @param {Step[]} [undone]
   * @param {number} [saved]
   */
  adopt(steps, undone = [], saved = steps.length) {
    Object.assign(this, { steps, undone, saved, lost: false });
  }

  /**
   * These steps are saved now; meanwhile others may have been taken and undone.
   * @param {Step[]} sent
   */
  arrived(sent) {
    this.saved = sent.length;
    this.lost = !sent.every((step, n) => this.steps[n] === step);
  }
}

/**
 * My steps since I last saved, after theirs; null if theirs do not begin with what I saved.
 * @param {Prepared} transcript
 * @param {Step[]} theirs
 * @param {Mine} mine
 */
export function onTop(transcript, theirs, mine) {
  const common = mine.steps.slice(0, mine.saved);
  if (mine.lost || mine.steps.length < mine.saved || !alike(theirs.slice(0, mine.saved), common)) return null;
  const first = countAll(transcript, common.flat()), more = countAll(transcript, theirs.flat()) - first;
  const moved = (/** @type {number} */ who) => (who >= first ? who + more : who); // mine come after theirs
  const fresh = mine.steps.slice(mine.saved).map((step) => step.map((made) => {
    const copy = { ...made };
    if ("who" in copy) copy.who = moved(copy.who);
    if ("gone" in copy) copy.gone = moved(copy.gone);
    return copy;
  }));
  const both = [...theirs, ...fresh];
  return areSteps(transcript, both) ? both : null;
}
