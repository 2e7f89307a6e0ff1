// @ts-check
/* Fields and dialogs that scripts make. */
import { make } from "../editor/dom.js";

/** Label a field. @param {string} text @param {HTMLElement} field */
export const labeled = (text, field) => make("label", "", [make("span", "", text), field]);

/** Make a menu of values and their texts. @param {readonly (readonly string[])[]} choices @param {string} value */
export function menu(choices, value) {
  const select = make("select", "", choices.map(([word, text]) => new Option(text, word)));
  select.value = value;
  return select;
}

/** Show a dialog, which is removed once it is closed. @param {string} title @param {HTMLElement} content @param {HTMLElement[]} more */
export function showDialog(title, content, ...more) {
  const head = make("h2", "", title, { id: "dialog-title" });
  const dialog = make("dialog", "export", [content, ...more]);
  content.prepend(head);
  dialog.setAttribute("aria-labelledby", head.id);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
