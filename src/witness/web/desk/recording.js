// @ts-check
/* Recording in the browser: the microphone, and what a shared tab or screen plays as a second channel. Pieces are sent
   while it records, so that a closed tab costs its last seconds at most; what was left behind is offered again. */
import { clock } from "../editor/clock.js";
import { $, button, make, press, showIn, toast, wordsOf, write } from "../editor/dom.js";
import { request } from "./request.js";
import { hear, showJobs } from "./jobs.js";
import { forNew } from "./settings.js";

/** @typedef {{ id: string, name: string, size: number, changed: string, idle: boolean }} Take */

const PIECE = 2000; // ms
const AGAIN = 2000; // ms until a server that did not take a piece is asked again

/** The recording that is being made. @type {Recorder | null} */
let now = null;

class Recorder {
  /** @param {Take} take @param {MediaStream[]} sources @param {AudioContext} context @param {MediaRecorder} media */
  constructor(take, sources, context, media) {
    this.take = take;
    this.sources = sources;
    this.context = context;
    this.media = media;
    this.begun = performance.now();
    /** Pieces that the server does not have yet. @type {Blob[]} */
    this.pieces = [];
    this.sent = 0; // bytes
    this.sending = /** @type {Promise<void> | null} */ (null);
    this.why = ""; // it has ended by itself
    this.lost = ""; // why the server will not take the rest
    /** All of it, for the person to keep. @type {Blob[]} */
    this.all = [];
    for (const track of sources.flatMap((source) => source.getAudioTracks())) {
      track.addEventListener("ended", () => this.end("The microphone or the shared tab is gone. Stop saves what was recorded until then."));
    }
    media.ondataavailable = ({ data }) => {
      if (!data.size) return;
      this.all.push(data);
      this.pieces.push(data);
      this.sending ??= this.send().finally(() => { this.sending = null; });
    };
    media.start(PIECE);
  }

  /** End the recording in the middle. @param {string} why */
  end(why) {
    if (this.media.state === "inactive") return;
    this.why = why;
    this.media.stop();
    clearInterval(ticking);
    state(why);
  }

  /** Send all that waits; a server that is gone is waited for, and what it has is not sent twice. */
  async send() {
    while (this.pieces.length && !this.lost) {
      const piece = this.pieces[0];
      const answer = await fetch(`/api/takes/${this.take.id}/pieces/${this.sent}`, { method: "POST", body: piece }).catch(() => null);
      const said = await answer?.json().catch(() => null), status = answer?.status ?? 0;
      const arrived = (answer?.ok ? piece.size : status === 409 ? said?.size - this.sent : 0); // of 409 the answer was lost, or a part
      if (arrived > 0 && arrived <= piece.size) {
        this.sent += arrived;
        if (arrived < piece.size) this.pieces[0] = piece.slice(arrived); else this.pieces.shift();
        state(this.why);
        continue;
      }
      const message = said?.error?.message ?? "the server does not answer";
      if (status >= 400 && status < 500 && ![401, 408, 429].includes(status)) {
        this.lost = message;
        this.end("");
        state(`Not saved: ${message}. `, this);
      } else {
        state(`Not saved: ${message}. This page keeps it and tries again. `, this);
        await new Promise((done) => { setTimeout(done, AGAIN); });
      }
    }
  }

  /** Stop, and wait until the server has everything. */
  async stop() {
    if (this.media.state !== "inactive") {
      const ended = new Promise((done) => { this.media.onstop = done; });
      this.media.stop(); // the last piece comes before its end
      await ended;
    }
    for (const source of this.sources) for (const track of source.getTracks()) track.stop();
    await this.context.close().catch(() => {});
    while (this.sending) await this.sending;
  }
}

/** @param {string} text @param {Recorder} [recorder] whose sound the person may keep */
function state(text, recorder) {
  $("recording-state").replaceChildren(text, ...(recorder ? [button("flat small", "Download the recording", () => {
    const link = make("a", "", "", { href: URL.createObjectURL(new Blob(recorder.all, { type: recorder.media.mimeType })), download: recorder.take.name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  })] : []));
}

/** One channel, or with `shared` two: who sits here, and who is heard in the tab or screen.
    @param {MediaStream} microphone @param {MediaStream | null} shared @param {AudioContext} context */
function joined(microphone, shared, context) {
  const out = context.createMediaStreamDestination();
  const merger = context.createChannelMerger(shared ? 2 : 1);
  [microphone, ...(shared ? [shared] : [])].forEach((stream, channel) => {
    const mono = context.createGain();
    mono.channelCount = 1;
    mono.channelCountMode = "explicit";
    context.createMediaStreamSource(stream).connect(mono).connect(merger, 0, channel);
  });
  out.channelCount = shared ? 2 : 1;
  merger.connect(out);
  return out.stream;
}

/** @param {unknown} error */
function whyNot(error) {
  if (!navigator.mediaDevices) return "A browser records only over https, or from this machine itself.";
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError") return "The browser was not allowed to listen; allow it beside the address, and try again.";
  if (name === "NotFoundError") return "No microphone was found; connect one, and try again.";
  return wordsOf(error);
}

async function begin() {
  /** @type {MediaStream[]} */
  const sources = [];
  try {
    const wanted = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const microphone = await navigator.mediaDevices.getUserMedia({ audio: wanted });
    sources.push(microphone);
    let shared = /** @type {MediaStream | null} */ (null);
    if ($("recording-shared").checked) {
      shared = await navigator.mediaDevices.getDisplayMedia({ audio: wanted, video: true }); // there is none without a picture
      sources.push(shared);
      for (const track of shared.getVideoTracks()) track.enabled = false;
      if (!shared.getAudioTracks().length) throw new Error("What you shared has no sound; share a tab, and let its sound be shared, too.");
    }
    const context = new AudioContext();
    await context.resume();
    const type = ["audio/webm;codecs=opus", "audio/mp4"].find((one) => MediaRecorder.isTypeSupported(one)) ?? "";
    const rate = { mimeType: type, audioBitsPerSecond: shared ? 128000 : 64000 };
    const media = new MediaRecorder(joined(microphone, shared, context), rate);
    const ending = media.mimeType.includes("mp4") ? "m4a" : "webm";
    const name = $("recording-name").value.trim() || usualName();
    now = new Recorder(await request("/api/takes", { name: `${name}.${ending}` }), sources, context, media);
  } catch (error) {
    for (const source of sources) for (const track of source.getTracks()) track.stop();
    state(whyNot(error));
  }
  show();
}

async function finish() {
  const recorder = now;
  if (!recorder) return;
  state("Saving what is left…");
  await recorder.stop();
  try {
    if (recorder.lost) throw new Error(`Not saved: ${recorder.lost}`);
    await transcribe(recorder.take.id);
    $("recording").close();
  } catch (error) {
    state(`${wordsOf(error)}. `, recorder);
  }
  now = null;
  show();
  offer();
}

/** Transcribe a recording. @param {string} id of the take */
async function transcribe(id) {
  const { jobs } = await request(`/api/takes/${id}/finish`, forNew.settings);
  for (const job of jobs ?? []) hear(job);
  showJobs();
}

const usualName = () => `Recording ${new Date().toLocaleString("sv").slice(0, 16).replace(":", ".")}`;

let ticking = 0;

function show() {
  clearInterval(ticking);
  $("recording-begin").hidden = now !== null;
  $("recording-end").hidden = now === null;
  $("recording-name").disabled = $("recording-shared").disabled = now !== null;
  $("recording-time").textContent = "";
  if (!now) return;
  const { begun } = now;
  const tick = () => { $("recording-time").textContent = `● ${clock(performance.now() - begun)}`; };
  tick();
  ticking = setInterval(tick, 500);
  $("recording-end").focus();
}

/** Offer the recordings that a closed tab left behind. */
export async function offer() {
  /** @type {{ takes: Take[] }} */
  const { takes } = await request("/api/takes").catch(() => ({ takes: [] })); // then nothing can be recorded here
  const left = takes.filter((take) => take.idle && take.id !== now?.take.id);
  $("takes").hidden = !left.length;
  showIn($("take-list"), left, (take) => take.id, itemOf, () => {});
  if (takes.length > left.length) setTimeout(offer, 20000); // one may be left behind meanwhile
}

/** @param {Take} take */
function itemOf({ id, name, changed }) {
  const use = button("flat small", "", () => transcribe(id).catch(toast).then(offer));
  const discard = button("flat small", "", () => {
    if (discard.dataset.sure === undefined) { discard.dataset.sure = ""; write(discard, "Discard it? Press again", name); return; }
    return request(`/api/takes/${id}/discard`, undefined, "POST").catch(toast).then(offer);
  });
  write(use, "Transcribe", name);
  write(discard, "Discard", name);
  return make("li", "", [
    make("span", "name", name, { dir: "auto" }), make("span", "what", `until ${new Date(changed).toLocaleString()}`), use, discard,
  ]);
}

$("record").addEventListener("click", () => {
  state("");
  $("recording-name").placeholder = usualName();
  show();
  $("recording").showModal();
});
press($("recording-begin"), begin);
press($("recording-end"), finish);
$("recording").addEventListener("cancel", (event) => { if (now) event.preventDefault(); }); // Esc ends no recording
$("recording-close").addEventListener("click", () => {
  if (now) state("It is being recorded; stop it first."); else $("recording").close();
});
window.addEventListener("beforeunload", (event) => { if (now) event.preventDefault(); });
