// @ts-check
/* The dialog that gives transcripts away as files: formats by what they are for, options, a preview; of one recording
   or of several. It offers the latest choice again. */
import { isolated, make, press, toast, wordsOf } from "../editor/dom.js";
import { keep, kept } from "../editor/storage.js";
import { labeled, menu, showDialog } from "./forms.js";
import { fetchAnswer, request } from "./request.js";

/** @typedef {{ word: string, label: string, purpose: string, shows: string }} FormatAbout `shows`: the options it follows */
/** @typedef {{ id: string, name: string, folder?: string }} Exported */
/**
 * The wish for an export. `recordings`: several can be chosen from; `ready` is waited for before anything is exported.
 * @typedef {{ formats: readonly FormatAbout[], recordings: readonly Exported[], ready?: () => Promise<unknown> }} Wish
 */
/**
 * The person's choice.
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

  const go = make("button", "main", "Export"), trouble = make("p", "trouble", "", { role: "status" });
  const shown = make("pre", "preview", "", { tabIndex: 0, dir: "auto", role: "region", ariaLabel: "Preview" });

  function update() {
    keep(KEPT, JSON.stringify({ ...chosen, hidden: "" })); // those words stay secret
    const files = ids.size * (chosen.formats.length + Number(chosen.sound));
    go.textContent = files > 1 ? `Export ${files} files` : "Export";
    go.disabled = files === 0;
    trouble.textContent = ids.size ? "" : "Choose recordings.";
    for (const [name, row] of rows) row.hidden = !isOf(name);
    showPreview();
  }
  /** Return whether an option matters for the choice. @param {string} name */
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

  const rows = new Map(Object.entries(SELECTS).map(([option, [label, , choices]]) => {
    const name = /** @type {"names"} */ (option), select = menu(choices, chosen[name]);
    select.addEventListener("change", () => { chosen[name] = select.value; update(); });
    return [option, labeled(label, select)];
  }));
  const hidden = make("input", "", "", { value: chosen.hidden, dir: "auto" });
  hidden.addEventListener("input", () => { chosen.hidden = hidden.value; update(); });
  rows.set("hidden", labeled("Leave out, too: places, names (with commas between them)", hidden));
  const sound = checkbox("The sound, as MP3; a tone covers names that are left out", chosen.sound, (on) => {
    chosen.sound = on;
    update();
  });
  const form = make("form", "", [
    ...(several ? [choiceOf(recordings, ids, update)] : []), formatList(formats, chosen, update),
    make("fieldset", "", [make("legend", "", "Options"), ...rows.values(), sound]), shown, trouble,
    make("p", "row", [make("button", "flat", "Cancel", { dataset: { close: "" } }), go]),
  ]);
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
  update();
  const dialog = showDialog("Export", form);
}

/** @param {string} text @param {boolean} on @param {(on: boolean) => void} changed */
function checkbox(text, on, changed) {
  const box = make("input", "", "", { type: "checkbox", checked: on, onchange: () => changed(box.checked) });
  return make("label", "check", [box, make("span", "", text, { dir: "auto" })]);
}

/** The formats, by what they are for. @param {readonly FormatAbout[]} formats @param {Chosen} chosen @param {() => void} update */
function formatList(formats, chosen, update) {
  const boxOf = (/** @type {FormatAbout} */ { word, label }) => checkbox(`${word} – ${label}`, chosen.formats.includes(word), (on) => {
    chosen.formats = chosen.formats.filter((other) => other !== word);
    if (on) chosen.formats.unshift(word); // the preview shows the latest choice
    update();
  });
  const purposes = [...new Set(formats.map((format) => format.purpose))];
  return make("div", "formats", purposes.map((purpose) => make("fieldset", "", [
    make("legend", "", purpose), ...formats.filter((format) => format.purpose === purpose).map(boxOf),
  ])));
}

/** @param {readonly Exported[]} recordings @param {Set<string>} ids @param {() => void} update */
function choiceOf(recordings, ids, update) {
  const choose = (/** @type {string} */ id, /** @type {boolean} */ on) => { if (on) ids.add(id); else ids.delete(id); };
  const boxes = recordings.map(({ id, folder, name }) => checkbox([folder, name].filter(Boolean).join("/"), false, (on) => {
    choose(id, on);
    update();
  }));
  const filter = make("input", "", "", { type: "search", placeholder: "Filter by name", ariaLabel: "Filter by name" });
  const fits = (/** @type {HTMLElement} */ box) => (box.textContent ?? "").toLowerCase().includes(filter.value.trim().toLowerCase());
  filter.addEventListener("input", () => boxes.forEach((box) => { box.hidden = !fits(box); }));
  const every = checkbox("All that are shown", false, (on) => {
    boxes.forEach((box, n) => {
      if (!fits(box)) return;
      const field = box.querySelector("input");
      if (field) field.checked = on;
      choose(recordings[n].id, on);
    });
    update();
  });
  return make("fieldset", "", [make("legend", "", "Recordings"), filter, every, make("div", "of-recordings", boxes)]);
}

/** Ask for a file, and give it to the person. @param {string} address @param {unknown} body */
async function fetchFile(address, body) {
  const answer = await fetchAnswer(address, body);
  const a = make("a", "", "", {
    href: URL.createObjectURL(await answer.blob()), download: nameIn(answer.headers.get("Content-Disposition") ?? ""),
  });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
  toast(`Exported ${isolated(a.download)}`);
}

/** The name of a file in the header that brings it. @param {string} header */
export function nameIn(header) {
  const coded = /filename\*=UTF-8''([^;]+)/.exec(header)?.[1];
  return coded ? decodeURIComponent(coded) : /filename=([^;]+)/.exec(header)?.[1] ?? "transcript";
}
