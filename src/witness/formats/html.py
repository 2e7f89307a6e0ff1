"""The page to read, hear and correct a transcript, and the page of a report: one HTML file from templates.

The file needs nothing else and lets nothing in or out. Speech and file names are data: they go through
Jinja's escaping or, as JSON, into a script block that the browser does not run. The file's own policy names
the hashes of its script and its style, so that nothing else would run even if the escaping had a hole.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any, NewType

import numpy as np

from witness.formats.reading import INAUDIBLE, NOT_ENGLISH, Reading, compact_json, warnings_for_people
from witness.languages import RIGHT_TO_LEFT
from witness.schema import (
    BREATH,
    CLOSING,
    LONG_PARAGRAPH,
    PARAGRAPH,
    PARAGRAPH_PAUSE,
    PHRASE_PAUSE,
    SENTENCE_ENDS,
    Correction,
    Sound,
    Source,
    Speaker,
    Transcript,
)
from witness.storage import files
from witness.text import clock, in_units
from witness.web import bundle

if TYPE_CHECKING:
    from jinja2 import Environment
CORRECTIONS = "witness-corrections/1"
"""The schema of a page's file of corrections."""

SERVED_POLICY = {"connect-src": "'self'", "media-src": "'self'", "script-src": "'self'"}
"""The policy of a page from a server: it loads its modules, saves and plays there."""

OVERLAP, UNSUPPORTED = 1, 2
BEGINS = {None: 0, True: 4, False: 8}
"""Flags of a word; the last two say if a paragraph begins with it."""

Harmless = NewType("Harmless", str)
"""JSON that cannot end the script block around it."""

PAGE = "page.html.j2"
"""The template of a transcript."""


def write(reading: Reading, sound: Sound | None = None) -> str:
    """Return the page as a file; without `sound` it is silent."""
    return transcript_page(reading.transcript, reading.title, sound)


def prepare() -> None:
    """Compile the template of a transcript before the first request needs it."""
    nothing = Transcript(Source("", 0.0, 1, ""), {}, {"whisper": None}, {}, None, (), (), (), ())
    transcript_page(nothing, "", None, {})


def transcript_page(
    transcript: Transcript,
    title: str,
    sound: Sound | None,
    served: Mapping[str, Any] | None = None,
    script: Sequence[str] = (),
) -> str:
    """Return the page of a transcript, with everything that its script shows.

    `served` holds the data that the page needs to save corrections on its server, and `script` the addresses
    of its modules there, the entry last; None: the page is a file of its own, which connects to nothing.
    """
    columns = _columns(transcript)
    head = {
        "title": title,
        "schema": CORRECTIONS,
        "sha256": transcript.audio.sha256,
        # The browser keeps corrections for a page of the same words and speakers only.
        "page": identity(transcript, columns),
        "start": _ms(transcript.audio.transcribed.start),
        "end": _ms(transcript.audio.transcribed.end),
        "languages": [[code, code in RIGHT_TO_LEFT] for code in _distinct(_languages(transcript))],
        "listened": transcript.device["whisper"] is not None,
        "speakers": [[speaker.id, speaker.name] for speaker in _speakers(transcript)],
        "first": transcript.first_speaker,
        "next": transcript.next_speaker,
        "grouping": {
            "pause": _ms(PARAGRAPH_PAUSE),
            "phrase": _ms(PHRASE_PAUSE),
            "shortest": _ms(PARAGRAPH),
            "longest": _ms(LONG_PARAGRAPH),
            "breath": _ms(BREATH),
            "ends": SENTENCE_ENDS,
            "closing": CLOSING,
        },
    }
    rest = {
        "peaks": None if sound is None else base64.b64encode(sound.peaks).decode(),
        "link": None if sound is None else sound.link,
        **({} if served is None else {"served": served}),
    }
    return render(
        PAGE,
        styles=("look.css", "page.css", *(() if served is None else ("served.css", "desk.css"))),
        code=bundle.script(bundle.FILE) if served is None else "",
        policy={} if served is None else SERVED_POLICY,
        served=served is not None,
        script=script,
        data=_together(harmless(head), columns, harmless(rest)),
        sound=None if sound is None or sound.opus is None else base64.b64encode(sound.opus).decode(),
        title=title,
        start=round(transcript.audio.transcribed.start),
        facts=list(_facts(transcript, sound)),
        models=", ".join(f"{role} {model.name}" for role, model in transcript.models.items() if model),
        warnings=warnings_for_people(transcript),
    )


def identity(transcript: Transcript, columns: Harmless | None = None) -> str:
    """Return a hash that is equal for pages of the same words, speakers and names."""
    names = [(speaker.id, speaker.name) for speaker in _speakers(transcript)]
    content = (harmless(transcript.audio.sha256), harmless(names), columns or _columns(transcript))
    return files.sha256(f"[{','.join(content)}]".encode())


def speaker_index(transcript: Transcript, speaker: str) -> int | None:
    """Return the page's number of the speaker with this id; None: no speaker has it."""
    ids = [each.id for each in _speakers(transcript)]
    return ids.index(speaker) if speaker in ids else None


def sound_in(text: str) -> Sound | None:
    """Return the sound in a page from `transcript_page`; None: it has no sound, or is another file."""
    block = r'<script type="[^"]+" id="{}">([^<]*)</script>'
    head, opus = (re.search(block.format(name), text) for name in ("data", "sound"))
    fact = re.search(r'<p class="facts" id="facts">recorded ([^<·]+?)(?: ·|<)', text)
    try:
        data = json.loads(head[1]) if head else {}
        return Sound(
            base64.b64decode(data["peaks"], validate=True),
            base64.b64decode(opus[1], validate=True) if opus else None,
            data["link"],
            unescape(fact[1]) if fact else None,
        )
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Table:
    """A table of a report. The first row is the head; the columns in `left` are text, the others figures."""

    heading: str
    rows: Sequence[list[str]]
    left: Collection[int] = (0,)
    page_only: bool = False
    """True: too long for a report as text."""


def report_page(
    title: str, lead: Sequence[str], parts: Sequence[Table | str], notices: Sequence[str] = ()
) -> str:
    """Return the page of a measurement: paragraphs, notices that stand out, then tables and pictures
    (SVG, by `pictures`, which escapes every text in it)."""
    from markupsafe import Markup

    return render(
        "report.html.j2",
        styles=("look.css", "report.css"),
        title=title,
        lead=lead,
        notices=notices,
        parts=[
            (part, None) if isinstance(part, Table) else (None, Markup(part))  # noqa: S704 - escaped
            for part in parts
        ],
    )


def render(
    template: str,
    *,
    styles: Iterable[str],
    code: str = "",
    policy: Mapping[str, str] = {},
    data: Harmless = Harmless(""),
    **values: Any,
) -> str:
    """Return a template with its styles, script and `data` inside; `values` are the template's own.

    `policy` adds directives to the usual ones, or replaces them.
    """
    from markupsafe import Markup

    style = "\n".join(bundle.text(f"web/templates/{name}") for name in styles)
    directives = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_hash(style)}'",
        "script-src": f"'sha256-{_hash(code)}'" if code else "'none'",
        "img-src": "data:",
        "media-src": "'self' file: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **policy,
    }
    return (
        _environment()
        .get_template(template)
        .render(
            policy="; ".join(f"{name} {value}" for name, value in directives.items()),
            style=Markup(style),  # noqa: S704 - our own files
            code=Markup(code),  # noqa: S704
            data=Markup(data),  # noqa: S704 - escaped for where it stands
            **values,
        )
    )


def harmless(data: Any) -> Harmless:
    """Return data as JSON for a script block."""
    text = compact_json(data)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Harmless(text)


def _together(*objects: Harmless) -> Harmless:
    """Merge JSON objects into one."""
    return Harmless(f"{{{','.join(each[1:-1] for each in objects)}}}")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("witness.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _hash(text: str) -> str:
    """Return a hash in the notation of a policy."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _speakers(transcript: Transcript) -> list[Speaker]:
    """Return the speakers in the order of their first turns: the page numbers nameless ones."""
    first: dict[str, float] = {}
    for turn in transcript.turns:
        first[turn.speaker] = min(turn.start, first.get(turn.speaker, math.inf))
    return sorted(transcript.speakers, key=lambda speaker: (first.get(speaker.id, math.inf), speaker.id))


def _columns(transcript: Transcript) -> Harmless:
    """Return turns, words and utterances without words, by column, in milliseconds: shorter than objects."""
    index: Mapping[str | None, int] = {speaker.id: n for n, speaker in enumerate(_speakers(transcript))}
    languages = _languages(transcript)
    codes = {code: n for n, code in enumerate(_distinct(languages))}
    uttered = transcript.utterances
    said = [word for utterance in uttered for word in utterance.words]
    track = [utterance.track for utterance in uttered for _ in utterance.words]
    language = [
        codes.get(code or "", -1)
        for utterance, code in zip(uttered, languages, strict=True)
        for _ in utterance.words
    ]
    # Simultaneous words are in the order of merging.
    order = np.lexsort((track, [word.start for word in said])).tolist()
    words = [said[number] for number in order]
    silent = [utterance for utterance in uttered if not utterance.words]
    before = [_in_page(each) for each in transcript.corrections if each.kind in ("start", "end", "note")]
    columns = {
        **({"before": before} if before else {}),
        "turns": {
            "start": _all_ms([turn.start for turn in transcript.turns]),
            "end": _all_ms([turn.end for turn in transcript.turns]),
            "speaker": [index[turn.speaker] for turn in transcript.turns],
        },
        "words": {
            "text": [word.text for word in words],
            "start": _all_ms([word.start for word in words]),
            "end": _all_ms([word.end for word in words]),
            "speaker": [index.get(word.speaker, -1) for word in words],
            "sure": _all_percent([word.speaker_confidence for word in words]),
            "flags": [
                (OVERLAP if word.overlap else 0)
                + (0 if word.supported else UNSUPPORTED)
                + BEGINS[word.begins]
                for word in words
            ],
            "track": [track[number] for number in order],
            "probability": _all_percent([word.probability for word in words]),
            "language": [language[number] for number in order],  # of the utterance, as in the document
        },
        "silent": {
            "start": _all_ms([utterance.start for utterance in silent]),
            "end": _all_ms([utterance.end for utterance in silent]),
            "speaker": [index.get(utterance.speaker, -1) for utterance in silent],
            "track": [utterance.track for utterance in silent],
            "mark": [NOT_ENGLISH if utterance.not_english else INAUDIBLE for utterance in silent],
        },
    }
    return harmless(columns)


def _in_page(correction: Correction) -> dict[str, Any]:
    """Return an earlier correction that no column shows, in the form of web/editor/corrections.js."""
    pieces = [[1000 * start, 1000 * end] for start, end in correction.other]
    if correction.kind == "note":
        return {"kind": "note", "pieces": pieces, "text": correction.text, "codes": correction.codes}
    return {"kind": correction.kind, "pieces": pieces, "at": _ms(correction.at or 0.0)}


def _languages(transcript: Transcript) -> list[str | None]:
    """Return the language of each utterance."""
    return [utterance.language or transcript.language for utterance in transcript.utterances]


def _distinct(languages: Sequence[str | None]) -> list[str]:
    """Return the languages in the order of their first utterance."""
    return list(dict.fromkeys(code for code in languages if code))


def _facts(transcript: Transcript, sound: Sound | None) -> Iterable[str]:
    """Yield the facts in the head of the page."""
    if sound is not None and sound.recorded:
        yield f"recorded {sound.recorded}"
    part = transcript.audio.part
    length = in_units(transcript.audio.duration)
    yield length if part is None else f"{clock(part.start)} to {clock(part.end)} of {length}"
    if transcript.language:
        yield f"language {transcript.language}"


def _all_ms(seconds: Sequence[float]) -> list[int]:
    """Convert like `_ms`, in a tenth of the time for an hour's words."""
    milliseconds: list[int] = np.rint(1000 * np.array(seconds, float)).astype(np.int64).tolist()
    return milliseconds


def _all_percent(shares: Sequence[float | None]) -> list[int]:
    """Convert to percent; -1: unknown."""
    percent = np.rint(100 * np.array(shares, float))  # None becomes NaN
    rounded: list[int] = np.where(np.isnan(percent), -1, percent).astype(np.int64).tolist()
    return rounded


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
