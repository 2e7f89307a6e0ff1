/* The timeline: a lane per speaker, below the outline of the sound. */

const canvas = $("timeline"), pen = canvas.getContext("2d");
const backdrop = document.createElement("canvas"), ink = backdrop.getContext("2d"); // everything but the playhead
let peaks = data.peaks ? Uint8Array.from(atob(data.peaks), (sign) => sign.charCodeAt(0)) : null;
const AXIS = 16;
let view = [data.start, data.start + (duration || 1)];
let geometry = null;

function timelineLayout() {
  const width = canvas.clientWidth;
  const narrow = width < 600;
  const wave = peaks ? (narrow ? 26 : 36) : 0;
  const lane = Math.max(narrow ? 6 : 7, Math.min(16, Math.floor((narrow ? 84 : 132) / Math.max(1, speakers.length))));
  const label = narrow ? 26 : 104;
  const height = wave + (wave ? 6 : 0) + lane * speakers.length + AXIS + 2;
  const scale = window.devicePixelRatio || 1;
  for (const each of [canvas, backdrop]) {
    each.width = Math.round(width * scale);
    each.height = Math.round(height * scale);
  }
  canvas.style.height = `${height}px`;
  return { width, height, wave, lane, label, scale, narrow, right: 8, lanes: wave + (wave ? 6 : 0) };
}

function across(ms) {
  const { width, label, right } = geometry;
  return label + ((ms - view[0]) / (view[1] - view[0])) * (width - label - right);
}

function timeAcross(x) {
  const { width, label, right } = geometry;
  return view[0] + ((x - label) / (width - label - right)) * (view[1] - view[0]);
}

function stripes(color, paper) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = color;
  brush.fillRect(0, 0, 6, 6);
  brush.fillStyle = paper;
  brush.fillRect(0, 0, 2, 6);
  return ink.createPattern(tile, "repeat");
}

function drawTimeline() {
  geometry = canvas.clientWidth ? timelineLayout() : null; // nothing to draw on while printing
  if (!geometry) return;
  const { width, height, wave, lane, label, scale, lanes, right, narrow } = geometry;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const paper = color("--paper");
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.clearRect(0, 0, width, height);
  ink.save();
  ink.beginPath();
  ink.rect(label, 0, width - label - right, height);
  ink.clip();
  if (peaks) {
    ink.fillStyle = color("--wave");
    for (let x = label; x < width - right; x += 1) {
      const from = Math.floor(((timeAcross(x) - data.start) / duration) * peaks.length);
      const to = Math.max(from + 1, Math.ceil(((timeAcross(x + 1) - data.start) / duration) * peaks.length));
      let most = 0;
      for (let n = Math.max(0, from); n < Math.min(to, peaks.length); n += 1) most = Math.max(most, peaks[n]);
      const tall = Math.max(0.5, (most / 255) ** 0.75 * (wave / 2 - 1));
      ink.fillRect(x, wave / 2 - tall, 0.8, 2 * tall);
    }
  }
  speakers.forEach((_, row) => {
    ink.fillStyle = color("--lane");
    ink.fillRect(label, lanes + row * lane + 1, width - label - right, lane - 2);
  });
  const rows = new Map(speakers.map(({ who }, row) => [who, row]));
  const fills = new Map(speakers.map(({ who }) => {
    const plain = color(`--c${who % COLORS}`);
    return [who, Math.floor(who / COLORS) % 2 ? stripes(plain, paper) : plain];
  }));
  for (let turn = 0; turn < turns.start.length; turn += 1) {
    if (turns.end[turn] < view[0] || turns.start[turn] > view[1]) continue;
    const who = last(turns.speaker[turn]);
    const x = across(turns.start[turn]);
    ink.fillStyle = fills.get(who);
    ink.fillRect(x, lanes + rows.get(who) * lane + 1, Math.max(1, across(turns.end[turn]) - x), lane - 2);
  }
  ink.fillStyle = color("--mark");
  for (const [first] of hits) {
    const x = across(words.start[order[first]]);
    if (x >= label) ink.fillRect(x - 1, 0, 2, lanes + lane * speakers.length);
  }
  ink.restore();
  ink.textBaseline = "middle";
  ink.font = `${Math.min(11, lane)}px ${style.getPropertyValue("--sans")}`;
  speakers.forEach(({ who }, row) => {
    ink.fillStyle = color("--ink");
    let text = narrow ? initials(who) : nameOf(who);
    if (lane < 9 && row % 2) text = "";
    const letters = [...text];
    while (letters.length > 1 && ink.measureText(text).width > label - 12) {
      letters.pop();
      text = `${letters.join("")}…`;
    }
    ink.fillText(text, 0, lanes + row * lane + lane / 2 + 0.5);
  });
  drawAxis(color);
  document.documentElement.style.setProperty("--bar", `${barHeight()}px`);
  $("whole").textContent = ` / ${clock(data.end)}`;
  enable($("wider"), view[1] - view[0] < duration);
  drawPlayhead();
}

function drawAxis(color) {
  const { width, height, label, right } = geometry;
  const seconds = (view[1] - view[0]) / 1000;
  const most = Math.max(2, Math.floor((width - label - right) / 90));
  const sizes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];
  const step = (sizes.find((size) => seconds / size <= most) ?? 28800) * 1000;
  ink.fillStyle = color("--faint");
  ink.font = `10px ${color("--sans")}`;
  ink.textBaseline = "alphabetic";
  for (let ms = Math.ceil(view[0] / step) * step; ms <= view[1]; ms += step) {
    const x = across(ms);
    ink.fillRect(x, height - AXIS, 1, 4);
    const text = data.end >= 3600000 ? clock(ms) : clock(ms).slice(3);
    if (x + ink.measureText(text).width < width) ink.fillText(text, x + 3, height - 3);
  }
}

function drawPlayhead() {
  if (!geometry) return;
  const { width, height, scale, label, right } = geometry;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(backdrop, 0, 0);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const x = across(position);
  if (x >= label - 1 && x <= width - right + 1) {
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue("--accent");
    pen.fillRect(x - 1, 0, 2, height - AXIS + 2);
    pen.beginPath();
    pen.arc(x, 3, 3.5, 0, 7);
    pen.fill();
  }
  canvas.setAttribute("aria-valuemax", Math.round(data.end / 1000));
  canvas.setAttribute("aria-valuenow", Math.round(position / 1000));
  canvas.setAttribute("aria-valuetext", clock(position));
}

/** The names of those who speak at a time. */
function talking(ms) {
  const who = new Set();
  for (let turn = 0; turn < turns.start.length && turns.start[turn] <= ms; turn += 1) {
    if (turns.end[turn] > ms) who.add(last(turns.speaker[turn]));
  }
  return [...who].map(nameOf);
}

function zoom(factor, center = position) {
  const least = Math.min(duration, 10000);
  const size = Math.min(duration, Math.max(least, (view[1] - view[0]) * factor));
  const share = Math.min(1, Math.max(0, (center - view[0]) / (view[1] - view[0])));
  const start = Math.min(Math.max(data.start, center - share * size), data.end - size);
  view = [start, start + size];
  drawTimeline();
}

function followTimeline() {
  if (position >= view[0] && position <= view[1]) return;
  const size = view[1] - view[0];
  const start = Math.min(Math.max(data.start, position - 0.1 * size), data.end - size);
  view = [start, start + size];
  drawTimeline();
}

let pressed = null; // the position before
canvas.addEventListener("pointerdown", (event) => {
  if (event.button) return; // a menu comes up
  pressed = position;
  canvas.setPointerCapture(event.pointerId);
  seek(timeAcross(event.offsetX), false);
});
canvas.addEventListener("pointermove", (event) => {
  const ms = timeAcross(event.offsetX);
  const hint = $("hint");
  hint.hidden = ms < view[0] || ms > view[1];
  if (!hint.hidden) {
    hint.textContent = [clock(ms), ...talking(ms)].join(" · ");
    hint.style.left = `${Math.min(event.offsetX, geometry.width - hint.offsetWidth - 4)}px`;
  }
  if (pressed !== null) seek(ms, false);
});
canvas.addEventListener("pointerup", () => {
  if (pressed === null) return;
  pressed = null;
  unchoose();
  if (hasSound) audio.play().catch(() => {});
  showMoment(false);
});
canvas.addEventListener("pointercancel", () => { // a finger scrolls the page
  if (pressed !== null) seek(pressed, false);
  pressed = null;
});
canvas.addEventListener("pointerleave", () => { $("hint").hidden = true; });
canvas.addEventListener("wheel", (event) => {
  if (event.ctrlKey) {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, timeAcross(event.offsetX));
  } else if (event.deltaX || event.shiftKey) {
    event.preventDefault();
    const size = view[1] - view[0];
    const step = ((event.deltaX || event.deltaY) / geometry.width) * size;
    const start = Math.min(Math.max(data.start, view[0] + step), data.end - size);
    view = [start, start + size];
    drawTimeline();
  }
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const jump = { ArrowLeft: -5, ArrowRight: 5, ArrowDown: -5, ArrowUp: 5, PageDown: -60, PageUp: 60 }[event.key];
  if (event.key === "Home") seek(data.start);
  else if (event.key === "End") seek(data.end);
  else if (jump) seek(position + jump * 1000);
  else return;
  showMoment(false);
  event.preventDefault();
  event.stopPropagation();
});
