/* Corrections: steps that are taken and undone, dialogs, and the list of speakers. */

/* ---------- corrections ---------- */

function take(...made) {
  if (steps.length < saved) lost = true;
  steps.push(made);
  undone = [];
  if (made.every((one) => one.kind === "name")) relabel(); else refresh();
}

function undo() {
  if (!steps.length) return;
  undone.push(steps.pop());
  refresh();
  toast("Undone");
}

function redo() {
  if (!undone.length) return;
  steps.push(undone.pop());
  refresh();
  toast("Redone");
}

function save() {
  if (desk) { desk.save(); return; }
  download();
}

/** Give the corrections away as a file. */
function download() {
  if (!steps.length) return;
  const file = new Blob([correctionsFile()], { type: "application/json" });
  const a = make("a");
  a.href = URL.createObjectURL(file);
  a.download = `${data.title.replace(/[^\p{L}\p{N}._ -]/gu, "_").slice(0, 100)}.corrections.json`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
  saved = steps.length;
  lost = false;
  keepDraft();
  $("save").classList.remove("main");
  toast(`Saved. To apply: witness redo TRANSCRIPT.json --corrections "${a.download}" -f html`);
}

window.addEventListener("beforeunload", (event) => {
  if (unsaved() && !draftIsKept) event.preventDefault();
});

/** The name as Witness accepts it, or null. */
function checkName(text) {
  const name = text.normalize("NFC").trim();
  const bad = !name || [...name].length > LONGEST_NAME || /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(name);
  return bad ? null : name;
}
const BAD_NAME = `A name has 1 to ${LONGEST_NAME} printable characters.`;

/** What is wrong with a text that somebody wrote, or null. */
function checkText(text) {
  const bad = [...text].length > LONGEST_TEXT || /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text);
  return bad ? `No more than ${LONGEST_TEXT} characters, and no line breaks.` : null;
}

function rename(who, text) {
  const name = checkName(text);
  if (name === null) return BAD_NAME;
  if (name !== names[who]) take({ kind: "name", who, name });
  return null;
}

async function askName(who) {
  await ask(`Who is ${nameOf(who)}?`, "Name in the whole transcript", names[who] ?? "",
    (text) => rename(who, text));
}

async function askMerge(who) {
  const others = speakers.filter((one) => one.who !== who);
  if (!others.length) { toast("There is no other speaker to merge with."); return; }
  const other = await pick(`Who is the same person as ${nameOf(who)}?`, "They become one speaker.",
    others.map((one) => speakerChoice(one.who)));
  if (other === null) return;
  const made = [{ kind: "merge", who: other, gone: who }];
  // Of two names Witness takes the later one: say which.
  if (names[other]) made.push({ kind: "name", who: other, name: names[other] });
  take(...made);
}

function speakerChoice(who) {
  return { value: who, who, label: nameOf(who) };
}

async function askMove(list, title) {
  if (!list.length) { toast("There are no words to give to another speaker."); return; }
  const now = new Set(list.map((w) => owner[w]));
  const others = speakers.filter((one) => now.size > 1 || !now.has(one.who));
  const who = await pick(title, shortened(list.map((w) => texts[w]).join("").trim()),
    [...others.map((one) => speakerChoice(one.who)), NEW_SPEAKER]);
  if (who !== null) await move(list, who);
}

/** Give words to a speaker, maybe a new one, together with what was done to them before. */
async function move(list, who, ...before) {
  const pieces = piecesOf(list);
  if (who !== NEW) take(...before, { kind: "move", who, pieces });
  else {
    const name = await askNew();
    if (name === null) return;
    const fresh = countAll(steps.flat()); // others may have added somebody meanwhile
    take(...before, { kind: "new", who: fresh, pieces }, ...(name ? [{ kind: "name", who: fresh, name }] : []));
  }
  const w = list.find((one) => place[one] >= 0);
  if (w !== undefined) reveal(w);
}

const NEW = -2;
const NEW_SPEAKER = { value: NEW, label: "A new speaker…" };

/** The name of a new speaker, "" for none; null: there is to be no new speaker. */
async function askNew() {
  let name = null;
  await ask("Who is the new speaker?", "Name; leave it empty if you do not know it", "", (text) => {
    if (text.trim() && checkName(text) === null) return BAD_NAME;
    name = text.trim() && checkName(text);
    return null;
  });
  return name;
}

/** Write what was said in speech without words. */
async function fillIn(paragraph) {
  let text = "";
  await ask("What was said?", `${clock(paragraph.start)} to ${clock(paragraph.end)}`, "", (given) => {
    const trouble = checkText(given.trim());
    if (!trouble) text = given.trim();
    return trouble;
  });
  if (!text) return;
  const made = { kind: "fill", gap: paragraph.gap, text };
  const w = gapWord[paragraph.gap];
  if (paragraph.who < 0) {
    const who = await pick("Who said it?", shortened(text), [...speakers.map((one) => speakerChoice(one.who)), NEW_SPEAKER]);
    if (who === null) return;
    await move([w], who, made);
  } else {
    take(made);
  }
  if (place[w] >= 0) choose(place[w]);
}

async function fix() {
  let list = chosenWords();
  if (!list.length && playing >= 0) list = [playing];
  const here = paragraphs[paragraphNow()];
  if (!list.length && here && !here.words.length && here.gap >= 0) { await fillIn(here); return; }
  if (!list.length) { toast("Select a word first: click it, or use the arrow keys."); return; }
  list = list.filter((w) => paragraphOf[w] === paragraphOf[list[0]]);
  const before = list.map((w) => texts[w]).join("").trim();
  await ask("What was said?", "Leave it empty if nothing was said.", before, (given) => {
    const text = given.trim();
    const trouble = checkText(text);
    if (trouble) return trouble;
    if (text !== before) take({ kind: "text", text, pieces: piecesOf(list) });
    if (place[list[0]] >= 0) choose(place[list[0]]);
    return null;
  });
}

async function speakerMenu(number) {
  const paragraph = paragraphs[number];
  const who = paragraph.who;
  const choices = [];
  if (!paragraph.words.length && paragraph.gap >= 0) choices.push({ value: "fill", label: "Write what was said…" });
  if (who >= 0) {
    choices.push({ value: "name", label: `Rename ${nameOf(who)} everywhere…` });
    if (speakers.length > 1) choices.push({ value: "merge", label: `Merge ${nameOf(who)} with…` });
  }
  if (paragraph.words.length) {
    for (const one of speakers) {
      if (one.who !== who) {
        choices.push({ ...speakerChoice(one.who), label: `${nameOf(one.who)} said this paragraph` });
      }
    }
    choices.push({ ...NEW_SPEAKER, label: "A new speaker said this paragraph…" });
  }
  if (!choices.length) { toast("No single speaker talks for most of this time."); return; }
  const done = await pick(`${speakerOf(paragraph)}, ${clock(paragraph.start)}`, "", choices);
  if (done === "fill") await fillIn(paragraph);
  else if (done === "name") await askName(who);
  else if (done === "merge") await askMerge(who);
  else if (done !== null) await move(paragraph.words, done);
}

/* ---------- dialogs ---------- */

/* An answer counts at once, so that the next key finds it done. The event `close` comes a moment later, and
   where the dialog is open again by then, for the next question, it is not about that one. */

function pick(title, about, choices) {
  const dialog = $("choose"), list = $("choices");
  $("choose-title").textContent = title;
  $("choose-about").textContent = about;
  list.replaceChildren();
  return new Promise((done) => {
    choices.forEach((choice, n) => {
      const button = make("button", "choice");
      button.type = "button";
      const label = make("span", "name", choice.label);
      label.dir = "auto";
      if (choice.who !== undefined) button.append(chip(choice.who));
      button.append(label);
      if (n < 9) button.append(make("kbd", "", n + 1));
      press(button, () => { dialog.close(); done(choice.value); });
      const item = make("li");
      item.append(button);
      list.append(item);
    });
    dialog.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return; // which with a number is another tab of the browser
      const buttons = [...list.querySelectorAll("button")];
      const at = buttons.indexOf(document.activeElement);
      if (/^[1-9]$/.test(event.key)) buttons[event.key - 1]?.click();
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

function ask(title, label, value, accept) {
  const dialog = $("ask"), answer = $("answer");
  $("ask-title").textContent = title;
  $("ask-label").textContent = label;
  $("ask-trouble").textContent = "";
  answer.value = value;
  const focus = focusing();
  return new Promise((done) => {
    dialog.querySelector("form").onsubmit = (event) => {
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
  dialog.querySelector("[data-close]")?.addEventListener("click", () => dialog.close());
  // Beside the dialog: not at its edge, and not where a text that is selected inside ends.
  const beside = ({ clientX, clientY }) => {
    const box = dialog.getBoundingClientRect();
    return clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom;
  };
  let began = false;
  dialog.addEventListener("pointerdown", (event) => { began = beside(event); });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && began && beside(event)) dialog.close();
  });
}

/* ---------- speakers ---------- */

function showSpeakers() {
  showIn($("speakers"), speakers, (one) => one.who, speakerItem, (item, { who, seconds, share }) => {
    const { mark, name, merge, filled, about } = item.parts;
    mark.textContent = initials(who);
    name.textContent = nameOf(who);
    name.setAttribute("aria-label", `Rename ${nameOf(who)}`);
    merge.hidden = speakers.length < 2;
    merge.setAttribute("aria-label", `Merge ${nameOf(who)} with another speaker`);
    filled.style.width = `${(100 * share).toFixed(1)}%`;
    about.textContent = `${Math.round(100 * share)} % · ${span(seconds)}`;
  });
  $("speakers-title").textContent = speakers.length === 1 ? "1 speaker" : `${speakers.length} speakers`;
}

/** The item of a speaker, without what may change. */
function speakerItem({ who }) {
  const item = make("li", look(who));
  const row = make("div", "row");
  const mark = chip(who);
  const name = make("button", "name");
  name.type = "button";
  name.dir = "auto";
  name.title = who < data.speakers.length ? `Rename (${data.speakers[who][0]} in the files)` : "Rename";
  name.addEventListener("click", () => renameHere(name, who));
  const merge = make("button", "flat small", "merge");
  merge.type = "button";
  merge.title = "Merge with another speaker";
  merge.addEventListener("click", () => askMerge(who));
  row.append(mark, name, merge);
  const bar = make("div", "share");
  const filled = make("span");
  bar.append(filled);
  const about = make("p", "quiet");
  item.append(row, bar, about);
  item.parts = { mark, name, merge, filled, about };
  return item;
}

function renameHere(button, who) {
  const field = make("input", "name");
  field.value = names[who] ?? "";
  field.placeholder = nameOf(who);
  field.dir = "auto";
  field.setAttribute("aria-label", `Name of ${nameOf(who)}`);
  const before = field.value;
  let done = false;
  const finish = (keep) => {
    if (done) return;
    done = true;
    const trouble = keep && field.value.trim() && field.value !== before ? rename(who, field.value) : null;
    if (trouble) toast(trouble);
    field.replaceWith(button);
  };
  field.addEventListener("keydown", (event) => {
    if (composes(event)) return;
    const saving = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s"; // this name, too
    if (!saving && event.key !== "Enter" && event.key !== "Escape") return;
    if (!saving) event.preventDefault(); // or Enter would press the button that gets the focus
    if (event.key === "Enter" && field.value.trim() && checkName(field.value) === null) { toast(BAD_NAME); return; }
    finish(event.key !== "Escape");
    button.focus();
  });
  // Whom somebody else has merged meanwhile is not here any more, and the name is nobody else's.
  field.addEventListener("blur", () => finish(speakers.some((one) => one.who === who)));
  button.replaceWith(field);
  field.select();
  field.focus();
}
