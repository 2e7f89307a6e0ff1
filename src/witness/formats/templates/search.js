/* Search in all words, including those that are not in the document. */

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
  $("next").disabled = $("previous").disabled = !hits.length;
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
  if (hitNow < 0) {
    const here = above(words.start, position);
    hitNow = hits.findIndex(([first]) => order[first] >= here - 1);
    if (hitNow < 0) hitNow = 0;
    if (step < 0) hitNow = (hitNow - 1 + hits.length) % hits.length;
  } else {
    hitNow = (hitNow + step + hits.length) % hits.length;
  }
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
  typed = setTimeout(() => { search(); goTo(1); }, 150);
});
$("search").addEventListener("submit", (event) => event.preventDefault());
$("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); goTo(event.shiftKey ? -1 : 1); }
  if (event.key === "Escape") { $("query").value = ""; search(); main.focus({ preventScroll: true }); }
});
$("next").addEventListener("click", () => goTo(1));
$("previous").addEventListener("click", () => goTo(-1));
