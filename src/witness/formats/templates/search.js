/* Search in all words, including those that are not in the document, and replace what was found. */

let hits = []; // [first, last] in reading order
let hitNow = -1; // the one that is shown
let haystack = null; // {text, at}: all words in lower case, and where in it each of them begins

function index() {
  const at = new Float64Array(order.length + 1);
  const parts = [];
  let length = 0, paragraph = -1;
  order.forEach((w, n) => {
    let text = texts[w].toLocaleLowerCase();
    if (paragraphOf[w] !== paragraph) {
      paragraph = paragraphOf[w];
      text = `\n${text.trimStart()}`;
    }
    at[n] = length + text.length - text.trimStart().length;
    parts.push(text);
    length += text.length;
  });
  at[order.length] = length;
  haystack = { text: parts.join(""), at };
}

function search(fresh = true) {
  const wanted = $("query").value.trim().toLocaleLowerCase().replace(/\s+/g, " ");
  const before = hitNow;
  hits = [];
  hitNow = -1;
  haystack = fresh ? haystack : null;
  if (wanted) {
    if (!haystack) index();
    for (let at = haystack.text.indexOf(wanted); at >= 0; at = haystack.text.indexOf(wanted, at + 1)) {
      const first = Math.max(0, above(haystack.at, at, order.length) - 1);
      const end = Math.max(first, above(haystack.at, at + wanted.length - 1, order.length) - 1);
      if (!hits.length || hits[hits.length - 1][1] < first) hits.push([first, end]);
    }
    if (!fresh) hitNow = Math.min(before, hits.length - 1);
  }
  for (const id of ["next", "previous", "replace", "replace-all"]) enable($(id), hits.length > 0);
  showHits(wanted);
  if (fresh) {
    paint();
    drawTimeline();
  }
}

function showHits(wanted = $("query").value.trim()) {
  $("hits").textContent = !wanted ? "" : !hits.length ? "no match"
    : hitNow < 0 ? `${hits.length}` : `${hitNow + 1} of ${hits.length}`;
}

/** The match that the word at a place of the reading order belongs to, or -1. */
function hitAt(at) {
  let low = 0, high = hits.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (hits[middle][1] < at) low = middle + 1; else high = middle;
  }
  return low < hits.length && hits[low][0] <= at ? low : -1;
}

function goTo(step) {
  if (!hits.length) return;
  if (hitNow >= 0) { showHit(hitNow + step); return; }
  const here = above(words.start, position);
  const next = Math.max(0, hits.findIndex(([first]) => order[first] >= here - 1));
  showHit(step < 0 ? next - 1 : next);
}

function showHit(n) {
  hitNow = (n + hits.length) % hits.length;
  const w = order[hits[hitNow][0]];
  bringIntoView(blockOf[w]);
  reveal(w, true);
  showHits();
  paint();
  drawTimeline();
}

let typed = 0;
$("query").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => { typed = 0; search(); goTo(1); }, 150);
});

/** Search now for what was typed a moment ago. */
function settle() {
  if (!typed) return;
  clearTimeout(typed);
  typed = 0;
  search();
}
$("search").addEventListener("submit", (event) => event.preventDefault());
$("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !composes(event)) { event.preventDefault(); goTo(event.shiftKey ? -1 : 1); }
});
$("search").addEventListener("keydown", (event) => { if (event.key === "Escape" && !composes(event)) closeSearch(); });

function openSearch() {
  $("search").hidden = false;
  $("find").setAttribute("aria-expanded", "true");
  drawTimeline(); // the bar is higher now
  $("query").select();
}

function closeSearch() {
  $("query").value = "";
  search();
  $("search").hidden = true;
  $("find").setAttribute("aria-expanded", "false");
  drawTimeline();
  main.focus({ preventScroll: true });
}

/* ---------- replacing ---------- */

const wordsOf = (text) => text.split(/\s+/).filter(Boolean);

/** The corrections that replace the wanted text within a match; none if they would change nothing. */
function replacing([first, end], pattern, by) {
  const list = order.slice(first, end + 1);
  const before = list.map((w) => texts[w]).join("").trim();
  const after = before.replace(pattern, () => by).trim();
  const each = wordsOf(after);
  if (after === before || checkText(after)) return [];
  const alike = each.length === list.length && list.every((w) => wordsOf(texts[w]).length === 1);
  if (!alike) return [{ kind: "text", text: after, pieces: piecesOf(list) }];
  return list.map((w, n) => [w, each[n]]).filter(([w, text]) => text !== texts[w].trim())
    .map(([w, text]) => ({ kind: "text", text, pieces: piecesOf([w]) })); // each keeps its time
}

function replaceIn(matches) {
  const wanted = $("query").value.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+");
  const pattern = new RegExp(wanted, "giu");
  const made = matches.map((match) => replacing(match, pattern, $("by").value));
  const places = made.filter((one) => one.length).length;
  if (places) take(...made.flat());
  return places;
}

function replaceOne() {
  settle();
  if (hitNow < 0) { goTo(1); return; }
  const at = hitNow, before = hits.length;
  replaceIn([hits[at]]);
  if (hits.length) showHit(hits.length < before ? at : at + 1); // what was written may match again
}

$("replace").addEventListener("click", replaceOne);
$("replace-all").addEventListener("click", () => {
  settle();
  const places = replaceIn(hits);
  toast(places === 1 ? "Replaced in 1 place" : `Replaced in ${places} places`);
});
$("by").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !composes(event)) { event.preventDefault(); replaceOne(); }
});
$("find").addEventListener("click", () => { if ($("search").hidden) openSearch(); else closeSearch(); });
$("close-search").addEventListener("click", closeSearch);
$("next").addEventListener("click", () => goTo(1));
$("previous").addEventListener("click", () => goTo(-1));
