/* A small talk of two people, as formats/html.py writes it. */

/** @returns {import("../../src/witness/web/editor/transcript.js").Data} */
export function talk() {
  const said = "Good morning. How are you? Fine, the budget is fine.".split(" ").map((text) => ` ${text}`);
  const start = said.map((_, n) => 1000 + 400 * n + (n > 4 ? 600 : 0));
  return {
    title: "talk", schema: "witness-corrections/1", sha256: "0".repeat(64), page: "p", start: 0, end: 12000,
    languages: [["en", false]], listened: true, speakers: [["SPEAKER_01", null], ["SPEAKER_02", "Bob"]],
    grouping: { pause: 2000, phrase: 400, shortest: 30000, longest: 60000, breath: 500, ends: ".?!", closing: "\"' " },
    turns: { start: [1000, 3600, 8000], end: [3100, 5500, 11000], speaker: [0, 1, 0] },
    words: {
      text: said, start, end: start.map((ms) => ms + 300), speaker: said.map((_, n) => (n > 4 ? 1 : 0)),
      sure: said.map(() => 90), flags: said.map(() => 0), track: said.map(() => 0),
      probability: said.map(() => 95), language: said.map(() => 0),
    },
    silent: { start: [8000], end: [11000], speaker: [0], track: [0], mark: ["[inaudible]"] },
    peaks: null, link: null,
  };
}
