"""Transcript -> txt, md, json, srt, vtt, rttm, csv, html; the other formats have a module each.

The text formats leave out words where the diarizer heard nobody, and mark speech in which the recognizer
heard no words. JSON has both as they are, and the page marks both.

What was said and what things are called is data: in no format can it become markup, a line or a formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from math import inf
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from witness import files
from witness.formats import (
    audacity,
    ctm,
    cues,
    docx,
    eaf,
    findings,
    openai,
    page,
    podcast,
    qda,
    rttm,
    seglst,
    stm,
    textgrid,
    whisperx,
)
from witness.formats.reading import Line, Reading
from witness.options import Format, Part
from witness.schema import ModelFile, Sound, Source, Transcript, Utterance, Word
from witness.text import clock, in_json, one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

SCHEMA = "witness/1"
UNKNOWN = "UNKNOWN"
"""In place of a speaker who is not known."""
INAUDIBLE = "[inaudible]"
"""In place of words that are not known although a recognizer listened."""
SHORT_PAUSE = 1.0
"""Seconds; a shorter pause is not timed."""
SRT_SIGNS = str.maketrans("<>{}", "‹›()")
"""What stands in SubRip for the signs of its markup."""


def to_txt(transcript: Transcript) -> str:
    """`[00:09:32] SPEAKER_01: words`, a line per utterance; pauses in the text, or on a line of their own."""
    return "".join(
        (f"{pause}\n" if pause else "") + _text_line(transcript, utterance, text) + "\n"
        for pause, utterance, text in _with_pauses(transcript)
    )


def to_md(transcript: Transcript) -> str:
    """A title, who spoke how much, the warnings, and a paragraph per utterance; pauses as in `to_txt`."""
    parts = [f"# {_markdown(title(transcript))}", _length(transcript.audio)]
    if transcript.speakers:
        parts[1] += ", " + ", ".join(
            f"{_markdown(speaker.name or speaker.id)} {speaker.share:.0%}" for speaker in transcript.speakers
        )
    parts += [f"> {_markdown(warning)}" for warning in transcript.about_recording]
    for pause, utterance, text in _with_pauses(transcript):
        head = f"**{_markdown(_speaker(transcript, utterance))}** [{clock(utterance.start)}]"
        parts += [pause] if pause else []
        parts.append(head if text is None else f"{head} {_markdown(text)}")
    return "\n\n".join(parts) + "\n"


def to_json(transcript: Transcript, stages: Mapping[str, str] | None = None) -> str:
    """`"schema": "witness/1"`; seconds are rounded to milliseconds, what is unknown is null.

    `stages`: name ("file") and "sha256" of the file with the findings, which lies beside the JSON file.
    """
    document = {
        "schema": SCHEMA,
        "audio": {
            "path": transcript.audio.path,
            "duration": _ms(transcript.audio.duration),
            "channels": transcript.audio.channels,
            "sha256": transcript.audio.sha256,
            "part": _part(transcript.audio.part),
        },
        "models": {role: _model(model) for role, model in transcript.models.items()},
        "device": transcript.device,
        "timing": {
            stage: _ms(value) if isinstance(value, float) else value
            for stage, value in transcript.timing.items()
        },
        "language": transcript.language,
        "speakers": [
            {
                "id": speaker.id,
                "name": speaker.name,
                "seconds": _ms(speaker.seconds),
                "share": _ms(speaker.share),
            }
            for speaker in transcript.speakers
        ],
        "speaker_counts": [
            {
                "found": count.found,
                "runner_up": count.runner_up,
                "margin": None if count.margin is None else _ms(count.margin),
            }
            for count in transcript.counts
        ],
        "turns": [
            {"start": _ms(turn.start), "end": _ms(turn.end), "speaker": turn.speaker}
            for turn in transcript.turns
        ],
        "utterances": [
            {
                "start": _ms(utterance.start),
                "end": _ms(utterance.end),
                "speaker": utterance.speaker,
                "text": utterance.text,
            }
            for utterance in transcript.utterances
        ],
        "words": [_word(word) for word in transcript.words],
        "warnings": list(transcript.warnings),
        "machine": list(transcript.machine),
        "fast": transcript.fast,
        "asked": asdict(transcript.asked),
        "pauses": transcript.pauses,
        "corrections": [asdict(correction) for correction in transcript.corrections],
        "stages": stages,
    }
    return in_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def to_srt(transcript: Transcript) -> str:
    """SubRip. A cue names the speaker if the cue before it has another one."""
    return "\n".join(
        f"{number}\n{clock(cue.start, 3, ',')} --> {clock(cue.end, 3, ',')}\n"
        + "".join(f"{_srt(text)}\n" for _, text in cue.parts)
        for number, cue in enumerate(_cues(transcript), start=1)
    )


def to_vtt(transcript: Transcript) -> str:
    """WebVTT; each speaker of a cue has a voice tag beside the name in the text."""
    return "WEBVTT\n" + "".join(
        f"\n{clock(cue.start, 3)} --> {clock(cue.end, 3)}\n"
        + "".join(f"<v {_vtt(speaker)}>{_vtt(text)}\n" for speaker, text in cue.parts)
        for cue in _cues(transcript)
    )


def to_rttm(transcript: Transcript) -> str:
    """The turns, for diarization scorers."""
    return rttm.serialize(title(transcript), transcript.turns)


def to_csv(transcript: Transcript) -> str:
    """Start, end, speaker and text: a row per utterance, as in RFC 4180.

    A cell that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(["start", "end", "speaker", "text"])
    for utterance, text in _lines_of_text(transcript):
        rows.writerow(
            [
                f"{utterance.start:.3f}",
                f"{utterance.end:.3f}",
                _cell(one_line(transcript.name(utterance.speaker) or "")),
                _cell(text),
            ]
        )
    return out.getvalue()


def to_html(transcript: Transcript, sound: Sound | None = None) -> str:
    """The page for reading, listening and correcting, in one file; without `sound` it is silent."""
    return page.transcript_page(transcript, title(transcript), sound)


def read(transcript: Transcript) -> Reading:
    """What people read of a transcript."""
    shares = [f"{speaker.name or speaker.id} {speaker.share:.0%}" for speaker in transcript.speakers]
    lines = [
        Line(utterance.start, utterance.end, _speaker(transcript, utterance), text, utterance.words, pause)
        for pause, utterance, text in _with_pauses(transcript)
    ]
    return Reading(transcript, title(transcript), ", ".join([_length(transcript.audio), *shares]), lines)


def _of_lines(write: Callable[[Reading], str | bytes]) -> Callable[[Transcript], str | bytes]:
    def written(transcript: Transcript) -> str | bytes:
        return write(read(transcript))

    return written


WRITERS: dict[Format, Callable[[Transcript], str | bytes]] = {
    Format.TXT: to_txt,
    Format.MD: to_md,
    Format.JSON: to_json,
    Format.SRT: to_srt,
    Format.VTT: to_vtt,
    Format.RTTM: to_rttm,
    Format.CSV: to_csv,
    Format.HTML: to_html,
    Format.DOCX: _of_lines(docx.write),
    Format.QDA: _of_lines(qda.write),
    Format.EAF: _of_lines(eaf.write),
    Format.TEXTGRID: _of_lines(textgrid.write),
    Format.AUDACITY: _of_lines(audacity.write),
    Format.CTM: _of_lines(ctm.write),
    Format.STM: _of_lines(stm.write),
    Format.SEGLST: _of_lines(seglst.write),
    Format.WHISPERX: _of_lines(whisperx.write),
    Format.OPENAI: _of_lines(openai.write),
    Format.PODCAST: _of_lines(podcast.write),
}


def save(
    transcript: Transcript,
    targets: Iterable[tuple[str, Path | None]],
    *,
    keep: bool = True,
    sound: Sound | None = None,
) -> None:
    """Write each format to its file; None is stdout.

    All are written from the numbers that JSON has, so that the transcript in it gives the same bytes again.
    Beside a JSON file (not beside a pipe) go the findings, unless `keep` is false. `sound` is for a page.
    Raises OutputError and BrokenPipeError.
    """
    transcript = as_in_json(transcript)
    contents: list[tuple[bytes, Path | None]] = []
    voices: list[Path] = []
    for form, path in targets:
        stages = None
        if form == Format.JSON and keep and path and files.is_regular(path) and transcript.findings:
            found = findings.encode(transcript.findings)
            voices.append(files.beside(path))
            contents.append((found, voices[-1]))
            stages = {"file": voices[-1].name, "sha256": files.sha256(found)}
        if form == Format.JSON:
            contents.append((encode(to_json(transcript, stages)), path))
        else:
            contents.append((content(transcript, form, sound), path))
    files.write_all(contents, private=voices)


def content(transcript: Transcript, form: str, sound: Sound | None = None) -> bytes:
    """The file of a format; `transcript` is one `as_in_json`, and `sound` is as in `save`."""
    text = to_html(transcript, sound) if form == Format.HTML else WRITERS[Format(form)](transcript)
    return encode(text) if isinstance(text, str) else text


def as_in_json(transcript: Transcript) -> Transcript:
    """The same transcript with all numbers that people see rounded as JSON has them."""
    part = transcript.audio.part
    return replace(
        transcript,
        audio=replace(_rounded(transcript.audio), part=None if part is None else _rounded(part)),
        speakers=tuple(map(_rounded, transcript.speakers)),
        turns=tuple(map(_rounded, transcript.turns)),
        utterances=tuple(
            replace(_rounded(utterance), words=tuple(map(_rounded, utterance.words)))
            for utterance in transcript.utterances
        ),
    )


def _rounded(item: T) -> T:
    """A dataclass with its numbers rounded to three digits after the point."""
    numbers = {
        name: _ms(float(value))
        for name, value in vars(item).items()
        if isinstance(value, float | np.floating)
    }
    return replace(item, **numbers)


def encode(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 become U+FFFD, so that they do not cost the result."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8")


def title(transcript: Transcript) -> str:
    """The recording's name without its folder and ending, in one line; "stdin" if it has none."""
    return "stdin" if transcript.audio.path == "-" else one_line(PurePath(transcript.audio.path).stem)


def _lines_of_text(transcript: Transcript) -> Iterator[tuple[Utterance, str | None]]:
    """The utterances that people read, each with its text in one line; None: nobody listened for words."""
    recognized = transcript.device["whisper"] is not None
    for utterance in map(_in_lines, transcript.utterances):
        if not utterance.words:
            yield utterance, INAUDIBLE if recognized else None
        elif any(word.supported for word in utterance.words):  # all words of an utterance are, or none is
            yield utterance, utterance.text


def _with_pauses(transcript: Transcript) -> Iterator[tuple[str | None, Utterance, str | None]]:
    """The mark of the pause before each utterance that people read, the utterance, and its text."""
    end, least = inf, transcript.pauses
    for utterance, text in _lines_of_text(transcript):
        pause = None
        if least is not None:
            silence = utterance.start - end
            pause = _pause(silence) if silence >= least else None
            text = _spoken(utterance.words, least) if utterance.words else text
        yield pause, utterance, text
        end = utterance.end if end == inf else max(end, utterance.end)


def _spoken(words: Sequence[Word], least: float) -> str:
    """The text of an utterance with its pauses."""
    text = words[0].text
    for before, word in pairwise(words):
        if word.start - before.end >= least:
            text += f" {_pause(word.start - before.end)}" + ("" if word.text.startswith(" ") else " ")
        text += word.text
    return text.strip()


def _pause(seconds: float) -> str:
    """As transcription conventions write it: short ones are not timed."""
    return "(.)" if seconds < SHORT_PAUSE else f"({seconds:.0f} s)"


def _speaker(transcript: Transcript, utterance: Utterance) -> str:
    return one_line(transcript.name(utterance.speaker) or UNKNOWN)


def _text_line(transcript: Transcript, utterance: Utterance, text: str | None) -> str:
    speaker = _speaker(transcript, utterance)
    if text is None:
        return f"[{clock(utterance.start, 1)} - {clock(utterance.end, 1)}] {speaker}"
    return f"[{clock(utterance.start)}] {speaker}: {text}"


def _cues(transcript: Transcript) -> list[cues.Cue]:
    tracks: dict[int, list[cues.Said]] = {}
    for utterance, text in _lines_of_text(transcript):
        speaker, items = _speaker(transcript, utterance), tracks.setdefault(utterance.track, [])
        if utterance.words:
            items += cues.words(utterance.words, speaker)
        else:
            items.append(cues.Said(utterance.start, utterance.end, text or "", speaker, mark=True))
    return cues.divide(list(tracks.values()), transcript.audio.heard.end)


def _word(word: Word) -> dict[str, Any]:
    confidence = word.speaker_confidence
    return {
        "start": _ms(word.start),
        "end": _ms(word.end),
        "text": word.text.strip(),
        "speaker": word.speaker,
        "speaker_confidence": None if confidence is None else _ms(confidence),
        "overlap": word.overlap,
        "supported": word.supported,
    }


def _length(audio: Source) -> str:
    """How long the recording is, and what of it was transcribed."""
    whole = clock(audio.duration)
    if audio.part is None:
        return f"{whole} long"
    return f"{clock(audio.part.start)} to {clock(audio.part.end)} of {whole}"


def _part(part: Part | None) -> dict[str, float] | None:
    return None if part is None else {"start": _ms(part.start), "end": _ms(part.end)}


def _model(model: ModelFile | None) -> dict[str, str] | None:
    if model is None:
        return None
    engine = {} if model.engine is None else {"engine": model.engine}
    return {"name": model.name, "sha256": model.sha256, **engine}


def _ms(value: float) -> float:
    return round(float(value), 3)


def _in_lines(utterance: Utterance) -> Utterance:
    """The same, with nothing in its words that could end a line."""
    texts = [one_line(word.text) for word in utterance.words]
    if texts == [word.text for word in utterance.words]:
        return utterance
    words = (replace(word, text=text) for word, text in zip(utterance.words, texts, strict=True))
    return replace(utterance, words=tuple(words))


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|~&])", r"\\\1", one_line(text))


def _vtt(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _srt(text: str) -> str:
    """Players take <b>, {\\an8} and --> for their own, and SubRip has no way to escape them."""
    return text.translate(SRT_SIGNS)


def _cell(text: str | None) -> str | None:
    """Not a formula (owasp.org/www-community/attacks/CSV_Injection); its signs have wide forms, too."""
    first = unicodedata.normalize("NFKC", (text or "").lstrip()[:1])
    return f"'{text}" if first in ("=", "+", "-", "@") else text
