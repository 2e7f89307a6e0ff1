/* All recordings of the folder, and the search in what was said in them. What people said, their names and those
   of files reach the document through textContent only. */

const ROWS = 100, HITS = 50;

let sort = "date", order = "down";
let recordings = []; // the rows that are shown
let total = 0;
let wanted = ROWS; // how many of them are to be shown
let asked = 0; // the number of the latest search, whose answer counts

/* ---------- helpers ---------- */

function counted(n, noun) {
  return n === 1 ? `1 ${noun}` : `${n.toLocaleString("en")} ${noun}s`;
}

/* ---------- the recordings ---------- */

let listed = 0; // the number of the latest answer; one that comes after it is of no use
let asking = 0; // and that of the latest question

async function list() {
  const how = () => `sort=${sort}&order=${order}&wanted=${wanted}`;
  const before = how(), mine = ++asking;
  const late = () => mine < listed || how() !== before; // another order was chosen meanwhile, which is asked for, too
  try {
    const found = [];
    let said;
    do { // the server gives no more than so many at a time
      said = await call(`/api/library?sort=${sort}&order=${order}&offset=${found.length}&limit=${wanted - found.length}`);
      if (late()) return;
      found.push(...said.recordings);
    } while (said.recordings.length && found.length < Math.min(wanted, said.total));
    listed = mine;
    recordings = found;
    total = said.total;
    $("facts").textContent = said.indexed < said.total
      ? `${counted(total, "recording")} · reading them for the search: ${said.indexed.toLocaleString("en")} so far`
      : total ? counted(total, "recording") : ""; // what has no transcript is counted below
    const rest = said.untranscribed;
    hide($("rest"), !rest);
    $("rest-text").textContent = `${counted(rest, "recording")} in this folder ${rest === 1 ? "has" : "have"} no transcript.`;
    clearTimeout(list.timer);
    if (said.indexed < said.total) list.timer = setTimeout(list, 2000);
  } catch (error) {
    if (!late()) $("facts").textContent = error.message;
    return;
  }
  showRows();
}

function showRows() {
  showIn($("rows"), recordings, (one) => one.id, () => make("tr"), (row, one) => {
    const said = JSON.stringify(one);
    if (row.said === said) return;
    row.said = said;
    cellsOf(one).forEach((cell, n) => {
      const before = row.children[n];
      if (!before) row.append(cell);
      else if (!before.isEqualNode(cell)) before.replaceWith(cell); // the others may be pressed, or have the focus
    });
  });
  hide($("more"), recordings.length >= total);
  $("empty").hidden = total > 0 || !$("rest").hidden;
  $("recordings").hidden = total === 0;
  for (const head of document.querySelectorAll("#recordings th")) {
    const mine = head.firstElementChild.dataset.sort === sort;
    if (mine) head.setAttribute("aria-sort", order === "up" ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
}

function cellsOf(one) {
  const name = make("td", "text name");
  const undone = one.state === "failed" || one.state === "canceled";
  const there = one.seconds !== null && !undone;
  const title = make(there ? "a" : "span", "", one.name);
  title.dir = "auto";
  if (there) title.href = `/t/${one.id}/`;
  name.append(title);
  if (one.folder) {
    const folder = make("span", "folder", one.folder);
    folder.dir = "auto";
    name.append(folder);
  }
  const people = make("td", "text speakers", one.speakers.join(", "));
  people.dir = "auto";
  const state = make("td", "text state");
  state.append(make("span", `tag ${one.state}`, one.state));
  if (one.why) state.append(make("span", "why", one.why));
  if (undone) state.append(jobButton("Try again", one.id, "retry"));
  return [name, make("td", "length", one.seconds === null ? "" : span(1000 * one.seconds)), people,
    make("td", "date", one.date ? new Date(one.date).toLocaleDateString(undefined, { dateStyle: "medium" }) : ""), state];
}

function jobButton(text, id, action) {
  const button = make("button", "flat small", text);
  button.type = "button";
  press(button, async () => {
    try { await call(`/api/jobs/${id}/${action}`, undefined, "POST"); } catch (error) { toast(error.message); }
    list();
  });
  return button;
}

for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    const given = button.dataset.sort;
    order = given === sort ? (order === "up" ? "down" : "up") : given === "date" || given === "seconds" ? "down" : "up";
    sort = given;
    list();
  });
}
$("more").addEventListener("click", () => { wanted = recordings.length + ROWS; list(); });
$("transcribe").addEventListener("click", async () => {
  hide($("rest"));
  try { await call("/api/recordings/untranscribed", undefined, "POST"); } catch (error) { toast(error.message); }
  setTimeout(list, 1500); // the folder is looked at again meanwhile
});

/* ---------- the search ---------- */

let hits = [];

async function search(more = false) {
  const query = $("query").value.trim();
  const mine = ++asked;
  $("found").hidden = !query;
  $("all").hidden = Boolean(query);
  const state = new URLSearchParams(query ? { q: query, speaker: $("speaker").value.trim() } : {});
  history.replaceState(null, "", query ? `?${state}` : location.pathname);
  if (!query) { hits = []; $("hits").replaceChildren(); return; }
  try {
    const said = await call(`/api/search?${state}&offset=${more ? hits.length : 0}&limit=${HITS}`);
    if (mine !== asked) return; // somebody has typed on
    hits = more ? [...hits, ...said.hits] : said.hits;
    $("found-title").textContent = !said.total ? "Nothing was found"
      : `${said.more ? "More than " : ""}${counted(said.total, "passage")}`;
    showIn($("hits"), hits, JSON.stringify, hitOf, () => {});
    hide($("more-hits"), hits.length >= said.total);
  } catch (error) {
    if (mine === asked) $("found-title").textContent = error.message;
  }
}

function hitOf(hit) {
  const item = make("li");
  const button = make("button", "hit-row");
  button.type = "button";
  button.title = "Play";
  const where = make("span", "where");
  const speaker = make("b", "", hit.speaker);
  speaker.dir = "auto";
  where.append(speaker, ` ${clock(1000 * hit.start)} · ${hit.name}`);
  const words = make("span", "words");
  words.dir = "auto";
  words.append(hit.before, " ", make("mark", "", hit.text), " ", hit.after);
  button.append(where, words);
  button.addEventListener("click", () => play(hit, button));
  item.append(button);
  return item;
}

let typed = 0;
for (const id of ["query", "speaker"]) {
  $(id).addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(search, 150);
  });
}
$("search").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typed); search(); });
$("more-hits").addEventListener("click", () => search(true));

/* ---------- playing ---------- */

const audio = new Audio();
let end = Infinity; // where the passage that is played ends

function play(hit, button) {
  for (const one of document.querySelectorAll(".hit-row.on")) one.classList.remove("on");
  button.classList.add("on");
  const source = `/t/${hit.id}/sound`;
  if (audio.getAttribute("src") !== source) audio.src = source;
  audio.currentTime = hit.start;
  end = hit.end + 1;
  $("playing").textContent = `${hit.speaker}, ${clock(1000 * hit.start)} · ${hit.name}`;
  $("open").href = `/t/${hit.id}/#t=${hit.start.toFixed(1)}`;
  $("player").hidden = false;
  audio.play().catch(() => {});
}

function toggle() {
  if ($("player").hidden) return;
  end = Infinity; // whoever goes on wants to hear more
  if (audio.paused) audio.play().catch(() => {}); else audio.pause();
}

function showPlay() {
  $("play").classList.toggle("pause", !audio.paused);
  $("play").setAttribute("aria-label", audio.paused ? "Play" : "Pause");
}

for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, showPlay);
audio.addEventListener("timeupdate", () => { if (audio.currentTime > end) { audio.pause(); end = Infinity; } });
audio.addEventListener("error", () => {
  $("playing").textContent = "The recording is not where it was, or this browser cannot play it.";
});
$("play").addEventListener("click", toggle);
$("close").addEventListener("click", () => {
  audio.pause();
  hide($("player"));
  document.querySelector(".hit-row.on")?.focus({ preventScroll: true });
});

/* ---------- keyboard ---------- */

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || composes(event)) return;
  const typing = event.target.closest("input, select");
  if (event.key === "/" && !typing) $("query").focus();
  else if (event.key === "Escape" && $("query").value) { $("query").value = ""; search(); $("query").focus(); }
  else if (event.key === " " && !typing && !event.target.closest("button, a")) toggle();
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !event.target.closest("select")) {
    const stops = [...document.querySelectorAll("#found:not([hidden]) .hit-row, #all:not([hidden]) #rows a")];
    const at = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    if (at < 0) $("query").focus(); else stops[Math.min(at, stops.length - 1)]?.focus();
  } else return;
  event.preventDefault();
});
