"""REFI-QDA projects for MAXQDA, ATLAS.ti, NVivo and QualCoder: texts with notes, codes and coded passages.

The standard is https://www.qdasoftware.org, version 1.0 of its project schema: a ZIP of `project.qde` and the
texts. Positions are characters (Unicode code points) of a text, without the end. Every identifier is made
of what it stands for, so the same transcripts give the same bytes.
"""

from __future__ import annotations

import io
import uuid
import zipfile
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from witness.formats import notes, qda
from witness.formats.notes import NotedPassage
from witness.formats.reading import Reading, for_xml

SPACE = "urn:QDA-XML:project:1.0"
DATE = (1980, 1, 1, 0, 0, 0)
"""Of the files in the archive: the earliest that it can express."""
COLORS = ("#4969D3", "#778907", "#A64993", "#6B2F01", "#0F4F52", "#2197D7", "#B7867E", "#1A1B6E")
"""Of codes, in turn: those of the speakers of the page."""


def write(reading: Reading) -> bytes:
    """A project of one transcript."""
    return project(reading.title, [reading])


def project(name: str, readings: Sequence[Reading]) -> bytes:
    """A project of some transcripts, which share their codes."""
    found = [notes.of(reading.transcript) for reading in readings]
    root = Element("Project", xmlns=SPACE, name=for_xml(name), origin="Witness")
    if codes := notes.codes(note for own in found for note in own):
        book = SubElement(SubElement(root, "CodeBook"), "Codes")
        for number, code in enumerate(codes):
            color = COLORS[number % len(COLORS)]
            SubElement(
                book, "Code", guid=_id("code", code), name=for_xml(code), isCodable="true", color=color
            )
    texts = {}
    sources, written = Element("Sources"), Element("Notes")
    for number, (reading, own) in enumerate(zip(readings, found, strict=True)):
        text, passages = _text(reading, own)
        key = _id("text", str(number), reading.transcript.audio.sha256)
        texts[f"sources/{key}.txt"] = text.encode()
        source = SubElement(
            sources,
            "TextSource",
            guid=key,
            name=for_xml(reading.title),
            plainTextPath=f"internal://{key}.txt",
        )
        guids = [_id("note", key, str(which)) for which in range(len(own))]
        for first, last, which in passages:
            selection = _selection(source, own[which], text, first, last, (key, str(which)))
            if own[which].text:
                SubElement(selection, "NoteRef", targetGUID=guids[which])
        lost = set(range(len(own))) - {which for _, _, which in passages}  # their words were taken out
        for which, note in enumerate(own):
            if note.text:
                _note(written, guids[which], note)
            if note.text and which in lost:
                SubElement(source, "NoteRef", targetGUID=guids[which])
    root.extend(part for part in (sources, written) if len(part))
    content = b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="utf-8")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path, data in {"project.qde": content, **texts}.items():
            archive.writestr(zipfile.ZipInfo(path, DATE), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _selection(
    source: Element, note: NotedPassage, text: str, first: int, last: int, key: tuple[str, str]
) -> Element:
    """A coded passage of a text."""
    place = (*key, str(first))
    selection = SubElement(
        source,
        "PlainTextSelection",
        guid=_id("selection", *place),
        name=for_xml(text[first:last][:80]),
        startPosition=str(first),
        endPosition=str(last),
    )
    for code in note.codes:
        coding = SubElement(selection, "Coding", guid=_id("coding", code, *place))
        SubElement(coding, "CodeRef", targetGUID=_id("code", code))
    return selection


def _note(written: Element, guid: str, note: NotedPassage) -> None:
    SubElement(SubElement(written, "Note", guid=guid), "PlainTextContent").text = for_xml(note.text)


def _text(reading: Reading, own: Sequence[NotedPassage]) -> tuple[str, list[tuple[int, int, int]]]:
    """The text, and which characters of it each note is about, as `notes.passages` tells of a line."""
    text, found = "", []
    for part, line in qda.parts(reading):
        for first, last, number in notes.passages(line, own) if line is not None else ():
            start = len(text) + part.rindex(line.text or "") if line is not None else 0
            found.append((start + first, start + last, number))
        text += part
    return text, sorted(found)


def _id(*of: str) -> str:
    """A UUID that stands for this and nothing else."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\0".join(("https://github.com/witness", *of))))
