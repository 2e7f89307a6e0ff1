"""Templates -> one HTML file that needs nothing else, and lets nothing in or out.

What people said and what files are called is data here: it goes through Jinja's escaping or, as JSON, into a
script block that the browser does not run. The file's own policy names the hashes of its script and its
style, so that nothing else would run even if the escaping had a hole.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NewType

import msgspec
import numpy as np

from witness.formats import modules
from witness.formats.reading import INAUDIBLE, NOT_ENGLISH
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
from witness.text import clock, in_json

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

CORRECTIONS = "witness-corrections/1"
"""The schema of the file in which a page saves corrections."""

SERVED_POLICY = {"connect-src": "'self'", "media-src": "'self'", "script-src": "'self'"}
"""Of a page that a server shows: its modules are there, it saves there, and plays from there."""

OVERLAP, UNSUPPORTED = 1, 2
BEGINS = {None: 0, True: 4, False: 8}
"""Flags of a word; the last two say whether a paragraph begins with it."""


Harmless = NewType("Harmless", str)
"""JSON in which nothing can end the script block around it."""

PAGE = "page.html.j2"
"""The template of a transcript."""


def prepare() -> None:
    """Make a page of nothing before somebody waits for the first one: its template is compiled then."""
    nothing = Transcript(Source("", 0.0, 1, ""), {}, {"whisper": None}, {}, None, (), (), (), ())
    transcript_page(nothing, "", None, {})


def transcript_page(
    transcript: Transcript,
    title: str,
    sound: Sound | None,
    served: Mapping[str, Any] | None = None,
    script: Sequence[str] = (),
) -> str:
    """The page of a transcript, with everything that its script shows.

    `served` is what the page needs to save corrections where it came from, and `script` the addresses of its
    modules there, the entry the last; None: the page is a file of its own, which connects to nothing.
    """
    speakers = _speakers(transcript)
    columns = _columns(transcript, speakers)
    head = {
        "title": title,
        "schema": CORRECTIONS,
        "sha256": transcript.audio.sha256,
        # What the browser keeps is for a page of the same words and speakers only.
        "page": _identity(transcript, speakers, columns),
        "start": _ms(transcript.audio.transcribed.start),
        "end": _ms(transcript.audio.transcribed.end),
        "languages": [[code, code in RIGHT_TO_LEFT] for code in _distinct(_languages(transcript))],
        "listened": transcript.device["whisper"] is not None,
        "speakers": [[speaker.id, speaker.name] for speaker in speakers],
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
        code=modules.script(modules.FILE) if served is None else "",
        policy={} if served is None else SERVED_POLICY,
        served=served is not None,
        script=script,
        data=_together(harmless(head), columns, harmless(rest)),
        sound=None if sound is None or sound.opus is None else base64.b64encode(sound.opus).decode(),
        title=title,
        start=round(transcript.audio.transcribed.start),
        facts=list(_facts(transcript, sound)),
        models=_models(transcript),
        warnings=transcript.about_recording,
    )


def identity(transcript: Transcript) -> str:
    """The same for pages of the same words, speakers and names, on which the same steps mean the same."""
    speakers = _speakers(transcript)
    return _identity(transcript, speakers, _columns(transcript, speakers))


def place_of(transcript: Transcript, speaker: str) -> int | None:
    """The number by which a page knows the speaker of this id; None: there is no such speaker."""
    ids = [one.id for one in _speakers(transcript)]
    return ids.index(speaker) if speaker in ids else None


def _identity(transcript: Transcript, speakers: Sequence[Speaker], columns: Harmless) -> str:
    who = [(speaker.id, speaker.name) for speaker in speakers]
    return files.sha256(f"[{harmless(transcript.audio.sha256)},{harmless(who)},{columns}]".encode())


def sound_in(text: str) -> Sound | None:
    """The sound in a page that `transcript_page` made; None: it has none, or is another file."""
    block = r'<script type="[^"]+" id="{}">([^<]*)</script>'
    found, opus = (re.search(block.format(name), text) for name in ("data", "sound"))
    fact = re.search(r'<p class="facts" id="facts">recorded ([^<·]+?)(?: ·|<)', text)
    try:
        data = json.loads(found[1]) if found else {}
        return Sound(
            base64.b64decode(data["peaks"], validate=True),
            base64.b64decode(opus[1], validate=True) if opus else None,
            data["link"],
            html.unescape(fact[1]) if fact else None,
        )
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Table:
    """Cells as text. The first row is the head; the columns in `left` are text, the others figures."""

    heading: str
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)


def report_page(
    title: str, lead: Sequence[str], parts: Sequence[Table | str], notices: Sequence[str] = ()
) -> str:
    """The page of a measurement: paragraphs, notices that stand out, then tables and pictures (SVG)."""
    return render(
        "report.html.j2",
        styles=("look.css", "report.css"),
        title=title,
        lead=lead,
        notices=notices,
        parts=[(part, None) if isinstance(part, Table) else (None, _picture(part)) for part in parts],
    )


def _picture(svg: str) -> Markup:
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 - `pictures` escapes every text in it


def render(
    template: str,
    *,
    styles: Iterable[str],
    code: str = "",
    policy: Mapping[str, str] = {},
    data: Harmless = Harmless(""),
    **values: Any,
) -> str:
    """A template with its styles, script and `data` inside; `values` are the template's own.

    `policy` are directives beside the usual ones, or in their place.
    """
    from markupsafe import Markup

    style = "\n".join(modules.text(f"web/templates/{name}") for name in styles)
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
    """Data as JSON for a script block."""
    try:
        text = msgspec.json.encode(data).decode()
    except UnicodeEncodeError:  # halves of characters, which `in_json` replaces
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = in_json(text)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Harmless(text)


def _together(*objects: Harmless) -> Harmless:
    """One JSON object with what is in all of these."""
    return Harmless(f"{{{','.join(one[1:-1] for one in objects)}}}")


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
    """As a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _speakers(transcript: Transcript) -> list[Speaker]:
    """In the order in which they first speak: the page numbers those without a name."""
    first: dict[str, float] = {}
    for turn in transcript.turns:
        first[turn.speaker] = min(turn.start, first.get(turn.speaker, math.inf))
    return sorted(transcript.speakers, key=lambda speaker: (first.get(speaker.id, math.inf), speaker.id))


def _columns(transcript: Transcript, speakers: Sequence[Speaker]) -> Harmless:
    """Turns, words and utterances without words, by column, in milliseconds: shorter than objects."""
    place: Mapping[str | None, int] = {speaker.id: n for n, speaker in enumerate(speakers)}
    languages = _languages(transcript)
    codes = {code: n for n, code in enumerate(_distinct(languages))}
    told = [codes.get(code or "", -1) for code in languages]
    uttered = transcript.utterances
    said = [word for one in uttered for word in one.words]
    track = [one.track for one in uttered for _ in one.words]
    language = [code for one, code in zip(uttered, told, strict=True) for _ in one.words]
    order = np.lexsort(
        (track, [word.start for word in said])
    ).tolist()  # of two at once, as merging takes them
    words = [said[place] for place in order]
    silent = [one for one in uttered if not one.words]
    before = [_in_page(one) for one in transcript.corrections if one.kind in ("start", "end", "note")]
    columns = {
        **({"before": before} if before else {}),
        "turns": {
            "start": _all_ms([turn.start for turn in transcript.turns]),
            "end": _all_ms([turn.end for turn in transcript.turns]),
            "speaker": [place[turn.speaker] for turn in transcript.turns],
        },
        "words": {
            "text": [word.text for word in words],
            "start": _all_ms([word.start for word in words]),
            "end": _all_ms([word.end for word in words]),
            "speaker": [place.get(word.speaker, -1) for word in words],
            "sure": _all_percent([word.speaker_confidence for word in words]),
            "flags": [
                (OVERLAP if word.overlap else 0)
                + (0 if word.supported else UNSUPPORTED)
                + BEGINS[word.begins]
                for word in words
            ],
            "track": [track[place] for place in order],
            "probability": _all_percent([word.probability for word in words]),
            "language": [language[place] for place in order],  # of the utterance, as the document has it
        },
        "silent": {
            "start": _all_ms([utterance.start for utterance in silent]),
            "end": _all_ms([utterance.end for utterance in silent]),
            "speaker": [place.get(utterance.speaker, -1) for utterance in silent],
            "track": [utterance.track for utterance in silent],
            "mark": [NOT_ENGLISH if utterance.not_english else INAUDIBLE for utterance in silent],
        },
    }
    return harmless(columns)


def _in_page(one: Correction) -> dict[str, Any]:
    """What a person said earlier that no column shows, as web/editor/corrections.js has it."""
    pieces = [[1000 * start, 1000 * end] for start, end in one.other]
    if one.kind == "note":
        return {"kind": one.kind, "pieces": pieces, "text": one.text, "codes": one.codes}
    return {"kind": one.kind, "pieces": pieces, "at": _ms(one.at or 0.0)}


def _languages(transcript: Transcript) -> list[str | None]:
    """Of each utterance."""
    return [one.language or transcript.language for one in transcript.utterances]


def _distinct(languages: Sequence[str | None]) -> list[str]:
    """Those that there are, in the order in which they are first spoken."""
    return list(dict.fromkeys(code for code in languages if code))


def _facts(transcript: Transcript, sound: Sound | None) -> Iterable[str]:
    """What the head of the page says about the recording."""
    if sound is not None and sound.recorded:
        yield f"recorded {sound.recorded}"
    part = transcript.audio.part
    length = _length(transcript.audio.duration)
    yield length if part is None else f"{clock(part.start)} to {clock(part.end)} of {length}"
    if transcript.language:
        yield f"language {transcript.language}"


def _length(duration: float) -> str:
    whole = int(duration + 0.5)  # as the desk's list has it
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return (
        f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    )


def _models(transcript: Transcript) -> str:
    return ", ".join(f"{role} {model.name}" for role, model in transcript.models.items() if model)


def _all_ms(seconds: Sequence[float]) -> list[int]:
    """As `_ms`, of an hour's words in a tenth of the time."""
    found: list[int] = np.rint(1000 * np.array(seconds, float)).astype(np.int64).tolist()
    return found


def _all_percent(shares: Sequence[float | None]) -> list[int]:
    """In percent; -1: it is not known."""
    known = 100 * np.array(shares, float)  # None becomes NaN
    found: list[int] = np.where(np.isnan(known), -1, np.rint(known)).astype(np.int64).tolist()
    return found


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
