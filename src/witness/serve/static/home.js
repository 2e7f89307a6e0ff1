// @ts-check
/* The page with all recordings. */
import "../../formats/web/colors.js";
import "./dropping.js";
import "./replacing.js";
import { $ } from "../../formats/web/dom.js";
import { listen } from "./jobs.js";
import { list } from "./library.js";
import { search } from "./passages.js";

document.addEventListener("visibilitychange", () => {
  listen();
  if (document.visibilityState === "visible") list();
});

const given = new URLSearchParams(location.hash.slice(1));
// What is in a field by now was typed while the page loaded.
$("query").value ||= given.get("q") ?? "";
$("speaker").value ||= given.get("speaker") ?? "";
list().then(() => { document.documentElement.dataset.ready = "yes"; });
if ($("query").value || $("speaker").value) search();
listen();
