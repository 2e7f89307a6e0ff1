"""Faults put into the code on purpose: python tests/fuzz/mutations.py [--first 0] [--count 60] [--check]

Each is put into a copy of `src`, on which the named tests run. A fault that they do not notice is printed,
and the exit code is 1 if there are more than five of these in all 60. A fault whose old text is not in its
file, or more than once, ends the run: put it where the code is now. `--check` looks for that alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MOST_SURVIVORS = 5


class Mutation(NamedTuple):
    """A fault, and the tests that notice it."""

    file: str
    old: str
    new: str
    tests: str
    """Files or tests below `tests`, without the ending of the file."""


POWER = "test_power::test_a_power_cut_loses_nothing_that_was_acknowledged"
SECURITY = "test_serve_security::test_"
ROLES = "test_serve_roles::test_"
STORE = "test_store::test_"
TAKES = "test_serve_takes::test_"
SENT = "test_serve_recordings::test_"
NAMES = "test_anonymous"
FAULTS = "test_survivors::test_"

TABLE = (
    # durability
    Mutation("storage/atomic.py", "        os.fsync(file.fileno())\n", "", f"{POWER}[save]"),
    Mutation(
        "storage/atomic.py", "            os.fsync(descriptor)\n", "            pass\n", f"{POWER}[save]"
    ),
    Mutation(
        "storage/atomic.py",
        "        draft.discard()\n    sync(path.parent)\n",
        "        draft.discard()\n",
        f"{POWER}[files]",
    ),
    Mutation("storage/atomic.py", "        sync(folder.parent)\n", "        pass\n", f"{POWER}[trash]"),
    Mutation(
        "storage/atomic.py",
        "        sync(folder)\n\n\ndef _report",
        "        pass\n\n\ndef _report",
        f"{POWER}[files]",
    ),
    Mutation("storage/transaction.py", "            atomic.sync(scratch)\n", "", f"{POWER}[save]"),
    Mutation(
        "storage/transaction.py",
        "        atomic.unfinished.discard(scratch)\n        atomic.sync(folder)\n",
        "        atomic.unfinished.discard(scratch)\n",
        f"{POWER}[save]",
    ),
    Mutation(
        "storage/transaction.py",
        "    atomic.sync(folder)\n    if not left:\n",
        "    if not left:\n",
        f"{POWER}[save]",
    ),
    Mutation("storage/transaction.py", "        atomic.sync(gathered)\n", "", f"{POWER}[trash]"),
    Mutation(
        "storage/transaction.py",
        "    atomic.sync(folder)\n    atomic.sync(target.parent)\n",
        "    pass\n",
        f"{POWER}[trash]",
    ),
    Mutation(
        "storage/transaction.py",
        "        atomic.sync(folder)\n        with suppress(OSError):  # something",
        "        with suppress(OSError):  # something",
        f"{POWER}[trash]",
    ),
    Mutation(
        "storage/transaction.py",
        "            atomic.create(about, gathered / ABOUT, 0o600)\n",
        "            (gathered / ABOUT).write_bytes(about)\n",
        f"{POWER}[trash]",
    ),
    Mutation(
        "storage/checkpoint.py",
        "            os.fsync(self._file)\n",
        "            pass\n",
        f"{POWER}[journal]",
    ),
    Mutation("storage/checkpoint.py", "                atomic.sync(folder)\n", "", f"{POWER}[journal]"),
    Mutation("serve/uploads.py", "            os.fsync(self.file.fileno())\n", "", f"{POWER}[upload]"),
    Mutation("serve/queue.py", "            atomic.sync(self.folder)\n", "", f"{POWER}[upload]"),
    Mutation(
        "work/manifest.py",
        "                    os.fsync(descriptor)\n",
        "                    pass\n",
        f"{POWER}[upload]",
    ),
    Mutation(
        "serve/browser_recordings.py", "                os.fsync(file.fileno())\n", "", f"{POWER}[take]"
    ),
    Mutation(
        "serve/browser_recordings.py",
        'atomic.replace(name.encode(), takes / id_ / "name")',
        '(takes / id_ / "name").write_bytes(name.encode())',
        f"{POWER}[take]",
    ),
    Mutation("transcript/trash.py", "            atomic.sync(folder.parent)\n", "", f"{POWER}[trash]"),
    # locks, checkpoints, and files from elsewhere
    Mutation(
        "storage/transaction.py",
        "if taken and is_there(descriptor, path):",
        "if taken:",
        f"{FAULTS}a_lock_file_that_was_replaced_meanwhile_is_no_lock",
    ),
    Mutation(
        "storage/transaction.py",
        "and target.mode(arrival) is None:",
        "and True:",
        f"{FAULTS}files_on_their_way_replace_nothing",
    ),
    Mutation(
        "storage/files.py",
        "(0 if follow else os.O_NOFOLLOW)",
        "0",
        f"{STORE}what_a_stranger_left_half_saved_leads_nowhere",
    ),
    Mutation(
        "storage/transaction.py",
        "if not (stat.S_ISREG(source.mode(file) or 0) and _is_of(file, name)):",
        "if not stat.S_ISREG(source.mode(file) or 0):",
        f"{STORE}what_a_stranger_left_half_saved_leads_nowhere",
    ),
    Mutation(
        "storage/files.py",
        'flags | getattr(os, "O_NOFOLLOW", 0), mode)',
        "flags, mode)",
        f"{STORE}a_lock_that_is_a_link_is_refused",
    ),
    Mutation(
        "storage/checkpoint.py",
        "if len(kept) != size or sha256(record + kept).digest() != checksum:",
        "if len(kept) != size:",
        "test_journal::test_what_is_damaged_is_not_believed_and_written_anew",
    ),
    Mutation(
        "storage/checkpoint.py",
        "        os.ftruncate(file, end)\n",
        "",
        "test_journal::test_a_record_that_was_not_finished_is_cut_off",
    ),
    Mutation(
        "storage/checkpoint.py",
        "OLD = 7 * 86_400.0",
        "OLD = 700 * 86_400.0",
        f"{FAULTS}a_journal_is_kept_for_a_week",
    ),
    Mutation(
        "recognition/engine_client.py",
        "[*self._model, self.abilities.device, options,",
        "[*self._model, options,",
        f"{FAULTS}texts_of_another_device_or_version_are_not_taken",
    ),
    Mutation(
        "recognition/engine_client.py",
        "[model.sha256, self.name, _version(self.name), model.aligner]",
        "[model.sha256, self.name, model.aligner]",
        f"{FAULTS}texts_of_another_device_or_version_are_not_taken",
    ),
    Mutation(
        "transcript/trash.py",
        "    if not folder.resolve().is_relative_to(root):\n",
        "    if False:\n",
        f"{FAULTS}the_trash_puts_nothing_outside",
    ),
    Mutation(
        "transcript/trash.py",
        ' and ".." not in thrown.folder.split("/")',
        "",
        f"{FAULTS}the_trash_puts_nothing_outside",
    ),
    Mutation(
        "transcript/trash.py",
        "if thrown.id == folder.name and inside and Path(thrown.name).name == thrown.name:",
        "if thrown.id == folder.name and inside:",
        f"{FAULTS}the_trash_puts_nothing_outside",
    ),
    # who may do what
    Mutation(
        "serve/security.py",
        "        if begun is None:",
        "        if True:",
        f"{FAULTS}a_slow_body_is_timed_from_its_beginning",
    ),
    Mutation(
        "serve/security.py",
        "        if size > largest:\n",
        "        if False:\n",
        f"{SECURITY}an_endless_request_is_ended",
    ),
    Mutation(
        "serve/security.py",
        "        return len(self._tickets) < count\n",
        "        self._tickets.append(text)\n        return len(self._tickets) <= count\n",
        f"{SECURITY}a_ticket_opens_nothing_but_a_page_and_only_once",
    ),
    Mutation(
        "serve/security.py",
        "origin.lower() not in same and not guest",
        "False",
        f"{SECURITY}a_page_of_another_site_can_neither_read_nor_post",
    ),
    Mutation(
        "serve/security.py",
        "        if not self._is_here(host):\n",
        "        if False:\n",
        f"{SECURITY}a_name_that_was_made_to_lead_here_is_refused",
    ),
    Mutation(
        "serve/security.py",
        'httponly=True, samesite="strict"',
        'httponly=False, samesite="strict"',
        f"{SECURITY}a_ticket_becomes_a_cookie_that_is_not_the_token",
    ),
    Mutation(
        "serve/security.py",
        'getattr(route, "least", Role.WRITE)',
        'getattr(route, "least", Role.READ)',
        f"{ROLES}a_route_that_declares_no_right_is_for_those_who_may_write",
    ),
    Mutation(
        "serve/security.py",
        "return path if PAGES.fullmatch(path) else",
        "return path if path else",
        f"{SECURITY}a_person_may_give_the_token_on_a_page",
    ),
    Mutation("serve/roles.py", "& 0o077:", "& 0o007:", f"{FAULTS}tokens_that_a_group_can_read_are_refused"),
    Mutation("serve/roles.py", "SHORTEST = 16", "SHORTEST = 8", f"{FAULTS}a_token_has_16_characters"),
    Mutation(
        "serve/roles.py",
        "return order.index(self) >= order.index(least)",
        "return order.index(self) > order.index(least)",
        f"{ROLES}a_handler_runs_for_those_alone_who_have_the_right",
    ),
    Mutation(
        "serve/routes/transcripts.py",
        "if len(_watching) >= MOST_WATCHING:",
        "if len(_watching) > 100 * MOST_WATCHING:",
        f"{FAULTS}too_many_windows_are_refused",
    ),
    Mutation(
        "serve/browser_recordings.py", "MOST = 50", "MOST = 5000", f"{FAULTS}unfinished_recordings_are_few"
    ),
    Mutation(
        "serve/browser_recordings.py",
        '                raise OutputError("the disk is full;',
        '                print("the disk is full;',
        f"{TAKES}what_is_refused",
    ),
    Mutation(
        "serve/browser_recordings.py",
        "            files.refuse_link(path, folder)\n",
        "            pass\n",
        f"{TAKES}a_take_from_elsewhere_is_not_added_to",
    ),
    Mutation(
        "serve/uploads.py",
        "MOST_TEXT = 8 << 20",
        "MOST_TEXT = 8 << 30",
        f"{SENT}what_is_no_upload_leaves_nothing",
    ),
    Mutation(
        "serve/uploads.py",
        "            files.own_folder(self._uploads)",
        "            self._uploads.mkdir(exist_ok=True)",
        f"{SENT}a_folder_from_elsewhere_cannot_have_other_files_removed",
    ),
    Mutation(
        "serve/editing.py",
        "atomic.write(content, playable, private=True)",
        "atomic.write(content, playable)",
        f"{FAULTS}a_copy_that_browsers_play_is_private",
    ),
    Mutation(
        "serve/queue.py",
        "MOST_WAITING = 1000",
        "MOST_WAITING = 1_000_000",
        f"{FAULTS}recordings_that_wait_are_few",
    ),
    # what leaves, and what comes
    Mutation(
        "transcript/anonymous.py",
        "MARGIN = 0.15",
        "MARGIN = 0.0",
        f"{FAULTS}the_sound_around_a_name_is_covered",
    ),
    Mutation("transcript/anonymous.py", "SHORTEST = 2", "SHORTEST = 4", NAMES),
    Mutation(
        "transcript/anonymous.py",
        'audio=Source(title, audio.duration, audio.channels, "", audio.part)',
        "audio=Source(title, audio.duration, audio.channels, audio.sha256, audio.part)",
        "test_serve_export::test_no_byte_of_an_anonymous_export_identifies_anybody",
    ),
    Mutation("work/overrides.py", 'ANY = "any"', 'ANY = "all"', f"{FAULTS}any_is_the_word_for_any_language"),
    Mutation(
        "work/batch.py",
        "        if (size, mtime) != now:",
        "        if size != now[0]:",
        f"{FAULTS}a_recording_that_is_written_again_is_not_complete",
    ),
    Mutation(
        "work/manifest.py",
        ' and ".." not in path.parts',
        "",
        "test_batch::test_a_line_of_the_manifest_that_is_not_valid_is_dropped_and_named",
    ),
    Mutation(
        "models/download.py",
        "if stated != range_ or answer.length not in (None, size - have):",
        "if stated != range_:",
        f"{FAULTS}a_section_has_its_length",
    ),
    Mutation(
        "models/download.py",
        "            request.add_unredirected_header(",
        "            request.add_header(",
        "test_packages::test_passwords_go_to_the_index_alone_and_are_never_shown",
    ),
)


def fault(mutation: Mutation) -> str | None:
    """Return the reason why a mutation cannot be made; None: it can."""
    count = (ROOT / "src/witness" / mutation.file).read_text("utf-8").count(mutation.old)
    return None if count == 1 else f"{mutation.file}: {mutation.old.strip()[:60]!r} is there {count} times"


def is_caught(mutation: Mutation, folder: Path) -> bool:
    """Tell whether the tests notice a mutation. Raises RuntimeError if they cannot run."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "witness" / mutation.file
    path.write_text(path.read_text("utf-8").replace(mutation.old, mutation.new), "utf-8")
    file, _, test = mutation.tests.partition("::")
    tests = f"tests/{file}.py" + (f"::{test}" if test else "")
    run = partial(
        subprocess.run,
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", "", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    try:
        result = run()
    except subprocess.TimeoutExpired:  # a lock that is never taken
        return True
    if result.returncode not in (0, 1):
        raise RuntimeError(f"{tests} cannot run: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.returncode == 1


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=len(TABLE))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    chosen = TABLE[arguments.first :][: arguments.count]
    if stale := list(filter(None, map(fault, TABLE))):
        sys.stdout.write("".join(f"{line}\n" for line in stale))
        return 1
    survivors = []
    for number, mutation in enumerate(chosen if not arguments.check else (), arguments.first):
        with tempfile.TemporaryDirectory() as folder:
            if not is_caught(mutation, Path(folder)):
                survivors.append(number)
                sys.stdout.write(f"{number} survives: {mutation.file}: {mutation.old.strip()[:80]!r}\n")
                sys.stdout.flush()
    caught = 0 if arguments.check else len(chosen) - len(survivors)
    sys.stdout.write(json.dumps({"mutations": len(chosen), "caught": caught, "survivors": survivors}) + "\n")
    return int(len(survivors) > MOST_SURVIVORS)


if __name__ == "__main__":
    sys.exit(campaign())
