"""Where the results of a run go: their names, planned and checked before the work."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from witness._version import install
from witness.errors import OutputError, UsageError, WitnessError
from witness.formats.registry import Format
from witness.storage import atomic
from witness.storage.files import LONGEST_NAME


@dataclass(frozen=True)
class Targets:
    """Where the results of a run go."""

    files: tuple[tuple[str, Path | None], ...]
    """Each format and its file; None: stdout."""
    made: tuple[Path, ...] = ()
    """The folders that were made for them, the innermost first."""

    @property
    def json(self) -> Path | None:
        """The JSON file; None: there is none."""
        return next((path for form, path in self.files if form == Format.JSON), None)

    def give_up(self) -> None:
        """Remove the folders that were made, as far as they are empty: nothing will be written."""
        for folder in self.made:
            with suppress(OSError):
                folder.rmdir()


def plan(
    recording: str,
    formats: Sequence[str],
    output: str | None,
    *,
    keep: bool = True,
    free: Callable[[Sequence[Path]], bool] | None = None,
) -> Targets:
    """The files for `-f FORMATS -o OUTPUT`, checked by `prepare`.

    In a folder they have the first of the `names` of the recording whose files are `free` to take; None: all
    are. Raises UsageError if the request makes no sense, OutputError if something cannot be written,
    WitnessError if a format needs a library that is not installed.
    """
    formats = tuple(dict.fromkeys(formats))
    check_libraries(formats)
    if output is None or output == "-":
        if len(formats) > 1:
            raise UsageError("several formats need a folder; give one with -o FOLDER")
        if sys.stdout is None:
            raise OutputError("stdout is closed; open it, or write a file with -o")
        unreadable = [form for form in formats if Format(form).about.binary]
        if unreadable and sys.stdout.isatty():
            raise UsageError(
                f"{unreadable[0]} is not text, which a terminal could show; write it to a file with -o"
            )
        return Targets(((formats[0] if formats else "txt", None),))
    if not output:
        raise UsageError("-o is empty; give a folder or a file")
    _check_ending(output)
    try:
        files = _plan_files(recording, formats, output, free)
        source = Path(recording)
        for _, target in files:
            if recording != "-" and target.exists() and source.exists() and target.samefile(source):
                raise UsageError(f"{target}: is the recording itself; change -o")
    except OSError as error:
        raise OutputError(f"{output}: cannot be written ({error.strerror}); change -o") from error
    return prepare(files, keep=keep)


def check_libraries(formats: Sequence[str]) -> None:
    """Raise WitnessError if one of the formats needs a library that is not installed."""
    for form in map(Format, formats):
        if not form.installed:
            about = form.about
            raise WitnessError(f"{form} needs {about.package}; fix: {install(about.extra)}")


def name_of(base: str | os.PathLike[str], form: str) -> str:
    """The file of a format: `base`, which has no ending, with the format's own."""
    return f"{os.fspath(base)}.{Format(form).ending}"


def format_of(name: str) -> Format | None:
    """The format that a file's name stands for: of those whose ending it has, the one with the longest."""
    named = [form for form in Format if name.lstrip(".").lower().endswith(f".{form.ending.lower()}")]
    return max(named, key=lambda form: len(form.ending), default=None)


def _plan_files(
    recording: str, formats: tuple[str, ...], output: str, free: Callable[[Sequence[Path]], bool] | None
) -> tuple[tuple[str, Path], ...]:
    path = Path(output)
    named = format_of(path.name)
    planted = named is not None and path.is_symlink()  # a link to a folder, under the name of a result
    is_folder = (path.is_dir() and not planted) or output.endswith(("/", os.sep))
    if not is_folder and (named or path.exists()):
        if len(formats) > 1 or (formats and named and not _may_be_called(formats[0], path)):
            raise UsageError(
                f"-o {output} is one file, but -f says {', '.join(formats)}; give a folder with -o"
            )
        name = formats[0] if formats else named or Format.TXT
        check_libraries([name])
        return ((name, path),)
    stems = ("stdin",) if recording == "-" else names(Path(recording).name, os.path.abspath(recording))  # noqa: PTH100
    forms = formats or (Format.TXT,)
    choices = [tuple((form, Path(name_of(path / stem, form))) for form in forms) for stem in stems]
    if free is None:
        return choices[0]
    return next((files for files in choices if free([target for _, target in files])), choices[-1])


def names(place: str, source: str) -> tuple[str, str, str]:
    """What the results of a recording may be called, without their endings, the usual one first.

    `place` is its name, or its path in a tree of results, `source` its absolute path. All are short enough
    for any ending; the last belongs to no other recording.
    """
    digest = hashlib.sha256(os.fsencode(source)).hexdigest()[:8]
    whole = _shortened(place)
    return _shortened(os.path.splitext(place)[0]), whole, f"{whole}~{digest}"  # noqa: PTH122


def _shortened(path: str) -> str:
    """The path with a last part that leaves room for endings."""
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) > LONGEST_NAME:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        name = f"{os.fsencode(name)[: LONGEST_NAME - 9].decode('utf-8', 'ignore')}~{digest}"
    return os.path.join(folder, name)  # noqa: PTH118


def beside(path: Path) -> Path:
    """Where the findings of a JSON file at `path` lie."""
    return path.with_name(f"{path.stem if path.suffix == '.json' else path.name}.findings.npz")


def prepare(files: Sequence[tuple[str, Path]], *, keep: bool = True, pipes: bool = True) -> Targets:
    """The formats and their files, which can be written: nothing is in their way, their folder is there.

    With `keep` the findings beside a JSON file are checked, too. A new folder for them is the user's
    alone, because they hold voices. Without `pipes`, what is no regular file is refused; otherwise it is
    written into. Raises OutputError.
    """
    folder = files[0][1].parent
    targets = Targets(tuple(files))
    try:
        findings = [beside(path) for form, path in files if form == Format.JSON and keep and is_regular(path)]
        missing = tuple(parent for parent in (folder, *folder.parents) if not parent.exists())
        targets = Targets(tuple(files), missing)
        atomic.new_folders.update(missing)
        folder.mkdir(0o700 if findings else 0o777, parents=True, exist_ok=True)
        for path in [target for _, target in files]:
            _check(path, pipes)
        for path in findings:
            _check(path, False)
    except BaseException as error:
        targets.give_up()
        if isinstance(error, OSError):
            raise OutputError(f"{folder}: cannot be written ({error.strerror}); change -o") from error
        raise
    return targets


def _check_ending(output: str) -> None:
    """Raise UsageError for what looks like a file of a format that there is not."""
    path = Path(output)
    looks = re.fullmatch(r"\.[a-z][a-z0-9]{1,4}", path.suffix, re.IGNORECASE | re.ASCII)
    if looks and format_of(path.name) is None and not path.exists() and not output.endswith(("/", os.sep)):
        known = ", ".join(Format)
        raise UsageError(
            f"-o {output}: there is no format {path.suffix[1:]}; change -o to one of {known}, or to "
            f"{output}{os.sep} for a folder"
        )


def _may_be_called(form: str, path: Path) -> bool:
    """Whether files of the format have this file's last ending."""
    return path.suffix.lower() == Path(name_of("x", form)).suffix.lower()


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


def is_regular(path: Path) -> bool:
    """Tell whether a regular file will be written there, in the place of a file, a link or nothing."""
    return not atomic.is_special(path)
