// @ts-check
/* The dialog in which a person gives a key, or a pedal, to a command. */
import { bind, chord, keysOf, release } from "./bindings.js";
import { $, make } from "./dom.js";
import { commands } from "./keys.js";

/** The command that waits for a key. @type {string | null} */
let waiting = null;

function show() {
  const rows = commands.map(({ name, label }) => {
    const keys = keysOf(name), wait = waiting === name;
    const text = wait ? "Press a key or a pedal…" : keys.join(", ") || "None";
    return make("li", "row", [
      make("span", "name", label),
      make("button", "flat", text, { dataset: { command: name }, ariaLabel: `${label}: ${text}`, ariaPressed: String(wait) }),
      ...(keys.length ? [make("button", "flat small", "×", { dataset: { release: name }, ariaLabel: `${label}: no key of your own` })] : []),
    ]);
  });
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset : {};
  const name = focused.command ?? focused.release;
  $("own-list").replaceChildren(...rows);
  const again = $("own-list").querySelector(`[data-command="${name}"]`);
  if (again instanceof HTMLElement) again.focus();
}

/** @param {string} text */
function say(text) { $("own-about").textContent = text; }

const USUAL = $("own-about").textContent;

$("own-open").addEventListener("click", () => {
  $("keys").close();
  waiting = null;
  say(USUAL);
  show();
  $("own-keys").showModal();
});

$("own-list").addEventListener("click", (event) => {
  const at = event.target instanceof HTMLElement ? event.target.dataset : {};
  if (at.release) release(at.release);
  waiting = at.command && at.command !== waiting ? at.command : null;
  show();
});

$("own-keys").addEventListener("keydown", (event) => {
  if (waiting === null) return;
  event.stopPropagation();
  if (event.key === "Escape") { event.preventDefault(); waiting = null; say(USUAL); show(); return; }
  const one = chord(event);
  if (/^(Control|Shift|Alt|Meta)/.test(event.key)) return; // and the key that comes with it
  event.preventDefault();
  if (!one) { say("That key is needed for writing; take another one, or one with Ctrl or Alt."); return; }
  bind(waiting, one);
  waiting = null;
  say(USUAL);
  show();
});
$("own-keys").addEventListener("cancel", (event) => { if (waiting !== null) event.preventDefault(); });
