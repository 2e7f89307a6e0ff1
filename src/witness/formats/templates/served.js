/* A page that a server shows: corrections are saved in the transcript as they are made, and nobody's work is
   lost. `version` is the transcript that this page has seen; the server refuses to write over another one. */

const PAUSE = 700; // ms after the last step until it is saved
const AGAIN = 4000; // ms until a server that did not answer is asked again

const { served } = data;
let { version } = served;
let sending = null; // the promise of the request that is under way
let timer = 0;
let stuck = null; // why saving has stopped until the person decides

function show(text, kind = "", title = "") {
  const state = $("save");
  state.className = `state ${kind}`;
  state.textContent = text;
  state.title = title || text;
}

function showState() {
  enable($("redo"), undone.length > 0);
  if (served.refusal) show(unsaved() ? "Cannot be saved" : "Read only", unsaved() ? "bad" : "busy", served.refusal);
  else if (stuck) show(`Not saved: ${stuck.message}`, "bad");
  else if (sending || unsaved()) show("Saving…", "busy");
  else show("Saved");
}

desk = {
  soundless: "the recording is not where it was, or this browser cannot play it",

  get version() { return version; },

  /** Take up what the server knows, and what this browser kept because it could not be saved. */
  open(draft) {
    const mine = draft && { steps, saved, lost };
    steps = [];
    if (areSteps(served.steps)) ({ steps } = served);
    else served.refusal = `${served.history}, which holds your steps, is damaged; remove it and load this page again`;
    undone = areSteps([...steps, ...[...served.undone].reverse()]) ? served.undone : [];
    saved = steps.length;
    lost = false;
    if (mine && !alike(mine.steps, steps)) {
      const both = draft.version === version ? mine.steps : onTop(steps, mine);
      if (!both) stuck = { message: "somebody else changed this transcript", mine: true };
      lost = !alike((both ?? mine.steps).slice(0, saved), steps);
      steps = both ?? mine.steps;
      undone = [];
    }
    showState();
    if (unsaved() && !stuck) timer = setTimeout(send, PAUSE);
  },

  changed() {
    showState();
    clearTimeout(timer);
    if (unsaved() && !stuck && !served.refusal) timer = setTimeout(send, PAUSE);
  },

  save() {
    if (served.refusal) { toast(served.refusal); return; }
    if (stuck?.mine) decide();
    else { stuck = null; send(); }
  },

  voice: (list) => askVoice(list),
};

/** Whether steps from elsewhere are some of this page. */
function areSteps(list) {
  try { return isSteps(list); } catch { return false; }
}

const alike = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Whether somebody is about to answer or to type, and what they do may not go to something else. */
const asking = () => Boolean(document.querySelector("dialog[open]"));
const busy = () => asking() || Boolean(document.activeElement.closest("input"));

/** Wait for a moment in which the page may change: no button of the mouse is pressed. */
async function until(may) {
  while (!may()) await new Promise((done) => { setTimeout(done, 100); });
}
const calmed = () => until(() => performance.now() > calm);

async function send() {
  clearTimeout(timer);
  if (sending || stuck || served.refusal || !unsaved()) { showState(); return; }
  const sent = steps.slice();
  const body = { version, steps: sent, undone, corrections: JSON.parse(correctionsFile()) };
  sending = call("corrections", body, "PUT");
  showState();
  try {
    const said = await sending;
    if (said.left?.length) toast(`Not made again, because a library is missing: ${said.left.join(", ")}`);
    arrived(said.version, sent);
  } catch (error) {
    if (error.status === 409) await overtaken(sent);
    else if (error.status && error.status < 500 && error.status !== 408 && error.status !== 429) {
      stuck = { message: error.message };
    } else {
      show(`Not saved: ${error.message}`, "bad", "This browser keeps your corrections and tries again");
      timer = setTimeout(send, AGAIN);
      return;
    }
  } finally {
    sending = null;
  }
  keepDraft(); // and save what was corrected meanwhile
}

/** What was sent is in the transcript of this version. */
function arrived(now, sent) {
  version = now;
  saved = sent.length;
  lost = !sent.every((step, n) => steps[n] === step);
}

/** Somebody else has saved: put my steps on top of theirs, or let the person decide. */
async function overtaken(sent) {
  try {
    const theirs = await call("corrections");
    if (alike(theirs.steps, sent)) { arrived(theirs.version, sent); return; } // it was me; the answer was lost
    await calmed();
    const both = theirs.page === data.page ? onTop(theirs.steps, { steps, saved, lost }) : null;
    if (!both) {
      stuck = { message: "somebody else changed this transcript", mine: true };
      until(() => !busy() && performance.now() > calm).then(decide);
      return;
    }
    version = theirs.version;
    adopt(both, [], theirs.steps.length);
    toast("Somebody else corrected this transcript, too: their corrections and yours are both here.");
  } catch (error) {
    show(`Not saved: ${error.message}`, "bad");
    timer = setTimeout(send, AGAIN);
  }
}

/** My steps since I last saved, after theirs; null if theirs do not begin with what I saved. */
function onTop(theirs, mine) {
  const common = mine.steps.slice(0, mine.saved);
  if (mine.lost || mine.steps.length < mine.saved || !alike(theirs.slice(0, mine.saved), common)) return null;
  const first = countAll(common.flat()), more = countAll(theirs.flat()) - first;
  const moved = (who) => (who >= first ? who + more : who); // those whom I added come after those of theirs
  const fresh = mine.steps.slice(mine.saved).map((step) => step.map((made) => {
    const copy = { ...made };
    for (const key of ["who", "gone"]) if (key in made) copy[key] = moved(made[key]);
    return copy;
  }));
  const both = [...theirs, ...fresh];
  return areSteps(both) ? both : null;
}

function adopt(all, others, count) {
  const selected = chosenWords();
  steps = all;
  undone = others;
  saved = count;
  lost = false;
  refresh();
  const places = selected.map((w) => place[w]).filter((at) => at >= 0);
  if (places.length) choose(places[0], places[places.length - 1], { view: false });
}

/** Both changed the transcript in ways that no rule joins. */
async function decide() {
  const done = await pick("Somebody else changed this transcript", "Yours are kept in this browser until you choose.", [
    { value: "add", label: "Add my corrections to theirs" },
    { value: "file", label: "Save mine to a file, and show theirs" },
  ]);
  if (done === null) { showState(); return; }
  try {
    if (done === "add") {
      const theirs = await call("corrections");
      await call("corrections", { version: theirs.version, corrections: JSON.parse(correctionsFile()) });
    } else {
      download();
    }
    leave();
  } catch (error) {
    toast(error.message);
  }
}

/** Show what the server has now. */
function leave() {
  steps = [];
  saved = 0;
  lost = false;
  keep(DRAFT, null);
  const hash = `#t=${(position / 1000).toFixed(1)}`;
  history.replaceState(null, "", position > data.start ? hash : location.pathname);
  location.reload();
}

/** What others did meanwhile appears when one comes back to the page. */
async function catchUp() {
  if (sending || stuck || unsaved() || asking()) return;
  try {
    if ((await call("version")).version === version) return;
    const theirs = await call("corrections");
    await calmed();
    if (theirs.version === version || sending || unsaved() || asking()) return;
    if (theirs.page !== data.page || !areSteps(theirs.steps)) { if (!busy()) leave(); return; }
    version = theirs.version;
    adopt(theirs.steps, theirs.undone, theirs.steps.length);
  } catch { /* the server is gone; whoever corrects something is told */ }
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") send(); else catchUp();
});
window.addEventListener("focus", catchUp);
window.addEventListener("online", () => { if (unsaved()) send(); });
window.addEventListener("pagehide", () => { if (unsaved()) send(); });

/* ---------- what else the server can do ---------- */

/** Save what is not saved yet, then ask for a change of the whole transcript, and show the result. */
async function change(address, body) {
  await settled();
  if (unsaved()) { toast("Your corrections are not saved yet; try again when they are."); return; }
  show("Working…", "busy");
  try {
    await call(address, { version, ...body });
    await settled(); // what was corrected meanwhile is refused, and is for the person to decide
    if (unsaved()) showState(); else leave();
  } catch (error) {
    toast(error.message);
    showState();
  }
}

async function settled() {
  await sending?.catch(() => {});
  if (unsaved()) await send();
}

async function askExport() {
  const choices = served.formats.map(([form, about]) => ({ value: form, label: about ? `${form} – ${about}` : form }));
  const form = await pick("Export", "The transcript with its corrections, as a file.", choices);
  if (form === null) return;
  await settled();
  const a = make("a");
  a.href = `export?format=${form}`;
  a.download = "";
  a.click();
}

async function askCount() {
  let wanted;
  await ask("How many people speak?", "A number; leave it empty if you do not know it", served.asked ?? "", (text) => {
    const number = text.trim() ? Number(text) : null;
    if (number !== null && !(Number.isInteger(number) && number >= 1 && number <= 10000)) return "A whole number, 1 or more.";
    wanted = number;
    return null;
  });
  if (wanted !== undefined) await change("speakers", { speakers: wanted });
}

async function askMore() {
  const choices = [{ value: "count", label: "Another number of speakers…" }];
  if (steps.length || served.corrected || served.asked !== null) {
    choices.push({ value: "original", label: "Back to the machine's version…" });
  }
  const done = await pick("This transcript", "", choices);
  if (done === "count") await askCount();
  else if (done === "original") {
    const about = served.corrected || served.asked !== null
      ? "All corrections are dropped, those of earlier days too. This cannot be undone."
      : "All corrections are undone. Redo brings them back.";
    const sure = await pick("Back to the machine's version?", about, [{ value: true, label: "Drop all corrections" }]);
    if (sure) await change("original", {});
  }
}

$("redo").addEventListener("click", redo);
$("export").addEventListener("click", askExport);
$("more").addEventListener("click", askMore);

/** The outline of the sound, which may take a moment the first time. */
fetch("outline").then(async (answer) => {
  if (!answer.ok) return;
  peaks = new Uint8Array(await answer.arrayBuffer());
  drawTimeline();
}).catch(() => {});
