/* Corrections, which the browser keeps until they are saved to a file. */

const DRAFT = `witness-draft/${data.page}`;

let draftIsKept = true;
let desk = null; // what saves the corrections in the transcript; a page that is a file has none: served.js

function unsaved() {
  return lost || steps.length !== saved;
}

function keepDraft() {
  draftIsKept = keep(DRAFT, unsaved() ? JSON.stringify({ steps, saved, lost, version: desk?.version }) : null);
  desk?.changed();
}

/** Take up the corrections that were not saved when the page was closed, and return what was kept, or null. */
function restoreDraft() {
  try {
    const draft = JSON.parse(kept(DRAFT));
    if (!draft || !isSteps(draft.steps) || !isWhole(draft.saved, Infinity)) return null;
    steps = draft.steps;
    saved = draft.saved;
    lost = Boolean(draft.lost);
    return draft;
  } catch {
    return null;
  }
}

function isWhole(n, end) {
  return Number.isInteger(n) && n >= 0 && n < end;
}

/** Whether these are corrections of this page: other files may write what the browser keeps for this one. */
function isSteps(list) {
  let count = data.speakers.length;
  const isStep = (made) => {
    const places = Array.isArray(made.pieces) && made.pieces.length > 0
      && made.pieces.every((piece) => piece.length === 2 && piece.every(Number.isFinite));
    switch (made.kind) {
      case "name": return isWhole(made.who, count) && checkName(made.name) === made.name;
      case "merge": return isWhole(made.who, count) && isWhole(made.gone, count);
      case "move": return isWhole(made.who, count) && places;
      case "new": count += 1; return made.who === count - 1 && places;
      case "text": return checkText(made.text) === null && places;
      case "fill": return isWhole(made.gap, gapWord.length) && made.text !== "" && checkText(made.text) === null;
      default: return false;
    }
  };
  return list.every((made) => made.every(isStep));
}
