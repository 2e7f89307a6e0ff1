"""Transcripts on disk: the JSON, and the files beside it with the same content.

The JSON is the truth. The other formats, the findings and the history of edits are written with it in one
transaction, by one process at a time. The version of a transcript is the sha256 of its JSON: an edit names
the version that its author saw.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from msgspec import structs

from witness.errors import ConflictError, InputError, OtherJsonError, OutputError, WitnessError
from witness.formats import findings, html, json_document, output_paths, writers
from witness.formats.json_document import Document
from witness.formats.registry import Format
from witness.schema import Sound, Transcript
from witness.storage import atomic, cache, files, transaction, typed_json
from witness.transcript import corrections

Targets = Sequence[tuple[str, Path | None]]
"""Formats and their files; None is stdout."""

OPEN = "another program has it open"


# --- reading ---


@dataclass(frozen=True)
class StoredJson:
    """Content of a transcript's JSON. The properties raise InputError, which names the file and the place."""

    path: Path
    content: bytes

    @property
    def version(self) -> str:
        return files.sha256(self.content)

    @cached_property
    def document(self) -> Document:
        """Checked content. Also raises OtherJsonError: programs write other JSON beside transcripts."""
        path = self.path
        try:
            return json_document.decode(self.content)
        except typed_json.NotJsonError as error:
            raise InputError(f"{path} is not JSON ({error}); transcribe the recording again") from error
        except json_document.OtherSchemaError as error:
            raise OtherJsonError(
                f"{path} is not a transcript of Witness ({error}); give a file of -f json"
            ) from error
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}); transcribe the recording again") from error

    @property
    def transcript(self) -> Transcript:
        return transcript_of(self.path, self.document)


def load(path: Path) -> StoredJson:
    """Read the JSON at `path`, after finishing a save that a crash interrupted. Raises InputError."""
    if transaction.is_waiting(path.parent, base_name(path), path.name):
        try:
            with opened(path):
                pass
        except OutputError as error:
            raise InputError(f"{path} was being saved, and cannot be finished: {error}") from error
    try:
        return StoredJson(path, files.read(path))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give a JSON transcript that Witness wrote"
        ) from error


def read(path: Path) -> Transcript:
    """Return the transcript in the JSON at `path`, without findings. Raises as `StoredJson`."""
    return load(path).transcript


def transcript_of(path: Path, content: Document) -> Transcript:
    """Make a transcript of a document from `path`. Raises InputError."""
    try:
        return _with_paragraph_marks(json_document.to_transcript(content))
    except json_document.OlderError as error:
        fix = "transcribe the recording again" if content.findings is None else f"run: witness redo {path}"
        raise InputError(f"{path} cannot be shown yet, because {error}; {fix}") from error
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}); transcribe the recording again, or run witness redo"
        ) from error


def _with_paragraph_marks(transcript: Transcript) -> Transcript:
    """Restore `Word.begins` from the corrections; documents do not have it."""
    if not any(correction.kind in ("split", "join") for correction in transcript.corrections):
        return transcript
    utterances = list(transcript.utterances)
    for track in {utterance.track for utterance in utterances}:
        numbers = [number for number, utterance in enumerate(utterances) if utterance.track == track]
        words = [word for number in numbers for word in utterances[number].words]
        marked = iter(corrections.mark_paragraphs(words, transcript.corrections))
        for number in numbers:
            count = len(utterances[number].words)
            utterances[number] = replace(utterances[number], words=tuple(islice(marked, count)))
    return replace(transcript, utterances=tuple(utterances))


def is_corrected(path: Path) -> bool:
    """Return True if a transcript with a person's corrections is at `path`."""
    summary = _summary(path)
    return summary is not None and summary.holds_corrections


def _summary(path: Path) -> json_document.DocumentHead | None:
    try:
        return json_document.decode_head(files.read(path))
    except OSError:
        return None


# --- paths ---


def base_name(path: Path) -> str:
    """Return the name that the files of the transcript at `path` share."""
    return path.name.removesuffix(".json")


def sibling(path: Path, form: str) -> Path:
    """Return the path of a format of the transcript at `path`."""
    return path.with_name(output_paths.name_of(base_name(path), form))


def history_path(path: Path) -> Path:
    """Return the path of the edits of the transcript at `path`."""
    return path.with_name(f".{base_name(path)}.history")


def previous_path(path: Path, *, findings: bool = False) -> Path:
    """Return the path of the transcript before the one at `path`, or of its findings."""
    return path.with_name(f".{base_name(path)}.earlier{'.npz' if findings else ''}")


def free_path(path: Path, suffix: str) -> Path:
    """Return `call.SUFFIX.json` beside `call.json`, with a number if the name is taken."""
    free = path.with_name(f"{base_name(path)}.{suffix}.json")
    numbers = itertools.count(2)
    while os.path.lexists(free):
        free = path.with_name(f"{base_name(path)}.{suffix}-{next(numbers)}.json")
    return free


# --- writing ---


@dataclass(frozen=True)
class Written:
    """Result of a change."""

    version: str
    left: tuple[str, ...] = ()
    """One line, with the reason, for each file that keeps its earlier content; and once for a drive without
    locks."""


_hashes: dict[Path, str] = {}
"""The sha256 of each file that this process wrote, which spares a comparison of contents."""


class Store:
    """The transcript at `path`, locked for this process; made by `opened`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def version(self) -> str | None:
        """Current version; None: no file."""
        try:
            return files.sha256(files.read(self.path))
        except OSError:
            return None

    def expect(self, version: str) -> None:
        """Raise ConflictError, which carries the current version, if that is not `version`."""
        if (current := self.version) != version:
            raise ConflictError(
                f"{self.path.name}: was changed meanwhile, in another tab or by another program; load it "
                "again to see it",
                current,
            )

    def write(
        self,
        transcript: Transcript,
        link: dict[str, str] | None,
        *,
        also: Collection[str] = (),
        sound: Sound | None = None,
        voices: bytes | None = None,
        hidden: Callable[[str], Mapping[str, bytes]] = lambda _: {},
    ) -> Written:
        """Write the JSON, every existing format beside it, and the formats in `also`, in one transaction.

        `transcript` is `in_milliseconds`. `link` names the findings; `voices` are their content, if new.
        `hidden` returns private files for a version, by name. `sound` is for the formats in `also`; another
        page keeps its own. Raises OutputError without any change.
        """
        json = json_document.encode(json_document.from_transcript(transcript, link))
        forms = [form for form in Format if form in also or sibling(self.path, form).is_file()]
        others, left = self._contents(
            transcript, [form for form in forms if form != Format.JSON], also, sound
        )
        contents = {self.path.name: json, **others}
        private = []
        if voices is not None:
            private.append(output_paths.beside(self.path).name)
            contents[private[-1]] = voices
        more = hidden(files.sha256(json))
        left += self._replace({**contents, **more}, [*private, *more])
        return Written(files.sha256(json), tuple(left))

    def write_hidden(self, contents: Mapping[str, bytes]) -> None:
        """Write private files beside the JSON, by name. Raises OutputError."""
        self._replace(dict(contents), list(contents))

    def add(self, transcript: Transcript, forms: Collection[str], sound: Sound | None = None) -> Written:
        """Write formats of the unchanged transcript beside the JSON. Raises OutputError."""
        contents, left = self._contents(transcript, [form for form in Format if form in forms], forms, sound)
        left += self._replace(contents, ())
        return Written(self.version or "", tuple(left))

    def findings_link(self, recording: str) -> dict[str, str] | None:
        """Return name and sha256 of the current findings, if the recording has this sha256."""
        try:
            current = json_document.decode(files.read(self.path))
        except (OSError, ValueError):
            return None
        if current.findings is None or current.audio.sha256 != recording:
            return None
        return structs.asdict(current.findings)

    def _contents(
        self, transcript: Transcript, forms: Sequence[Format], also: Collection[str], sound: Sound | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the files of formats, and a line for each that cannot be written here."""
        contents, left = {}, []
        for form in forms:
            path = sibling(self.path, form)
            try:
                output_paths.check_libraries([form])
            except WitnessError as error:
                left.append(f"{path} is unchanged, because {error}")
                continue
            embedded = sound
            if form not in also:
                current = files.read(path)
                embedded = html.sound_in(current.decode("utf-8", "replace")) if form.about.sound else None
                if not self._is_ours(path, form, current, embedded):
                    left.append(
                        f"{path} is unchanged, because a person or another version of Witness has changed "
                        f"it; to write it again: witness convert {self.path} -f {form}"
                    )
                    continue
            contents[path.name] = writers.content(transcript, form, embedded, path)
        return contents, left

    def _is_ours(self, path: Path, form: Format, content: bytes, sound: Sound | None) -> bool:
        """Return True if the file is exactly this format of the current transcript, without other changes."""
        if _hashes.get(path) == files.sha256(content):
            return True
        return self._current is not None and writers.content(self._current, form, sound, path) == content

    @cached_property
    def _current(self) -> Transcript | None:
        try:
            return read(self.path)
        except InputError:
            return None

    def _replace(self, contents: dict[str, bytes], private: Collection[str]) -> list[str]:
        folder = self.path.parent
        for name, content in contents.items():
            _hashes[folder / name] = files.sha256(content)
        left = transaction.replace_all(folder, base_name(self.path), contents, private)
        if self.path.name in left:
            raise OutputError(f"{self.path}: {OPEN}; close it there")
        lines = [
            f"{folder / name} is unchanged, because {OPEN}; it follows with the next change" for name in left
        ]
        warning = (
            f"{folder} is on a drive without locks: change a transcript there from one machine at a time"
        )
        if folder in transaction.without_locks and not cache.was_shown(warning):
            lines.append(warning)
        return lines


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Lock the transcript at `path` for this process, and repair it after a crash. Raises OutputError."""
    with transaction.alone(path.parent, base_name(path)):
        if transaction.is_waiting(path.parent, base_name(path), path.name):
            raise OutputError(f"{path}: {OPEN}; close it there")
        yield Store(path)


def save(
    transcript: Transcript,
    targets: Targets,
    *,
    keep: bool = True,
    sound: Sound | None = None,
    fresh: bool = False,
    force: bool = True,
) -> tuple[str, ...]:
    """Write the formats of a new transcript to their files.

    All formats get the rounded numbers of the JSON, so that the transcript in it gives the same bytes again.
    Beside a JSON file (not beside a pipe) go the findings, unless `keep` is false, and new versions of the
    formats that an earlier run left there. A transcript `fresh` from the models also replaces a JSON of the
    same recording beside one of the files, which would contradict it. `sound` is for a page. Without `force`,
    the new transcript does not replace a corrected one, but gets another name. Returns `Written.left`.

    Raises ConflictError, which names both, OutputError, BrokenPipeError.
    """
    transcript = json_document.in_milliseconds(transcript)
    main = next((path for form, path in targets if form == Format.JSON), None)
    left = []
    if main is None and fresh and (main := _json_beside(transcript, targets)) is not None:
        left.append(f"{main}, of an earlier run, is made again, so that it says the same")
    if main is None or atomic.is_special(main):
        _write_files(transcript, targets, sound)
        return ()
    beside = [form for form, path in targets if path == sibling(main, form) and not atomic.is_special(path)]
    rest = [(form, path) for form, path in targets if path != main and form not in beside]
    link, voices = None, None
    if keep and transcript.findings is not None:
        voices = findings.encode(transcript.findings)
        link = {"file": output_paths.beside(main).name, "sha256": files.sha256(voices)}
    with opened(main) as store:
        is_taken = not force and is_corrected(main)
        if not is_taken:
            if link is None and keep:  # a stored transcript returns to its findings
                link = store.findings_link(transcript.audio.sha256)
            left += store.write(transcript, link, also=beside, sound=sound, voices=voices).left
    if is_taken:
        other = free_path(main, "again")
        forms = dict.fromkeys((Format.JSON, *map(Format, beside)))
        save(transcript, [*((form, sibling(other, form)) for form in forms), *rest], keep=keep, sound=sound)
        raise ConflictError(
            f"{main}: was corrected while the recording was transcribed again, so it is not replaced; the "
            f"new transcript is {other}; fix: keep the one you want, or --force, which loses the corrections"
        )
    if rest:
        _write_files(transcript, rest, sound)
    return tuple(left)


def _write_files(transcript: Transcript, targets: Targets, sound: Sound | None) -> None:
    """Write formats that have no JSON beside them; the transcript is `in_milliseconds`."""
    atomic.write_all([(writers.content(transcript, form, sound, path), path) for form, path in targets])


def _json_beside(transcript: Transcript, targets: Targets) -> Path | None:
    """Return the JSON of the same recording beside one of the files; None: no such file."""
    for form, path in targets:
        if path is None or atomic.is_special(path):
            continue
        json = path.with_name(f"{path.name.removesuffix(output_paths.name_of('', form))}.json")
        summary = _summary(json) if sibling(json, form) == path else None
        if summary is not None and summary.audio.sha256 == transcript.audio.sha256:
            return json
    return None
