/* Recordings that are dropped or chosen, and what becomes of them: live, as the server tells it. */

const ENDINGS = new Set(document.body.dataset.endings.split(" "));
const jobs = new Map(); // id -> what the server last said of it, also of what has ended
const sending = []; // files that are on their way: {name, share, why, request}

const WORDS = { decode: "reading the sound", segmentation: "listening for voices", embedding: "listening for voices",
  clustering: "telling voices apart", transcription: "writing the words", merging: "putting it together" };

/* ---------- sending ---------- */

const waiting = [];
let busy = false;

/** Whether something in a folder that was given is hidden, by its path from there, as "talks/monday/a.wav": its own
    name, or that of a folder on the way. macOS puts "._a.wav" beside a.wav. */
function isHidden(path) {
  return path.split("/").slice(1).some((name) => name.startsWith("."));
}

/** The recordings among the files of folders, by their endings, in the order in which people list them. */
function addFolders(files) {
  const found = files.filter((file) => ENDINGS.has(file.name.split(".").pop().toLowerCase()));
  found.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  if (found.length) add(found);
  else toast("No recording is among these files.");
}

function add(files) {
  for (const file of files) {
    const one = { name: file.name, share: 0, file };
    sending.push(one);
    waiting.push(one);
  }
  showJobs();
  sendNext();
}

/** One at a time: the first is transcribed while the second is sent. */
function sendNext() {
  if (busy || !waiting.length) return;
  busy = true;
  const one = waiting.shift();
  const request = new XMLHttpRequest(); // which tells how much was sent, as fetch does not
  const form = new FormData();
  form.append("file", one.file, one.file.name);
  one.request = request;
  request.open("POST", "/api/recordings");
  request.upload.onprogress = (event) => { one.share = event.loaded / event.total; showJobs(); };
  request.onloadend = () => {
    busy = false;
    let said = {};
    try { said = JSON.parse(request.responseText); } catch { /* no answer */ }
    if (request.status === 429) { // the queue is full: later
      one.share = 0;
      waiting.unshift(one);
      setTimeout(sendNext, 5000);
      return;
    }
    if (request.status >= 200 && request.status < 300) drop(one);
    else one.why = said.error?.message ?? "it could not be sent; is the server still there?";
    for (const job of said.jobs ?? []) if (!jobs.has(job.id)) hear(job); // else the events were sooner
    showJobs();
    sendNext();
  };
  request.send(form);
}

function drop(one) {
  sending.splice(sending.indexOf(one), 1);
  const at = waiting.indexOf(one);
  if (at >= 0) waiting.splice(at, 1);
}

/* ---------- hearing ---------- */

const isOpen = (job) => job.state === "waiting" || job.state === "working";

function hear(job) {
  const before = jobs.get(job.id)?.state;
  jobs.set(job.id, job);
  if (job.state === before || (isOpen(job) && !before)) return;
  if (job.state === "done" && before) toast(`${job.name} is transcribed.`);
  clearTimeout(hear.soon);
  hear.soon = setTimeout(list, 100); // once for all that is told when the page opens
  clearTimeout(hear.later);
  hear.later = setTimeout(list, 4000); // the folder is looked at now and then, and read for the search
}

function showJobs() {
  const shown = [...jobs.values()].filter(isOpen);
  $("jobs").hidden = !shown.length && !sending.length;
  $("jobs-title").textContent = `Being transcribed${untilAll(shown)}`;
  showIn($("job-list"), [...shown, ...sending], (one) => one.id ?? one, item, (row, one) => {
    const { what, button, bar, why } = row.parts;
    const now = one.id ? aboutJob(one) : aboutSending(one);
    what.textContent = now.what;
    button.textContent = now.button;
    button.setAttribute("aria-label", `${now.button}: ${one.name}`);
    bar.hidden = now.share === null;
    bar.value = now.share ?? 0;
    why.hidden = !one.why;
    why.textContent = one.why ?? "";
  });
}

/** When all that is there will be done, where something waits and the server knows how long that takes. */
function untilAll(shown) {
  const working = shown.filter((job) => job.state === "working");
  const known = working.length && working.every((job) => job.seconds_left !== null && job.seconds_after !== null);
  const more = sending.some((one) => !one.why); // of which nothing is known
  if (!known || more || !shown.some((job) => job.state === "waiting")) return "";
  const left = working.reduce((sum, job) => sum + job.seconds_left, 0) / working.length;
  const minutes = Math.max(1, Math.round((left + Math.max(...working.map((job) => job.seconds_after))) / 60));
  return `, all done in about ${minutes < 60 ? "" : `${Math.floor(minutes / 60)} h `}${minutes % 60} min`;
}

function aboutJob(job) {
  const left = job.seconds_left ? `, ${span(1000 * job.seconds_left)} left` : "";
  const working = job.state === "working";
  const what = working ? `${WORDS[job.stage] ?? "beginning"}${left}` : job.state;
  return { what, share: working ? job.share : null, button: "Cancel" };
}

function aboutSending(one) {
  if (one.why) return { what: "not sent", share: null, button: "Dismiss" };
  const what = one.request ? `sending, ${Math.round(100 * one.share)} %` : "waiting to be sent";
  return { what, share: one.share, button: "Cancel" };
}

/** The row of what is being transcribed or sent, without what may change. */
function item(one) {
  const row = make("li");
  const title = make("span", "name", one.name);
  title.dir = "auto";
  const what = make("span", "what");
  const button = one.id ? jobButton("Cancel", one.id, "cancel") : sendingButton(one);
  const bar = make("progress");
  bar.max = 1;
  bar.setAttribute("aria-label", one.name);
  const why = make("span", "why");
  row.append(title, what, button, bar, why);
  row.parts = { what, button, bar, why };
  return row;
}

function sendingButton(one) {
  const button = make("button", "flat small");
  button.type = "button";
  press(button, () => {
    const under = one.request && one.request.readyState !== 4;
    drop(one);
    if (under) one.request.abort();
    showJobs();
  });
  return button;
}

let events = null;

/** Listen while the page is seen: a browser has few connections for all of its tabs. */
function listen() {
  if (document.visibilityState === "hidden") {
    events?.close();
    events = null;
    return;
  }
  if (events) return;
  events = new EventSource("/api/events");
  events.addEventListener("open", () => { // all of now is told again
    const before = [...jobs];
    setTimeout(() => {
      for (const [id, job] of before) if (jobs.get(id) === job) jobs.delete(id);
      showJobs();
    }, 1000);
  });
  events.addEventListener("job", (event) => { hear(JSON.parse(event.data)); showJobs(); });
}

document.addEventListener("visibilitychange", () => {
  listen();
  if (document.visibilityState === "visible") list();
});

/* ---------- choosing and dropping ---------- */

$("add").addEventListener("click", () => $("files").click());
$("add-folder").addEventListener("click", () => $("folder").click());
$("files").addEventListener("change", () => { add($("files").files); $("files").value = ""; });
$("folder").addEventListener("change", () => {
  addFolders([...$("folder").files].filter((file) => !isHidden(file.webkitRelativePath)));
  $("folder").value = "";
});

const brings = (event) => event.dataTransfer?.types.includes("Files");
let inside = 0;
document.addEventListener("dragenter", (event) => {
  if (!brings(event)) return;
  inside += 1;
  $("drop").hidden = false;
});
document.addEventListener("dragleave", (event) => {
  if (!brings(event)) return;
  inside = Math.max(0, inside - 1);
  $("drop").hidden = inside === 0;
});
document.addEventListener("dragover", (event) => { if (brings(event)) event.preventDefault(); });
document.addEventListener("drop", async (event) => {
  if (!brings(event)) return;
  event.preventDefault();
  inside = 0;
  $("drop").hidden = true;
  const entries = [...event.dataTransfer.items].map((one) => one.webkitGetAsEntry?.()).filter(Boolean);
  const files = [...event.dataTransfer.files];
  if (!entries.some((entry) => entry.isDirectory)) { add(files); return; }
  const unread = [];
  addFolders((await Promise.all(entries.map((entry) => below(entry, unread)))).flat());
  if (unread.length) toast(`Could not be read: ${unread.join(", ")}`);
});

/** The files of an entry and of all folders below it that are not hidden; `unread` gets the names of what cannot
    be read. */
async function below(entry, unread) {
  if (isHidden(entry.fullPath.slice(1))) return [];
  const found = [];
  try {
    if (entry.isFile) return [await new Promise((done, failed) => { entry.file(done, failed); })];
    const reader = entry.createReader();
    for (;;) { // it gives a hundred at a time
      const some = await new Promise((done, failed) => { reader.readEntries(done, failed); });
      if (!some.length) break;
      found.push(...some);
    }
  } catch {
    unread.push(entry.name);
  }
  return (await Promise.all(found.map((one) => below(one, unread)))).flat();
}

/* ---------- the start ---------- */

const given = new URLSearchParams(location.search);
// What is in a field by now was typed while the page loaded.
$("query").value ||= given.get("q") ?? "";
$("speaker").value ||= given.get("speaker") ?? "";
list().then(() => { document.documentElement.dataset.ready = "yes"; });
if ($("query").value) search();
listen();
