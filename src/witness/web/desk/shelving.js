// @ts-check
/* Changes of a recording: another name, folder or tags, the trash, and back. */
import { $, around, button, make, press, toast, wordsOf } from "../editor/dom.js";
import { request } from "./request.js";
import { counted, list, shown } from "./library.js";
/** @import { Recording } from "./rows.js" */

/** @type {Recording | null} */
let changing = null;

$("recordings").addEventListener("click", (event) => {
  const id = around(event, "[data-change]")?.dataset.change;
  const one = shown.recordings.find((row) => row?.id === id);
  if (!id || !one) return;
  changing = one;
  $("shelf-title").textContent = one.name;
  $("new-name").value = one.name;
  $("new-folder").value = one.folder;
  $("new-tags").value = (one.tags ?? []).join(", ");
  $("shelf-trouble").textContent = "";
  $("shelf").showModal();
  $("new-name").select();
});

/** @param {string} text */
const tagsIn = (text) => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];

$("shelf-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!changing) return;
  const before = changing.tags ?? [], now = tagsIn($("new-tags").value);
  const add = now.filter((tag) => !before.includes(tag)), remove = before.filter((tag) => !now.includes(tag));
  const name = $("new-name").value, folder = $("new-folder").value;
  try {
    if (add.length || remove.length) await request(`/api/recordings/${changing.id}/tags`, { add, remove });
    if (name !== changing.name || folder !== changing.folder) {
      const said = await request(`/api/recordings/${changing.id}/move`, { name, folder });
      if (said.name !== name.trim()) toast(`It is called ${said.name}.`);
    }
    $("shelf").close();
    setTimeout(list, 1000); // the tags are read
  } catch (error) {
    $("shelf-trouble").textContent = wordsOf(error);
  }
  list();
});

press($("throw"), async () => {
  if (!changing) return;
  try {
    await request(`/api/recordings/${changing.id}/delete`, {});
    toast(`${changing.name} is in the trash, and can be put back.`);
    $("shelf").close();
  } catch (error) {
    $("shelf-trouble").textContent = wordsOf(error);
  }
  list();
});

/* ---------- the trash ---------- */

/** @typedef {{ id: string, name: string, folder: string, date: string }} Thrown */

/** @type {Thrown[]} */
let thrown = [];

async function showTrash() {
  ({ trash: thrown } = await request("/api/trash"));
  $("trash-about").textContent = thrown.length ? counted(thrown.length, "recording") : "Nothing is in the trash.";
  $("empty-trash").hidden = !thrown.length;
  $("empty-trash").textContent = "Delete all for good…";
  delete $("empty-trash").dataset.sure;
  $("thrown").replaceChildren(...thrown.map(({ id, name, folder }) => make("li", "", [
    make("span", "name", [make("bdi", "", name), " ", make("bdi", "folder", folder)]),
    button("flat small", "Put back", async () => {
      await request(`/api/trash/${id}/restore`, {}).catch(toast);
      await showTrash();
      list();
    }, { ariaLabel: `Put back ${name}` }),
  ])));
}

press($("trash"), async () => { await showTrash(); $("trashed").showModal(); });
press($("empty-trash"), async () => {
  const { dataset } = $("empty-trash");
  if (!dataset.sure) {
    dataset.sure = "yes";
    $("empty-trash").textContent = `Delete ${counted(thrown.length, "recording")} for good: yes`;
    return;
  }
  await request("/api/trash/empty", { ids: thrown.map(({ id }) => id) }).catch(toast);
  await showTrash();
});
