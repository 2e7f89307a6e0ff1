// @ts-check
/* Corrections, which the browser keeps until they are saved. */
import { areSteps, isWhole } from "./corrections.js";
import { data, edits, page, transcript } from "./state.js";
import { keep, kept } from "./storage.js";

const DRAFT = `witness-draft/${data.page}`;

let isKept = true;

export function keepDraft() {
  const { steps, saved, lost } = edits;
  const draft = edits.unsaved ? JSON.stringify({ steps, saved, lost, version: page.desk?.version }) : null;
  isKept = keep(DRAFT, draft);
  page.desk?.changed();
}

export function forgetDraft() {
  keep(DRAFT, null);
}

/** Take up the corrections that were not saved when the page was closed, and return what was kept, or null. */
export function restoreDraft() {
  try {
    const draft = JSON.parse(kept(DRAFT) ?? "null");
    if (!draft || !areSteps(transcript, draft.steps) || !isWhole(draft.saved, Infinity)) return null;
    edits.adopt(draft.steps, [], draft.saved);
    edits.lost = Boolean(draft.lost);
    return draft;
  } catch {
    return null;
  }
}

window.addEventListener("beforeunload", (event) => {
  if (edits.unsaved && !isKept) event.preventDefault();
});
