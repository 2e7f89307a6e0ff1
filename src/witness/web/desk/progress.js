// @ts-check
/* The progress of recordings that are being transcribed, in words. */
import { span } from "../editor/clock.js";
import { called } from "../editor/transcript.js";

/**
 * The server's view of a recording that was dropped.
 * @typedef {{
 *   id: string, name: string, state: string, stage: string | null, share: number, why: string | null,
 *   seconds_left: number | null, seconds_after: number | null,
 *   said?: { speaker: string, text: string }[],
 * }} Job `seconds_after`: what those that wait will take once it is done; `said`: the latest that is final
 */

/** @type {Record<string, string>} */
const STAGES = { decode: "reading the sound", segmentation: "listening for voices", embedding: "listening for voices",
  clustering: "telling voices apart", transcription: "writing the words", merging: "putting it together" };

/** @param {Job} job */
export const isOpen = (job) => job.state === "waiting" || job.state === "working";

/** Return the time until all of these will be done, if some wait and the server knows it; else "".
    @param {readonly Job[]} jobs */
export function untilAll(jobs) {
  const working = jobs.filter((job) => job.state === "working");
  const left = working.map((job) => job.seconds_left), after = working.map((job) => job.seconds_after);
  const known = [...left, ...after].filter((seconds) => seconds !== null && seconds !== undefined);
  if (!working.length || known.length < 2 * working.length) return "";
  if (!jobs.some((job) => job.state === "waiting")) return "";
  const mean = known.slice(0, working.length).reduce((sum, seconds) => sum + seconds, 0) / working.length;
  const minutes = Math.max(1, Math.round((mean + Math.max(...known.slice(working.length))) / 60));
  return `, all done in about ${minutes < 60 ? "" : `${Math.floor(minutes / 60)} h `}${minutes % 60} min`;
}

/** Return the latest words that are recognized. @param {Job} job */
export function latest(job) {
  const last = job.said?.at(-1);
  return last ? `${called(last.speaker)}: ${last.text}` : "";
}

/** @param {Job} job */
export function aboutJob(job) {
  if (job.state !== "working") return { what: job.state, share: null };
  const left = job.seconds_left ? `, ${span(1000 * job.seconds_left)} left` : "";
  return { what: `${STAGES[job.stage ?? ""] ?? "beginning"}${left}`, share: job.share };
}
