// @ts-check
/* With what a recording is transcribed: language, model, speakers, channels, vocabulary. */
import { make, press, wordsOf } from "../editor/dom.js";
import { request } from "./request.js";

/**
 * What differs from the desk's own settings, as work/overrides.py reads it.
 * @typedef {{ language?: string, whisper?: string, speakers?: number, channels?: string, vocabulary?: string[] }} Settings
 */

/** Of recordings that are added in this tab. */
export const forNew = { settings: /** @type {Settings} */ ({}) };

const CHANNELS = [["", "as at the desk"], ["auto", "split the sides of a call"], ["mix", "mix them"], ["split", "each for itself"]];

/** @param {string} text @param {HTMLElement} field */
function labeled(text, field) {
  const label = make("label");
  label.append(make("span", "", text), field);
  return label;
}

/** @param {readonly string[][]} choices @param {string} value */
function selectOf(choices, value) {
  const select = make("select");
  for (const [word, text] of choices) select.append(new Option(text, word));
  select.value = value;
  return select;
}

/**
 * Ask for settings, and do something with them; what that raises is shown, and asked again.
 * @param {{ title: string, about: string, go: string, before: Settings, done: (settings: Settings) => Promise<unknown> | void }} wanted
 */
export async function openSettings({ title, about, go, before, done }) {
  const said = await request("/api/choices");
  const dialog = make("dialog", "export"), form = make("form"), head = make("h2", "", title);
  head.id = "settings-title";
  dialog.setAttribute("aria-labelledby", head.id);
  const names = Object.entries(/** @type {Record<string, string>} */ (said.languages)).sort((a, b) => (a[1] < b[1] ? -1 : 1));
  const language = selectOf([["", "as at the desk"], ["any", "whichever is heard"], ...names], before.language ?? "");
  const model = selectOf([["", "as at the desk"], ...said.models.map((/** @type {any} */ one) => [one.name,
    `${one.name}${one.english ? " (English only)" : ""}${one.here ? "" : `, ${one.megabytes} MB to fetch`}`])], before.whisper ?? "");
  const speakers = make("input");
  speakers.type = "number";
  speakers.min = "1";
  speakers.max = "10000";
  speakers.placeholder = "as many as there seem to be";
  speakers.value = String(before.speakers ?? "");
  const channels = selectOf(CHANNELS, before.channels ?? "");
  const terms = make("textarea");
  terms.rows = 4;
  terms.dir = "auto";
  terms.value = (before.vocabulary ?? []).join("\n");
  const trouble = make("p", "trouble"), row = make("p", "row"), cancel = make("button", "flat", "Cancel"), yes = make("button", "main", go);
  trouble.setAttribute("role", "alert");
  cancel.type = "button";
  cancel.addEventListener("click", () => dialog.close());
  row.append(cancel, yes);
  form.append(head, make("p", "quiet", about), labeled("Language", language), labeled("Model", model),
    labeled("Number of speakers", speakers), labeled("Channels", channels), labeled("Names and terms, one a line", terms), trouble, row);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const vocabulary = terms.value.split("\n").map((term) => term.trim()).filter(Boolean);
    try {
      await done({
        ...(language.value && { language: language.value }),
        ...(model.value && { whisper: model.value }),
        ...(speakers.value && { speakers: Number(speakers.value) }),
        ...(channels.value && { channels: channels.value }),
        ...(vocabulary.length && { vocabulary }),
      });
      dialog.close();
    } catch (error) {
      trouble.textContent = wordsOf(error);
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
}

/** In a few words. @param {Settings} settings */
export function aboutSettings(settings) {
  const { language, whisper, speakers, channels, vocabulary } = settings;
  return [language, whisper, speakers && `${speakers} speakers`, channels, vocabulary && `${vocabulary.length} terms`].filter(Boolean).join(", ");
}

/** A button that does something once it is pressed. @param {string} text @param {() => unknown} does */
export function small(text, does) {
  const button = make("button", "flat small", text);
  button.type = "button";
  press(button, does);
  return button;
}
