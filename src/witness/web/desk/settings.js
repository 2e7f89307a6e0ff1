// @ts-check
/* The settings of a transcription: language, model, speakers, channels, vocabulary. */
import { make, wordsOf } from "../editor/dom.js";
import { labeled, menu, showDialog } from "./forms.js";
import { request } from "./request.js";

/**
 * The differences from the desk's own settings, as work/overrides.py reads them.
 * @typedef {{ language?: string, whisper?: string, speakers?: number, channels?: string, vocabulary?: string[] }} Settings
 */

/** Of recordings that are added in this tab. */
export const forNew = { settings: /** @type {Settings} */ ({}) };

const CHANNELS = [["", "as at the desk"], ["auto", "split the sides of a call"], ["mix", "mix them"], ["split", "each for itself"]];

/** Ask for settings, and do something with them; an error is shown, and asked again.
    @param {{ title: string, about: string, go: string, before: Settings, done: (settings: Settings) => Promise<unknown> | void }} question */
export async function openSettings({ title, about, go, before, done }) {
  const choices = await request("/api/choices");
  const languages = Object.entries(/** @type {Record<string, string>} */ (choices.languages)).sort((a, b) => (a[1] < b[1] ? -1 : 1));
  const language = menu([["", "as at the desk"], ["any", "whichever is heard"], ...languages], before.language ?? "");
  const model = menu([["", "as at the desk"], ...choices.models.map((/** @type {any} */ one) => [one.name,
    `${one.name}${one.english ? " (English only)" : ""}${one.here ? "" : `, ${one.megabytes} MB to fetch`}`])], before.whisper ?? "");
  const speakers = make("input", "", "", {
    type: "number", min: "1", max: "10000", placeholder: "as many as there seem to be", value: String(before.speakers ?? ""),
  });
  const channels = menu(CHANNELS, before.channels ?? "");
  const terms = make("textarea", "", "", { rows: 4, dir: "auto", value: (before.vocabulary ?? []).join("\n") });
  const trouble = make("p", "trouble", "", { role: "alert" });
  const form = make("form", "", [
    make("p", "quiet", about), labeled("Language", language), labeled("Model", model), labeled("Number of speakers", speakers),
    labeled("Channels", channels), labeled("Names and terms, one a line", terms), trouble,
    make("p", "row", [make("button", "flat", "Cancel", { dataset: { close: "" } }), make("button", "main", go, { type: "submit" })]),
  ]);
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
  const dialog = showDialog(title, form);
}

/** Return settings in a few words. @param {Settings} settings */
export function aboutSettings({ language, whisper, speakers, channels, vocabulary }) {
  return [language, whisper, speakers && `${speakers} speakers`, channels, vocabulary && `${vocabulary.length} terms`].filter(Boolean).join(", ");
}
