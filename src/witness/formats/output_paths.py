"""Files of results: their names, and checks before the work that they can be written and may be replaced.

Only a JSON file says whose transcript it is; the other formats beside it count as of the same transcript.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from witness._version import install
from witness.errors import OutputError, UsageError, WitnessError
from witness.formats.registry import Format
from witness.storage import atomic, files
from witness.storage.files import LONGEST_NAME

if TYPE_CHECKING:
    from witness.formats.json_document import DocumentHead

Targets = tuple[tuple[str, Path | None], ...]
"""Formats and their files; None: stdout."""


def plan(recording: str, formats: Sequence[str], output: str | None, *, spare: bool = False) -> Targets:
    """Return the files for `-f FORMATS -o OUTPUT`.

    In a folder they get the first of the `names` of the recording. If they `spare` results of other
    recordings, it is the first name that is free, and corrections of a person are not replaced.

    Raises UsageError if the request makes no sense, OutputError if stdout is closed, WitnessError if a format
    needs a library that is not installed.
    """
    formats = tuple(dict.fromkeys(formats))
    check_libraries(formats)
    if output is None or output == "-":
        return ((_check_stdout(formats), None),)
    if not output:
        raise UsageError("-o is empty; give a folder or a file")
    _check_ending(output)
    try:
        targets = _plan_files(recording, formats, output, spare)
        source = Path(recording)
        for _, file in targets:
            if recording != "-" and file.exists() and source.exists() and file.samefile(source):
                raise UsageError(f"{file}: is the recording itself; change -o")
    except OSError as error:
        raise OutputError(f"{output}: cannot be written ({error.strerror}); change -o") from error
    if spare and (loss := refuse_loss([file for _, file in targets])) is not None:
        raise UsageError(loss)
    return targets


def unusual_name(recording: str, output: str | None, targets: Targets) -> str | None:
    """Return a note about the name that `plan` chose; None: it is the usual one."""
    file = targets[0][1]
    usual = "stdin" if recording == "-" else names(Path(recording).name, recording)[0]
    if file is None or file == Path(output or "") or file.stem == usual:
        return None
    taken = file.with_name(f"{usual}{file.suffix}")
    return f"{taken} belongs to another recording; writing {file.name} instead (--force replaces it)"


def check_libraries(formats: Sequence[str]) -> None:
    """Raise WitnessError if one of the formats needs a library that is not installed."""
    for form in map(Format, formats):
        if not form.installed:
            about = form.about
            raise WitnessError(f"{form} needs {about.package}; fix: {install(about.extra)}")


def name_of(base: str | os.PathLike[str], form: str) -> str:
    """Return the name of a file: `base`, which has no ending, with that of the format."""
    return f"{os.fspath(base)}.{Format(form).ending}"


def format_of(name: str) -> Format | None:
    """Return the format that a file's name stands for; its longest ending counts."""
    named = [form for form in Format if name.lstrip(".").lower().endswith(f".{form.ending.lower()}")]
    return max(named, key=lambda form: len(form.ending), default=None)


def _check_stdout(formats: Sequence[str]) -> str:
    """Return the format for stdout. Raises UsageError, OutputError."""
    if len(formats) > 1:
        raise UsageError("several formats need a folder; give one with -o FOLDER")
    if sys.stdout is None:
        raise OutputError("stdout is closed; open it, or write a file with -o")
    form = formats[0] if formats else Format.TXT
    if Format(form).about.binary and sys.stdout.isatty():
        raise UsageError(f"{form} is not text, which a terminal could show; write it to a file with -o")
    return form


def _check_ending(output: str) -> None:
    """Raise UsageError for a file whose ending looks like an unknown format."""
    path = Path(output)
    looks = re.fullmatch(r"\.[a-z][a-z0-9]{1,4}", path.suffix, re.IGNORECASE | re.ASCII)
    if looks and format_of(path.name) is None and not path.exists() and not output.endswith(("/", os.sep)):
        raise UsageError(
            f"-o {output}: there is no format {path.suffix[1:]}; change -o to one of {', '.join(Format)}, or "
            f"to {output}{os.sep} for a folder"
        )


def _plan_files(
    recording: str, formats: tuple[str, ...], output: str, spare: bool
) -> tuple[tuple[str, Path], ...]:
    path = Path(output)
    named = format_of(path.name)
    planted = named is not None and path.is_symlink()  # a link to a folder, under the name of a result
    is_folder = (path.is_dir() and not planted) or output.endswith(("/", os.sep))
    if not is_folder and (named or path.exists()):
        if len(formats) > 1 or (formats and named and not _has_ending(path, formats[0])):
            raise UsageError(
                f"-o {output} is one file, but -f says {', '.join(formats)}; give a folder with -o"
            )
        form = formats[0] if formats else named or Format.TXT
        check_libraries([form])
        return ((form, path),)
    stems = ("stdin",) if recording == "-" else names(Path(recording).name, os.path.abspath(recording))  # noqa: PTH100
    forms = formats or (Format.TXT,)
    choices = [tuple((form, Path(name_of(path / stem, form))) for form in forms) for stem in stems]
    if not spare:
        return choices[0]
    free = (targets for targets in choices if _is_free([file for _, file in targets], recording))
    return next(free, choices[-1])


def _has_ending(path: Path, form: str) -> bool:
    return path.suffix.lower() == Path(name_of("x", form)).suffix.lower()


def names(path: str, source: str) -> tuple[str, str, str]:
    """Return possible names of a recording's results, without endings, the usual one first.

    `path` is its name, or its path in a tree of results, `source` its absolute path. All are short enough
    for any ending; the last belongs to no other recording.
    """
    digest = hashlib.sha256(os.fsencode(source)).hexdigest()[:8]
    whole = _shortened(path)
    return _shortened(os.path.splitext(path)[0]), whole, f"{whole}~{digest}"  # noqa: PTH122


def _shortened(path: str) -> str:
    """Return the path with a last part that leaves room for endings."""
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) > LONGEST_NAME:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        name = f"{os.fsencode(name)[: LONGEST_NAME - 9].decode('utf-8', 'ignore')}~{digest}"
    return os.path.join(folder, name)  # noqa: PTH118


def beside(path: Path) -> Path:
    """Return the path of the findings of a JSON file."""
    return path.with_name(f"{path.stem if path.suffix == '.json' else path.name}.findings.npz")


# --- checks ---


@contextmanager
def prepared(
    targets: Sequence[tuple[str, Path | None]], *, keep: bool = True, pipes: bool = True
) -> Iterator[None]:
    """Make the folder of the targets, and check that they can be written; remove it if the body fails.

    With `keep` the findings beside a JSON file are checked, too. A new folder for them is the user's alone,
    because they hold voices. Without `pipes`, a target must be a regular file or new. Raises OutputError.
    """
    paths = [path for _, path in targets if path is not None]
    json = [path for form, path in targets if form == Format.JSON and path is not None]
    made: tuple[Path, ...] = ()
    try:
        if paths:
            folder = paths[0].parent
            try:
                findings = [beside(path) for path in json if keep and not atomic.is_special(path)]
                made = tuple(parent for parent in (folder, *folder.parents) if not parent.exists())
                atomic.new_folders.update(made)
                atomic.make_folder(folder, 0o700 if findings else 0o777)
            except OSError as error:
                raise OutputError(f"{folder}: cannot be written ({error.strerror}); change -o") from error
            for path in paths:
                _check(path, pipes)
            for path in findings:
                _check(path, False)
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):  # it has files
                folder.rmdir()
        raise


def _check(path: Path, pipes: bool) -> None:
    """Raise OutputError unless a file can be written at `path`."""
    try:
        mode = path.lstat().st_mode  # raises for a name that is too long
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); change -o") from error
    if stat.S_ISDIR(mode):
        raise OutputError(f"{path}: is a folder; change -o")
    if atomic.is_special(path):
        if not pipes:
            raise OutputError(f"{path}: is not a regular file; remove it, or change -o")
        return
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: cannot be written (no permission); change -o")


# --- results of earlier runs ---


def find_transcript(targets: Sequence[Path]) -> tuple[Path, DocumentHead] | None:
    """Return the readable transcript whose results may lie at `targets`, and its path."""
    from witness.formats import json_document

    for path in dict.fromkeys(map(_json_beside, targets)):
        with suppress(OSError):
            if (head := json_document.decode_head(files.read(path))) is not None:
                return path, head
    return None


def _json_beside(target: Path) -> Path:
    """Return the JSON of the transcript that a file of any format belongs to."""
    form = format_of(target.name)
    base = target.stem if form is None else target.name[: -len(form.ending) - 1]
    return target.with_name(f"{base}.json")


def is_of(head: DocumentHead, recording: str) -> bool:
    """Tell if a transcript is of the recording at this path, or of the same bytes elsewhere."""
    if head.audio.path == os.path.abspath(recording) or head.audio.path == recording == "-":  # noqa: PTH100
        return True
    try:
        return files.sha256_at(recording) == head.audio.sha256
    except (OSError, ValueError):
        return False


def refuse_loss(targets: Sequence[Path]) -> str | None:
    """Return the line that refuses to replace a transcript that a person corrected; None: write."""
    earlier = find_transcript(targets)
    if earlier is None or not earlier[1].holds_corrections:
        return None
    return (
        f"{earlier[0]}: holds corrections, which a new transcript would lose; fix: witness convert "
        f"{earlier[0]} for another format, another -o, or --force to lose them"
    )


def _is_free(targets: Sequence[Path], recording: str) -> bool:
    """Tell if results of `recording` may go to `targets`: those that exist are its own.

    Without a transcript, they belong to another recording of that name that lies beside this one, if any.
    """
    if (earlier := find_transcript(targets)) is not None:
        return is_of(earlier[1], recording)
    existing = [target for target in targets if os.path.lexists(target) and not target.is_dir()]
    if any(format_of(target.name) == Format.JSON for target in existing):
        return False
    return not existing or recording == "-" or not _has_namesake(Path(recording))


def _has_namesake(recording: Path) -> bool:
    """Tell if another recording of the same name, with another ending, lies in the same folder."""
    from witness.audio.source import ENDINGS

    try:
        others = [path.name for path in recording.absolute().parent.iterdir()]
    except OSError:
        return False
    stems = (os.path.splitext(name) for name in others if name != recording.name)  # noqa: PTH122
    return any(stem == recording.stem and ending[1:].lower() in ENDINGS for stem, ending in stems)
