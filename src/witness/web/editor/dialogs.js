// @ts-check
/* Dialogs. An answer counts at once, so that the next key finds it done. The event `close` comes a moment later, and
   where the dialog is open again by then, for the next question, it is not about that one. */
import { $, button, make, placeIn } from "./dom.js";
import { chip } from "./names.js";
import { focusing } from "./text.js";

/**
 * Let the person choose. Returns the chosen value, or null.
 * @template Value
 * @param {string} title
 * @param {string} about
 * @param {readonly { value: Value, label: string, who?: number }[]} choices `who`: the speaker whose color is shown
 * @returns {Promise<Value | null>}
 */
export function pick(title, about, choices) {
  const dialog = $("choose"), list = $("choices");
  $("choose-title").textContent = title;
  $("choose-about").textContent = about;
  return new Promise((done) => {
    list.replaceChildren(...choices.map(({ value, label, who }, n) => {
      const choice = button("choice", "", () => { dialog.close(); done(value); });
      if (who !== undefined) choice.append(chip(who));
      choice.append(make("span", "name", label, { dir: "auto" }));
      if (n < 9) choice.append(make("kbd", "", String(n + 1)));
      return make("li", "", [choice]);
    }));
    dialog.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return; // which with a number is another tab of the browser
      const buttons = list.querySelectorAll("button");
      const at = placeIn(buttons, document.activeElement);
      if (/^[1-9]$/.test(event.key)) buttons[Number(event.key) - 1]?.click();
      else if (event.key === "ArrowDown") buttons[(at + 1) % buttons.length]?.focus();
      else if (event.key === "ArrowUp") buttons[(at - 1 + buttons.length) % buttons.length]?.focus();
      else return;
      event.preventDefault();
    };
    dialog.onclose = () => { if (!dialog.open) done(null); };
    dialog.showModal();
    list.querySelector("button")?.focus();
  });
}

/** Let the person write. `accept` takes the answer and returns its fault, or null.
    @param {string} title @param {string} label @param {string} value @param {(text: string) => string | null} accept
    @returns {Promise<void>} */
export function ask(title, label, value, accept) {
  const dialog = $("ask"), answer = $("answer"), form = $("ask-form");
  $("ask-title").textContent = title;
  $("ask-label").textContent = label;
  $("ask-trouble").textContent = "";
  answer.value = value;
  const focus = focusing();
  return new Promise((done) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      const trouble = accept(answer.value);
      $("ask-trouble").textContent = trouble ?? "";
      if (trouble) return;
      dialog.close();
      focus(); // what had it may have been made anew
      done();
    };
    dialog.onclose = () => { if (!dialog.open) done(); };
    dialog.showModal();
    answer.select();
  });
}

for (const dialog of document.querySelectorAll("dialog")) {
  // Beside the dialog: not at its edge, and not where a text that is selected inside ends.
  const beside = (/** @type {MouseEvent} */ { clientX, clientY }) => {
    const box = dialog.getBoundingClientRect();
    return clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom;
  };
  let began = false;
  dialog.addEventListener("pointerdown", (event) => { began = beside(event); });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && began && beside(event)) dialog.close();
  });
}
