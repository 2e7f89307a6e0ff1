// @ts-check
/* Paragraphs -> the order in which words are read, and blocks that are shown or removed together. */
/** @import { Paragraph } from "./paragraphs.js" */

const BLOCK = 240; // words of a long paragraph that are a block

/** @typedef {{ number: number, paragraph: Paragraph, from: number, to: number }} Block a part of a paragraph's words */

/**
 * @param {Paragraph[]} paragraphs
 * @param {number} count of all words
 */
export function inReadingOrder(paragraphs, count) {
  /** @type {number[]} */
  const order = []; // the words in reading order
  const place = new Int32Array(count).fill(-1); // word -> its place in that order, -1: not shown
  const paragraphOf = new Int32Array(count).fill(-1); // word -> paragraph
  const blockOf = new Int32Array(count).fill(-1); // word -> block
  /** @type {Block[]} */
  const blocks = [];
  paragraphs.forEach((paragraph, number) => {
    paragraph.block = blocks.length;
    for (let from = 0; from === 0 || from < paragraph.words.length; from += BLOCK) {
      const to = Math.min(from + BLOCK, paragraph.words.length);
      for (const w of paragraph.words.slice(from, to)) {
        place[w] = order.length;
        order.push(w);
        paragraphOf[w] = number;
        blockOf[w] = blocks.length;
      }
      blocks.push({ number, paragraph, from, to });
    }
  });
  return { order, place, paragraphOf, blockOf, blocks };
}
