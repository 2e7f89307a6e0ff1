// @ts-check
/* The dialog that gives transcripts away as files: formats by what they are for, options, a preview; of one recording
   or of several. What it was asked last it offers again. */
import { isolated, make, press, toast, wordsOf } from "../editor/dom.js";
import { keep, kept } from "../editor/storage.js";
import { request, RequestError } from "./request.js";

/** @typedef {{ word: string, label: string, purpose: string, shows: string }} FormatAbout `shows`: the options it follows */
/** @typedef {{ id: string, name: string, folder?: string }} Exported */
/**
 * What is to be exported. `recordings`: several can be chosen from; `ready` is waited for before anything is exported.
 * @typedef {{ formats: readonly FormatAbout[], recordings: readonly Exported[], ready?: () => Promise<unknown> }} Wish
 */
/**
 * What somebody chose.
 * @typedef {{ formats: string[], sound: boolean, names: string, times: string, fillers: string, pauses: string, hidden: string }} Chosen
 */

const KEPT = "witness-export";
const USUAL = { formats: ["docx"], sound: false, names: "keep", times: "", fillers: "", pauses: "", hidden: "" };
const AS_IT_IS = "as in the transcript";
/** @type {Record<string, readonly [string, string, readonly [string, string][]]>} Option -> label, what it needs, choices */
const SELECTS = {
  names: ["Speakers", "", [["keep", "with their names"], ["anonymous", "P01, P02 … instead of names"], ["drop", "not named"]]],
  times: ["Times", "times", [["", AS_IT_IS], ["keep", "shown"], ["drop", "left out"]]],
  fillers: ["Um, uh, ähm, euh", "fillers", [["", AS_IT_IS], ["keep", "shown"], ["drop", "left out"]]],
  pauses: ["Pauses", "pauses", [["", AS_IT_IS], ["0", "not marked"], ["0.5", "from half a second on"], ["1", "from 1 second on"],
    ["2", "from 2 seconds on"]]],
};

/** The options as the server takes them. @param {Chosen} chosen */
export function optionsOf({ names, times, fillers, pauses, hidden }) {
  const words = names === "anonymous" ? hidden.split(",").map((word) => word.trim()).filter(Boolean) : [];
  return {
    names,
    ...(times && { times }),
    ...(fillers && { fillers }),
    ...(pauses && { pauses: Number(pauses) }),
    ...(words.length && { hidden: words }),
  };
}

/** @returns {Partial<Chosen>} */
function lastTime() {
  try { return JSON.parse(kept(KEPT) ?? "{}"); } catch { return {}; }
}

/** @param {Wish} wish */
export function openExport({ formats, recordings, ready }) {
  const chosen = { ...USUAL, ...lastTime() };
  chosen.formats = chosen.formats.filter((word) => formats.some((form) => form.word === word));
  if (!chosen.formats.length) chosen.formats = [formats[0].word];
  const several = recordings.length > 1;
  const ids = new Set(several ? [] : [recordings[0].id]);

  const dialog = make("dialog", "export"), form = make("form"), title = make("h2", "", "Export");
  form.method = "dialog";
  title.id = "exporting-title";
  dialog.setAttribute("aria-labelledby", title.id);
  const go = button("main", "Export"), cancel = button("flat", "Cancel");
  const trouble = make("p", "trouble"), shown = make("pre", "preview");
  trouble.setAttribute("role", "status");
  shown.tabIndex = 0;
  shown.dir = "auto";
  shown.setAttribute("role", "region");
  shown.setAttribute("aria-label", "Preview");

  function update() {
    keep(KEPT, JSON.stringify({ ...chosen, hidden: "" })); // those words are nobody's business
    const files = ids.size * (chosen.formats.length + Number(chosen.sound));
    go.textContent = files > 1 ? `Export ${files} files` : "Export";
    go.disabled = files === 0;
    trouble.textContent = ids.size ? "" : "Choose recordings.";
    for (const [name, row] of rows) row.hidden = !isOf(name);
    showPreview();
  }
  /** Whether an option matters for what is chosen. @param {string} name */
  const isOf = (name) => (name === "hidden" ? chosen.names === "anonymous"
    : !SELECTS[name][1] || chosen.formats.some((word) => formats.find((one) => one.word === word)?.shows.includes(SELECTS[name][1])));

  let waiting = 0, asked = 0;
  function showPreview() {
    clearTimeout(waiting);
    asked += 1;
    const mine = asked, [id] = ids, [format] = chosen.formats;
    if (!id || !format) { shown.textContent = ""; return; }
    waiting = setTimeout(async () => {
      try {
        const said = await request(`/t/${id}/preview`, { format, options: optionsOf(chosen) });
        if (mine === asked) shown.textContent = said.text;
      } catch (error) {
        if (mine === asked) shown.textContent = wordsOf(error);
      }
    }, 200);
  }

  /** @type {Map<string, HTMLElement>} */
  const rows = new Map();
  const about = make("fieldset");
  about.append(make("legend", "", "Options"));
  for (const [name, [label, , choices]] of Object.entries(SELECTS)) {
    const select = make("select");
    for (const [value, text] of choices) select.append(new Option(text, value));
    select.value = chosen[/** @type {"names"} */ (name)];
    select.addEventListener("change", () => { chosen[/** @type {"names"} */ (name)] = select.value; update(); });
    rows.set(name, labeled(label, select));
  }
  const hidden = make("input");
  hidden.value = chosen.hidden;
  hidden.dir = "auto";
  hidden.addEventListener("input", () => { chosen.hidden = hidden.value; update(); });
  rows.set("hidden", labeled("Leave out, too: places, names (with commas between them)", hidden));
  about.append(...rows.values(), checkbox("The sound, as MP3; a tone covers names that are left out", chosen.sound, (on) => {
    chosen.sound = on;
    update();
  }));

  form.append(title);
  if (several) form.append(choiceOf(recordings, ids, update));
  form.append(formatList(formats, chosen, update), about, shown, trouble);
  const row = make("p", "row");
  row.append(cancel, go);
  form.append(row);
  cancel.addEventListener("click", () => dialog.close());
  press(go, async () => {
    go.textContent = "Working…";
    try {
      await ready?.();
      const order = { ids: [...ids], formats: chosen.formats, sound: chosen.sound, options: optionsOf(chosen) };
      if (!dialog.open) return;
      await fetchFile("/api/export", order);
      dialog.close();
    } catch (error) {
      trouble.textContent = wordsOf(error);
      go.textContent = "Try again";
    }
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); go.click(); });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append(form);
  document.body.append(dialog);
  update();
  dialog.showModal();
}

/** @param {string} kind @param {string} text */
function button(kind, text) {
  const made = make("button", kind, text);
  made.type = "button";
  return made;
}

/** @param {string} text @param {HTMLElement} field */
function labeled(text, field) {
  const label = make("label");
  label.append(make("span", "", text), field);
  return label;
}

/** @param {string} text @param {boolean} on @param {(on: boolean) => void} changed */
function checkbox(text, on, changed) {
  const label = make("label", "check"), box = make("input");
  box.type = "checkbox";
  box.checked = on;
  box.addEventListener("change", () => changed(box.checked));
  const words = make("span", "", text);
  words.dir = "auto";
  label.append(box, words);
  return label;
}

/** The formats, by what they are for. @param {readonly FormatAbout[]} formats @param {Chosen} chosen @param {() => void} update */
function formatList(formats, chosen, update) {
  const all = make("div", "formats");
  for (const purpose of new Set(formats.map((one) => one.purpose))) {
    const group = make("fieldset");
    group.append(make("legend", "", purpose));
    for (const one of formats.filter((form) => form.purpose === purpose)) {
      group.append(checkbox(`${one.word} – ${one.label}`, chosen.formats.includes(one.word), (on) => {
        chosen.formats = chosen.formats.filter((word) => word !== one.word);
        if (on) chosen.formats.unshift(one.word); // what was chosen last is what one looks at
        update();
      }));
    }
    all.append(group);
  }
  return all;
}

/** @param {readonly Exported[]} recordings @param {Set<string>} ids @param {() => void} update */
function choiceOf(recordings, ids, update) {
  const group = make("fieldset");
  group.append(make("legend", "", "Recordings"));
  const list = make("div", "of-recordings");
  const boxes = recordings.map((one) => checkbox([one.folder, one.name].filter(Boolean).join("/"), false, (on) => {
    if (on) ids.add(one.id); else ids.delete(one.id);
    update();
  }));
  list.append(...boxes);
  const filter = make("input");
  filter.type = "search";
  filter.placeholder = "Filter by name";
  filter.setAttribute("aria-label", "Filter by name");
  const fits = (/** @type {number} */ n) => (boxes[n].textContent ?? "").toLowerCase().includes(filter.value.trim().toLowerCase());
  filter.addEventListener("input", () => boxes.forEach((box, n) => { box.hidden = !fits(n); }));
  const every = checkbox("All that are shown", false, (on) => {
    boxes.forEach((box, n) => {
      if (!fits(n)) return;
      const field = box.querySelector("input");
      if (field) field.checked = on;
      if (on) ids.add(recordings[n].id); else ids.delete(recordings[n].id);
    });
    update();
  });
  group.append(filter, every, list);
  return group;
}

/** Ask for a file, and give it to the person. @param {string} address @param {unknown} body */
async function fetchFile(address, body) {
  let answer;
  try {
    answer = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new RequestError("the server does not answer", 0);
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new RequestError(said.error?.message ?? `the server answered ${answer.status}`, answer.status);
  }
  const a = make("a");
  a.href = URL.createObjectURL(await answer.blob());
  a.download = nameIn(answer.headers.get("Content-Disposition") ?? "");
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
  toast(`Exported ${isolated(a.download)}`);
}

/** The name of a file in the header that brings it. @param {string} header */
export function nameIn(header) {
  const coded = /filename\*=UTF-8''([^;]+)/.exec(header)?.[1];
  return coded ? decodeURIComponent(coded) : /filename=([^;]+)/.exec(header)?.[1] ?? "transcript";
}
