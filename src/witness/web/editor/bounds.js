// @ts-check
/* How far the start and the end of a paragraph may be moved. */
/** @import { Paragraph } from "./paragraphs.js" */

const SHORTEST = 100; // ms

/**
 * The least and the most, in ms: paragraphs stay in their order, and what one person says does not run into what they say
 * before or after. Where it does already, it stays possible.
 * @param {{ start: number, end: number }} part of the recording
 * @param {readonly Pick<Paragraph, "start" | "end" | "who">[]} paragraphs in order
 * @param {number} n which one
 * @param {"start" | "end"} kind
 * @returns {[number, number]}
 */
export function bounds(part, paragraphs, n, kind) {
  const { start, end, who } = paragraphs[n];
  const theirs = (/** @type {{ who: number }} */ one) => who >= 0 && one.who === who;
  if (kind === "start") {
    const before = Math.max(part.start, ...paragraphs.slice(Math.max(0, n - 1), n).map((one) => one.start + 1),
      paragraphs.slice(0, n).reverse().find(theirs)?.end ?? 0);
    const next = paragraphs[n + 1] ? paragraphs[n + 1].start - 1 : Infinity;
    return [Math.min(start, before), Math.max(start, Math.min(end - SHORTEST, next))];
  }
  const after = Math.min(part.end, paragraphs.slice(n + 1).find(theirs)?.start ?? Infinity);
  return [Math.min(end, start + SHORTEST), Math.max(end, after)];
}
