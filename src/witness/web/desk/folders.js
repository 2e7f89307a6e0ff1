// @ts-check
/* The recordings among the files of folders that are dropped or chosen. */

/** Return whether something in a dropped folder is hidden, by its path from there, as "talks/monday/a.wav": its own name, or that
    of a folder on the way. macOS puts "._a.wav" beside a.wav.
    @param {string} path */
export function isHidden(path) {
  return path.split("/").slice(1).some((name) => name.startsWith("."));
}

/**
 * Return the files with one of these endings, in the order in which people list them.
 * @template {{ name: string }} Named
 * @param {readonly Named[]} files
 * @param {ReadonlySet<string>} endings
 */
export function recordingsIn(files, endings) {
  const found = files.filter((file) => endings.has(file.name.split(".").at(-1)?.toLowerCase() ?? ""));
  return found.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

/** The files of an entry and of all folders below it that are not hidden; `unread` gets the names of those that cannot be read.
    @param {FileSystemEntry} entry @param {string[]} unread @returns {Promise<File[]>} */
export async function below(entry, unread) {
  if (isHidden(entry.fullPath.slice(1))) return [];
  /** @type {FileSystemEntry[]} */
  const found = [];
  try {
    if (entry.isFile) {
      const one = /** @type {FileSystemFileEntry} */ (entry);
      return [await new Promise((done, failed) => { one.file(done, failed); })];
    }
    const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
    for (;;) { // it gives a hundred at a time
      /** @type {FileSystemEntry[]} */
      const some = await new Promise((done, failed) => { reader.readEntries(done, failed); });
      if (!some.length) break;
      found.push(...some);
    }
  } catch {
    unread.push(entry.name);
  }
  return (await Promise.all(found.map((one) => below(one, unread)))).flat();
}
