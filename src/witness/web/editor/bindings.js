// @ts-check
/* The person's own keys, and those that foot pedals send: chord -> command. The browser keeps them. */
import { keep, kept } from "./storage.js";

const KEY = "witness-own-keys";
/** Keys that are needed for writing a text. */
const TAKEN = ["Enter", "Backspace", "Delete", "Tab", "Escape", "Space", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
const MODIFIER = /^(Control|Shift|Alt|Meta|OS|AltGraph|CapsLock|Fn)(Left|Right)?$/;

/** @typedef {{ code: string, key: string, ctrlKey: boolean, altKey: boolean, shiftKey: boolean, metaKey: boolean }} Pressed */

/** Return the name of a key, by its place on a keyboard; "": it cannot be taken. @param {Pressed} event */
export function chord({ code, key, ctrlKey, altKey, shiftKey, metaKey }) {
  const name = code && code !== "Unidentified" ? code : key;
  const held = [ctrlKey && "Ctrl", altKey && "Alt", shiftKey && "Shift", metaKey && "Meta"].filter(Boolean);
  if (!name || name === "Unidentified" || MODIFIER.test(name) || (TAKEN.includes(name) && !held.some((one) => one !== "Shift"))) return "";
  return [...held, name.replace(/^(Key|Digit)(?=.$)/, "")].join("+");
}

/** Return whether a key writes a letter in a field. @param {Pressed} event */
export const writes = ({ key, ctrlKey, altKey, metaKey }) => [...key].length === 1 && !ctrlKey && !altKey && !metaKey;

/** @returns {Map<string, string>} chord -> command */
function read() {
  try {
    const found = Object.entries(JSON.parse(kept(KEY) ?? "{}"));
    return new Map(found.filter(([one, command]) => one && typeof command === "string"));
  } catch {
    return new Map();
  }
}

const own = read();

/** The command of a key, or undefined. @param {Pressed} event */
export const commandOf = (event) => own.get(chord(event));

/** The keys of a command. @param {string} command */
export const keysOf = (command) => [...own].filter(([, other]) => other === command).map(([one]) => one);

/** Give a key to a command alone. @param {string} command @param {string} one */
export function bind(command, one) {
  own.set(one, command);
  keep(KEY, JSON.stringify(Object.fromEntries(own)));
}

/** Take all keys from a command. @param {string} command */
export function release(command) {
  for (const one of keysOf(command)) own.delete(one);
  keep(KEY, own.size ? JSON.stringify(Object.fromEntries(own)) : null);
}
