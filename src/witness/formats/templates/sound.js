/* The sound, and the position in it. */

const audio = new Audio();
let position = data.start; // ms in the recording, even without sound
let origin = 0; // where the sound begins in the recording
let playing = -1; // the word that is being spoken
let following = true; // scroll along with it
let hasSound = false;

/* While somebody presses on something, or clicks twice, the page does not scroll by itself: it would be on another word. */
let calm = 0; // until when, by performance.now()
window.addEventListener("pointerdown", (event) => { if (!event.button) calm = Infinity; }, true);
for (const event of ["pointerup", "pointercancel"]) {
  window.addEventListener(event, () => { calm = performance.now() + 500; }, true);
}

function openSound() {
  const embedded = $("sound");
  if (embedded) {
    const parts = [];
    const text = embedded.textContent;
    for (let from = 0; from < text.length; from += 1 << 20) {
      const piece = atob(text.slice(from, from + (1 << 20)));
      const bytes = new Uint8Array(piece.length);
      for (let n = 0; n < piece.length; n += 1) bytes[n] = piece.charCodeAt(n);
      parts.push(bytes);
    }
    audio.src = URL.createObjectURL(new Blob(parts, { type: "audio/webm; codecs=opus" }));
    embedded.remove();
    origin = data.start;
  } else if (data.link) {
    audio.src = data.link;
  }
  hasSound = Boolean(audio.src);
  audio.preload = "metadata";
  if (position > origin) audio.currentTime = (position - origin) / 1000;
  showSound();
  showPosition();
}

function showSound() {
  $("play").hidden = $("rate").parentElement.hidden = !hasSound;
  $("soundless").hidden = hasSound;
  const pause = hasSound && !audio.paused;
  $("play").classList.toggle("pause", pause);
  $("play").setAttribute("aria-label", pause ? "Pause" : "Play");
}

audio.addEventListener("error", () => {
  hasSound = false;
  $("soundless").textContent = desk ? desk.soundless : data.link
    ? `the recording is not at ${safely(data.link)}, or this browser cannot play it`
    : "this browser cannot play the sound";
  showSound();
});
for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, () => { showSound(); tick(); });
audio.addEventListener("seeked", tick);

function safely(url) {
  try { return decodeURIComponent(url); } catch { return url; }
}

function toggle() {
  if (!hasSound) return;
  following = true;
  if (audio.paused) audio.play().catch(() => {}); else audio.pause();
}

function seek(ms, play) {
  position = Math.min(Math.max(data.start, ms), data.end);
  following = true;
  if (hasSound) {
    audio.currentTime = (position - origin) / 1000;
    if (play) audio.play().catch(() => {});
  }
  showPosition();
}

/** The word that is spoken at a time; of several, the one that began last. */
function wordAt(ms) {
  const next = above(words.start, ms);
  for (let w = next - 1; w >= Math.max(0, next - 8); w -= 1) {
    if (place[w] >= 0 && ms < Math.max(words.end[w], words.start[w] + 1)) return w;
  }
  return -1;
}

function showPosition() {
  $("now").textContent = clock(position);
  const w = wordAt(position);
  if (w !== playing) {
    const before = playing;
    playing = w;
    for (const one of [before, w]) if (spans.has(one)) spans.get(one).className = classOf(one);
    if (w >= 0 && following && hasSound && !audio.paused && performance.now() > calm) reveal(w);
  }
  followTimeline();
  drawPlayhead();
}

let ticking = false;
function tick() {
  if (hasSound && !audio.seeking) position = audio.currentTime * 1000 + origin;
  if (position > data.end + 250 && !audio.paused) audio.pause(); // the recording goes on after the part
  showPosition();
  if (!audio.paused && !ticking) {
    ticking = true;
    requestAnimationFrame(() => { ticking = false; tick(); });
  }
}
