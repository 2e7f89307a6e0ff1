// @ts-check
/* A page that is a file of its own. */
import { start } from "./main.js";

start(null);
