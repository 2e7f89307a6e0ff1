"""A transcript on the disk: its JSON, and everything beside it that says the same.

The JSON is the truth. The other formats beside it, the findings and the history of what was done on the desk
are written with it in one act (`saving`), by one process at a time. A version is the sha256 of the JSON:
whoever changes a transcript that somebody has looked at says which version that was.
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

from witness.errors import ConflictError, InputError, OutputError, WitnessError
from witness.formats import document, findings, output_paths, page, writers
from witness.formats.document import Document
from witness.formats.registry import Format
from witness.schema import Sound, Transcript
from witness.storage import cache, decode, files, transaction
from witness.transcript import corrections

OPEN = "another program has it open"


class OtherJsonError(InputError):
    """It is JSON, but not of a transcript."""


# --- reading ---


def read(path: Path) -> Transcript:
    """The transcript in the JSON at `path`, without what the models found.

    Raises InputError, which names the file and the place in it, and OtherJsonError if it is another kind of
    JSON, as programs write beside transcripts.
    """
    return transcript(path, decoded(path, content(path)))


def content(path: Path) -> bytes:
    """What is in the JSON at `path`, once what a crash left half done is finished. Raises InputError."""
    if transaction.is_waiting(path.parent, name(path), path.name):
        try:
            with opened(path):
                pass
        except OutputError as error:
            raise InputError(f"{path} was being saved, and cannot be finished: {error}") from error
    try:
        return files.read(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give a JSON transcript that Witness wrote"
        ) from error


def decoded(path: Path, content: bytes) -> Document:
    """The document that was read at `path`. Raises as `read`."""
    try:
        return document.decode(content)
    except decode.NotJsonError as error:
        raise InputError(f"{path} is not JSON ({error}); transcribe the recording again") from error
    except document.OtherSchemaError as error:
        raise OtherJsonError(
            f"{path} is not a transcript of Witness ({error}); give a file of -f json"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); transcribe the recording again") from error


def transcript(path: Path, found: Document) -> Transcript:
    """The transcript in the document that was read at `path`. Raises InputError."""
    try:
        return _divided(document.transcript(found))
    except document.OlderError as error:
        fix = "transcribe the recording again" if found.findings is None else f"run: witness redo {path}"
        raise InputError(f"{path} cannot be shown yet, because {error}; {fix}") from error
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}); transcribe the recording again, or run witness redo"
        ) from error


def _divided(found: Transcript) -> Transcript:
    """With what a person said of where paragraphs begin, which is among the corrections."""
    if not any(one.kind in ("split", "join") for one in found.corrections):
        return found
    utterances = list(found.utterances)
    for track in {one.track for one in utterances}:
        places = [place for place, one in enumerate(utterances) if one.track == track]
        words = iter(
            corrections.mark_paragraphs(
                [word for place in places for word in utterances[place].words], found.corrections
            )
        )
        for place in places:
            own = tuple(islice(words, len(utterances[place].words)))
            utterances[place] = replace(utterances[place], words=own)
    return replace(found, utterances=tuple(utterances))


# --- where things lie ---


def name(path: Path) -> str:
    """What the files of the transcript at `path` are called without their endings."""
    return path.name.removesuffix(".json")


def sibling(path: Path, form: str) -> Path:
    """Where a format of the transcript at `path` lies."""
    return path.with_name(output_paths.name_of(name(path), form))


def history_of(path: Path) -> Path:
    """Where the steps that were taken on the desk are kept."""
    return path.with_name(f".{name(path)}{transaction.HISTORY}")


def earlier_of(path: Path, *, findings: bool = False) -> Path:
    """Where the transcript is kept that this one has taken the place of, or its findings."""
    return path.with_name(f".{name(path)}{transaction.EARLIER_FINDINGS if findings else transaction.EARLIER}")


# --- writing ---


@dataclass(frozen=True)
class Written:
    """What became of a change."""

    version: str
    left: tuple[str, ...] = ()
    """A line about each file beside the JSON that still says what it said before, and why; and, the first
    time, about a drive that has no locks."""


_written: dict[Path, str] = {}
"""The sha256 of what this process has written, so that it need not be made again to be known again."""


class Store:
    """The transcript at `path`, for this process alone; `opened` gives it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def version(self) -> str | None:
        """Of what is there now; None: nothing."""
        try:
            return files.sha256(files.read(self.path))
        except OSError:
            return None

    def expect(self, version: str) -> None:
        """Raise ConflictError, which has the newer version, unless this one is there."""
        if (found := self.version) != version:
            raise ConflictError(
                f"{self.path.name}: was changed meanwhile, in another tab or by somebody else; load it again "
                "to see it",
                found,
            )

    def findings_of(self, recording: str) -> dict[str, str] | None:
        """The name and sha256 of the findings that are there, if they are of the recording of this sha256."""
        try:
            found = document.decode(files.read(self.path))
        except (OSError, ValueError):
            return None
        if found.findings is None or found.audio.sha256 != recording:
            return None
        return structs.asdict(found.findings)

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
        """Write the JSON, every format that lies beside it, and those in `also`, in one act.

        `transcript` is one `in_milliseconds`. `link` names the findings, which are `voices` if they are
        new, and `hidden` gives private files to keep with the new version, by their names. `sound` is for
        those in `also` that hold it; another page keeps its own. Raises OutputError; then nothing changed.
        """
        content = document.encode(document.of(transcript, link))
        there = [form for form in Format if form in also or sibling(self.path, form).is_file()]
        others, left = self._formats(transcript, [form for form in there if form != Format.JSON], also, sound)
        contents = {self.path.name: content, **others}
        private = []
        if voices is not None:
            private.append(output_paths.beside(self.path).name)
            contents[private[-1]] = voices
        more = hidden(files.sha256(content))
        left += self._replace({**contents, **more}, [*private, *more])
        return Written(files.sha256(content), tuple(left))

    def keep(self, hidden: Mapping[str, bytes]) -> None:
        """Write private files beside it, by their names. Raises OutputError."""
        self._replace(dict(hidden), list(hidden))

    def add(self, transcript: Transcript, forms: Collection[str], sound: Sound | None = None) -> Written:
        """Write these formats beside the JSON, which says the same. Raises OutputError."""
        contents, left = self._formats(transcript, [form for form in Format if form in forms], forms, sound)
        left += self._replace(contents, ())
        return Written(self.version or "", tuple(left))

    def _formats(
        self, transcript: Transcript, forms: Sequence[Format], also: Collection[str], sound: Sound | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """The files of formats, and a line about each that cannot be made here."""
        made, left = {}, []
        for form in forms:
            there = sibling(self.path, form)
            try:
                output_paths.check_libraries([form])
            except WitnessError as error:
                left.append(f"{there} is as it was, because {error}")
                continue
            heard = sound
            if form not in also:
                content = files.read(there)
                heard = page.sound_in(content.decode("utf-8", "replace")) if form.about.sound else None
                if not self._wrote(there, form, content, heard):
                    left.append(
                        f"{there} is as it was, because somebody or another version of Witness has changed "
                        f"it; to write it again: witness convert {self.path} -f {form}"
                    )
                    continue
            made[there.name] = writers.content(transcript, form, heard, there)
        return made, left

    def _wrote(self, path: Path, form: Format, content: bytes, sound: Sound | None) -> bool:
        """Whether this is what the transcript that is there now is in that format: nobody's work is lost."""
        if _written.get(path) == files.sha256(content):
            return True
        return self._before is not None and writers.content(self._before, form, sound, path) == content

    @cached_property
    def _before(self) -> Transcript | None:
        """The transcript that is there now; None: there is none that can be shown."""
        try:
            return transcript(self.path, decoded(self.path, content(self.path)))
        except InputError:
            return None

    def _replace(self, contents: dict[str, bytes], private: Collection[str]) -> list[str]:
        folder = self.path.parent
        for one in contents:
            _written[folder / one] = files.sha256(contents[one])
        left = transaction.replace_all(folder, name(self.path), contents, private)
        if self.path.name in left:
            raise OutputError(f"{self.path}: {OPEN}; close it there")
        lines = [
            f"{folder / one} is as it was, because {OPEN}; it follows with the next change" for one in left
        ]
        about = f"{folder} is on a drive without locks: change a transcript there from one machine at a time"
        if folder in transaction.without_locks and not cache.was_shown(about):
            lines.append(about)
        return lines


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The transcript at `path` for this process alone, whole, whatever a crash left. Raises OutputError."""
    with transaction.alone(path.parent, name(path)):
        if transaction.is_waiting(path.parent, name(path), path.name):
            raise OutputError(f"{path}: {OPEN}; close it there")
        yield Store(path)


def save(
    transcript: Transcript,
    targets: Sequence[tuple[str, Path | None]],
    *,
    keep: bool = True,
    sound: Sound | None = None,
    fresh: bool = False,
    force: bool = True,
) -> tuple[str, ...]:
    """Write the formats of a new transcript to their files; None is stdout.

    Beside a JSON file (not beside a pipe) go the findings, unless `keep` is false; with it are written the
    formats that lie beside it from an earlier run. If the transcript is `fresh` from the models, a JSON of
    the same recording that lies beside one of the files is written, too: it would say something else.
    Without `force`, a transcript there that a person has corrected is not replaced: the new one is kept under
    another name. Returns what `Written.left` has.

    Raises ConflictError, which names both, OutputError, BrokenPipeError.
    """
    transcript = document.in_milliseconds(transcript)
    main = next((path for form, path in targets if form == Format.JSON), None)
    left = []
    if main is None and fresh and (main := _json_beside(transcript, targets)) is not None:
        left.append(f"{main}, of an earlier run, is made again, so that it says the same")
    if main is None or not output_paths.is_regular(main):
        writers.save(transcript, targets, keep=keep, sound=sound)
        return ()
    beside = [form for form, path in targets if path == sibling(main, form) and output_paths.is_regular(path)]
    rest = [(form, path) for form, path in targets if path != main and form not in beside]
    link, voices = None, None
    if keep and transcript.findings is not None:
        voices = findings.encode(transcript.findings)
        link = {"file": output_paths.beside(main).name, "sha256": files.sha256(voices)}
    with opened(main) as there:
        taken = not force and is_corrected(main)
        if not taken:
            if link is None and keep:  # one that was read, and goes back to where its findings are
                link = there.findings_of(transcript.audio.sha256)
            left += there.write(transcript, link, also=beside, sound=sound, voices=voices).left
    if taken:
        other = free(main, "again")
        forms = dict.fromkeys((Format.JSON, *map(Format, beside)))
        save(transcript, [*((form, sibling(other, form)) for form in forms), *rest], keep=keep, sound=sound)
        raise ConflictError(
            f"{main}: was corrected while the recording was transcribed again, so it is not replaced; the "
            f"new transcript is {other}; fix: keep the one you want, or --force, which loses the corrections"
        )
    if rest:
        writers.save(transcript, rest, keep=keep, sound=sound)
    return tuple(left)


def _json_beside(transcript: Transcript, targets: Sequence[tuple[str, Path | None]]) -> Path | None:
    """The JSON of the same recording that lies beside one of the files; None: there is none."""
    for form, path in targets:
        if path is None or not output_paths.is_regular(path):
            continue
        there = path.with_name(f"{path.name.removesuffix(output_paths.name_of('', form))}.json")
        if sibling(there, form) != path:
            continue
        try:
            found = document.summary(files.read(there))
        except OSError:
            continue
        if found is not None and found.audio.sha256 == transcript.audio.sha256:
            return there
    return None


def free(path: Path, why: str) -> Path:
    """`call.WHY.json` beside `call.json`, or a number more."""
    numbers = itertools.count(2)
    place = path.with_name(f"{name(path)}.{why}.json")
    while os.path.lexists(place):
        place = path.with_name(f"{name(path)}.{why}-{next(numbers)}.json")
    return place


def is_corrected(path: Path) -> bool:
    """Whether there is a transcript that holds what a person corrected."""
    try:
        found = document.summary(files.read(path))
    except OSError:
        return False
    return found is not None and found.holds_corrections
