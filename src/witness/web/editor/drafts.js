// @ts-check
/* Corrections, which the browser keeps until they are saved. */
import { areSteps } from "./corrections.js";
import { data, edits, page, transcript } from "./state.js";
import { keep, kept } from "./storage.js";
/** @import { Mine, Review } from "./edits.js" */

/** @typedef {Mine & { review?: Review, version?: string }} Kept */

const DRAFT = `witness-draft/${data.page}`;

let isKept = true;

export function keepDraft() {
  const { steps, base, sent, review } = edits;
  const wanted = edits.unsaved || sent.length > 0;
  isKept = keep(DRAFT, wanted ? JSON.stringify({ steps, base, sent, review, version: page.desk?.version }) : null);
  page.desk?.changed();
}

export function forgetDraft() {
  keep(DRAFT, null);
}

/** Take up the corrections that were not saved when the page was closed, and return what was kept, or null.
    @returns {Kept | null} */
export function restoreDraft() {
  try {
    const draft = JSON.parse(kept(DRAFT) ?? "null");
    if (!draft || ![draft.steps, draft.base, ...draft.sent].every((list) => areSteps(transcript, list))) return null;
    edits.adopt(draft.steps, [], draft.base);
    return draft;
  } catch {
    return null;
  }
}

window.addEventListener("beforeunload", (event) => {
  if (edits.unsaved && !isKept) event.preventDefault();
});
