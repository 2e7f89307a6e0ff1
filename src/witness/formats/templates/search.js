/* Search in all words, also those that are not in the document. */

let found = []; // [first, last] reading places
let foundNow = -1;
let haystack = null; // {text, at}: everything in small letters, and where each reading place begins

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

function search(anew = true) {
  const wanted = $("query").value.trim().toLocaleLowerCase().replace(/\s+/g, " ");
  const before = foundNow;
  found = [];
  foundNow = -1;
  haystack = anew ? haystack : null;
  if (wanted) {
    if (!haystack) index();
    for (let at = haystack.text.indexOf(wanted); at >= 0; at = haystack.text.indexOf(wanted, at + 1)) {
      const first = Math.max(0, above(haystack.at, at, order.length) - 1);
      const end = Math.max(first, above(haystack.at, at + wanted.length - 1, order.length) - 1);
      if (!found.length || found[found.length - 1][1] < first) found.push([first, end]);
    }
    if (!anew) foundNow = Math.min(before, found.length - 1);
  }
  $("next").disabled = $("previous").disabled = !found.length;
  showHits(wanted);
  if (anew) {
    paint();
    drawTimeline();
  }
}

function showHits(wanted = $("query").value.trim()) {
  $("hits").textContent = !wanted ? "" : !found.length ? "none"
    : foundNow < 0 ? `${found.length}` : `${foundNow + 1} of ${found.length}`;
}

/** The match that a reading place belongs to, or -1. */
function hitAt(at) {
  let low = 0, high = found.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (found[middle][1] < at) low = middle + 1; else high = middle;
  }
  return low < found.length && found[low][0] <= at ? low : -1;
}

function goTo(step) {
  if (!found.length) return;
  if (foundNow < 0) {
    const here = above(words.start, position);
    foundNow = found.findIndex(([first]) => order[first] >= here - 1);
    if (foundNow < 0) foundNow = 0;
    if (step < 0) foundNow = (foundNow - 1 + found.length) % found.length;
  } else {
    foundNow = (foundNow + step + found.length) % found.length;
  }
  const w = order[found[foundNow][0]];
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
