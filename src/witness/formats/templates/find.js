/* The voice of the selected words, and the person in all recordings. A name is given only where somebody
   confirms it. */

const named = new Map(); // transcript -> its version since a speaker was named from here

async function askVoice(list) {
  if (!list.length) { toast("Select what one person says, 10 seconds or more."); return; }
  const who = owner[list[0]];
  let wanted = null;
  await ask("Whose voice is this?", "Name", who < 0 ? "" : names[who] ?? "", (text) => {
    wanted = checkName(text);
    return wanted === null ? BAD_NAME : null;
  });
  if (wanted === null) return;
  const start = words.start[list[0]] / 1000, end = Math.max(...list.map((w) => words.end[w])) / 1000;
  try {
    await call("voice", { name: wanted, start, end });
    await findPerson(wanted);
  } catch (error) {
    toast(error.message);
  }
}

/** Look for a person whose voice is known, and list the recordings as they are found. */
async function findPerson(name) {
  const dialog = $("found"), about = $("found-about"), people = $("people");
  const stop = new AbortController();
  $("found-title").textContent = `Where is ${name}?`;
  about.textContent = "Looking…";
  people.replaceChildren();
  dialog.onclose = () => stop.abort();
  dialog.showModal();
  let count = 0;
  try {
    const answer = await fetch(`voice?name=${encodeURIComponent(name)}`, { signal: stop.signal });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const { found, seen, total, left } = JSON.parse(line);
        if (found) { count += 1; people.append(personIn(found, name)); }
        const missing = left ? ` ${left} could not be searched.` : "";
        about.textContent = seen === undefined ? about.textContent
          : seen < total ? `${seen} of ${total} recordings searched, ${count} found`
            : `${count || "None"} of ${total} ${total === 1 ? "recording" : "recordings"}.${missing}`;
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") about.textContent = error.message;
  }
}

function personIn(found, name) {
  const item = make("li");
  const text = make("span", "name");
  const open = make("a", "", found.recording);
  open.href = `../${found.id}/#t=${found.start.toFixed(1)}`;
  open.target = "_blank";
  open.dir = "auto";
  text.append(open, make("br"), make("span", "quiet", found.likely));
  item.append(text);
  if (found.called === name) { item.append(make("span", "quiet", "has this name")); return item; }
  const button = make("button", "flat", `Name ${found.called} so`);
  button.type = "button";
  button.title = `Call ${found.called} “${name}” in this recording`;
  press(button, async () => {
    try {
      await settled();
      const seen = named.get(found.id) ?? (found.id === served.id ? version : found.version);
      const said = await call(`../${found.id}/name`, { version: seen, speaker: found.speaker, name });
      named.set(found.id, said.version); // another speaker of it may be the same person
      if (found.id === served.id) $("found").addEventListener("close", leave, { once: true });
      const done = make("span", "quiet", "named");
      done.tabIndex = -1;
      button.replaceWith(done);
      done.focus();
    } catch (error) {
      toast(error.message);
    }
  });
  item.append(button);
  return item;
}
