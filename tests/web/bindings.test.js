/* What keys and pedals are called. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bind, chord, commandOf, keysOf, release, writes } from "../../src/witness/web/editor/bindings.js";

const none = { code: "", key: "", ctrlKey: false, altKey: false, shiftKey: false, metaKey: false };
const key = (code, name = code, held = {}) => ({ ...none, code, key: name, ...held });

test("a key is called by its place, with what is held; a pedal without a place by its name", () => {
  assert.equal(chord(key("KeyQ", "й")), "Q");
  assert.equal(chord(key("F13")), "F13");
  assert.equal(chord(key("", "MediaPlayPause")), "MediaPlayPause");
  assert.equal(chord(key("Unidentified", "LaunchMail")), "LaunchMail");
  assert.equal(chord(key("Digit1", "!", { ctrlKey: true, shiftKey: true })), "Ctrl+Shift+1");
  assert.equal(chord(key("Enter", "Enter", { altKey: true })), "Alt+Enter");
});

test("what is needed for writing, and what is only held, cannot be taken", () => {
  for (const one of ["Enter", "Backspace", "Tab", "Escape", "Space", "ArrowUp", "ShiftLeft", "ControlRight", "AltGraph"]) {
    assert.equal(chord(key(one)), "", one);
  }
  assert.equal(chord(key("ArrowLeft", "ArrowLeft", { shiftKey: true })), "", "it selects");
  assert.equal(chord(none), "");
  assert.ok(writes(key("KeyQ", "q")) && !writes(key("F4")) && !writes(key("KeyQ", "q", { ctrlKey: true })));
});

test("a key has one command, and a command may lose its keys", () => {
  bind("play", "F4");
  bind("play", "F13");
  bind("loop", "F4");
  assert.deepEqual([keysOf("play"), keysOf("loop")], [["F13"], ["F4"]]);
  assert.equal(commandOf(key("F13")), "play");
  release("play");
  assert.equal(commandOf(key("F13")), undefined);
  assert.equal(commandOf(key("F4")), "loop");
});
