// @ts-check
/* Recordings that are on their way or being transcribed: live, as the server tells it. */
import { $, button, isolated, make, showIn, toast, write } from "../editor/dom.js";
import { list } from "./library.js";
import { aboutJob, isOpen, latest, untilAll } from "./progress.js";
import { listen } from "./request.js";
import { jobButton } from "./rows.js";
import { forNew } from "./settings.js";
/** @import { Job } from "./progress.js" */

/**
 * A file that is on its way.
 * @typedef {{ name: string, file: File, share: number, why: string | null, request: XMLHttpRequest | null }} Sending
 */

/** Id -> the latest state of a recording, also of those that have ended. @type {Map<string, Job>} */
export const jobs = new Map();
/** @type {Sending[]} */
const sending = [];
/** The files that are not sent yet. @type {Sending[]} */
const waiting = [];
let busy = false;
/* ---------- sending ---------- */

/** @param {Iterable<File>} files */
export function add(files) {
  for (const file of files) {
    const one = { name: file.name, file, share: 0, why: null, request: null };
    sending.push(one);
    waiting.push(one);
  }
  showJobs();
  sendNext();
}

/** One at a time: the first is transcribed while the second is sent. */
function sendNext() {
  const one = busy ? undefined : waiting.shift();
  if (!one) return;
  busy = true;
  const request = new XMLHttpRequest(); // which tells how much was sent, as fetch does not
  const form = new FormData();
  form.append("file", one.file, one.name);
  form.append("settings", JSON.stringify(forNew.settings));
  one.request = request;
  request.open("POST", "/api/recordings");
  request.upload.onprogress = (event) => { one.share = event.loaded / event.total; showJobs(); };
  request.onloadend = () => {
    busy = false;
    if (request.status === 429) { // the queue is full: later
      one.share = 0;
      waiting.unshift(one);
      setTimeout(sendNext, 5000);
      return;
    }
    const said = answerOf(request);
    if (request.status >= 200 && request.status < 300) drop(one);
    else one.why = said.error?.message ?? "it could not be sent; is the server still there?";
    for (const job of said.jobs ?? []) if (!jobs.has(job.id)) hear(job); // else the events were sooner
    showJobs();
    sendNext();
  };
  request.send(form);
}

/** @param {XMLHttpRequest} request @returns {{ jobs?: Job[], error?: { message: string } }} */
function answerOf(request) {
  try { return JSON.parse(request.responseText); } catch { return {}; }
}

/** @param {Sending} one */
function drop(one) {
  sending.splice(sending.indexOf(one), 1);
  const at = waiting.indexOf(one);
  if (at >= 0) waiting.splice(at, 1);
}

/* ---------- hearing ---------- */

let soon = 0, later = 0;

/** @param {Job} job */
export function hear(job) {
  const before = jobs.get(job.id)?.state;
  jobs.set(job.id, job);
  if (job.state === before || (isOpen(job) && !before)) return;
  if (job.state === "failed" && before) toast(`${isolated(job.name)}: ${job.why ?? "it failed"}`);
  if (job.state === "done" && before) toast(`${isolated(job.name)} is transcribed.`);
  clearTimeout(soon);
  soon = setTimeout(list, 100); // once for all that is told when the page opens
  clearTimeout(later);
  later = setTimeout(list, 4000); // the folder is looked at now and then, and read for the search
}

/** The events of the server. */
export const live = listen("/api/events", {
  open() { // all of now is told again
    const before = [...jobs];
    setTimeout(() => {
      for (const [id, job] of before) if (jobs.get(id) === job) jobs.delete(id);
      showJobs();
    }, 1000);
  },
  job(job) { hear(job); showJobs(); },
});

/* ---------- showing ---------- */

/** The parts of a row that may change.
    @type {WeakMap<HTMLElement, { what: HTMLElement, button: HTMLButtonElement, bar: HTMLProgressElement, said: HTMLElement, why: HTMLElement }>} */
const partsOf = new WeakMap();

export function showJobs() {
  const shown = [...jobs.values()].filter(isOpen);
  const more = sending.some((one) => !one.why); // whose duration is unknown
  $("jobs").hidden = !shown.length && !sending.length;
  $("jobs-title").textContent = `Being transcribed${more ? "" : untilAll(shown)}`;
  showIn($("job-list"), [...shown, ...sending], (one) => ("id" in one ? one.id : one), rowOf, (row, one) => {
    const parts = partsOf.get(row);
    if (!parts) return;
    const now = "id" in one ? { ...aboutJob(one), button: "Cancel" } : aboutSending(one);
    parts.what.textContent = now.what;
    write(parts.button, now.button, one.name);
    parts.bar.hidden = now.share === null;
    parts.bar.value = now.share ?? 0;
    const said = "id" in one ? latest(one) : "";
    parts.said.hidden = !said;
    parts.said.textContent = said;
    parts.why.hidden = !one.why;
    parts.why.textContent = one.why ?? "";
  });
}

/** @param {Sending} one */
function aboutSending(one) {
  if (one.why) return { what: "not sent", share: null, button: "Dismiss" };
  const what = one.request ? `sending, ${Math.round(100 * one.share)} %` : "waiting to be sent";
  return { what, share: one.share, button: "Cancel" };
}

/** Return the row of a recording that is being transcribed or sent, without the parts that may change. @param {Job | Sending} one */
function rowOf(one) {
  const isJob = "id" in one;
  const title = isJob
    ? make("a", "name", one.name, { dir: "auto", href: `/t/${one.id}/`, title: "Read and hear it while it is transcribed" })
    : make("span", "name", one.name, { dir: "auto" });
  const parts = {
    what: make("span", "what"), button: isJob ? jobButton("Cancel", one.id, "cancel", list) : sendingButton(one),
    bar: make("progress", "", "", { max: 1, ariaLabel: one.name }), said: make("span", "what", "", { dir: "auto" }),
    why: make("span", "why"),
  };
  const row = make("li", "", [title, ...Object.values(parts)]);
  partsOf.set(row, parts);
  return row;
}

/** @param {Sending} one */
const sendingButton = (one) => button("flat small", "", () => {
  const { request } = one;
  drop(one);
  if (request && request.readyState !== 4) request.abort();
  showJobs();
});
