"""REFI-QDA projects for MAXQDA, ATLAS.ti, NVivo and QualCoder: texts with notes, codes and coded passages.

The standard is https://www.qdasoftware.org, version 1.0 of its project schema: a ZIP of `project.qde` and the
texts. Positions are characters (Unicode code points) of a text, without the end. Every identifier is derived
from the content it stands for, so the same transcripts give the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from witness.formats import qda
from witness.formats.reading import NotedPassage, Reading, for_xml, locate, noted_passages, zipped

SPACE = "urn:QDA-XML:project:1.0"
COLORS = ("#4969D3", "#778907", "#A64993", "#6B2F01", "#0F4F52", "#2197D7", "#B7867E", "#1A1B6E")
"""Colors of the codes, in turn: those of the speakers on the page."""


def write(reading: Reading) -> bytes:
    """Return a project of one transcript."""
    return project(reading.title, [reading])


def project(name: str, readings: Sequence[Reading]) -> bytes:
    """Return a project of some transcripts, which share their codes."""
    noted = [noted_passages(reading.transcript) for reading in readings]
    root = Element("Project", xmlns=SPACE, name=for_xml(name), origin="Witness")
    if codes := sorted({code for passages in noted for passage in passages for code in passage.codes}):
        book = SubElement(SubElement(root, "CodeBook"), "Codes")
        for number, code in enumerate(codes):
            color = COLORS[number % len(COLORS)]
            SubElement(
                book, "Code", guid=_id("code", code), name=for_xml(code), isCodable="true", color=color
            )
    texts = {}
    sources, written = Element("Sources"), Element("Notes")
    for number, (reading, passages) in enumerate(zip(readings, noted, strict=True)):
        text, located = _text(reading, passages)
        key = _id("text", str(number), reading.transcript.audio.sha256)
        texts[f"sources/{key}.txt"] = text.encode()
        source = SubElement(
            sources,
            "TextSource",
            guid=key,
            name=for_xml(reading.title),
            plainTextPath=f"internal://{key}.txt",
        )
        guids = [_id("note", key, str(index)) for index in range(len(passages))]
        for first, last, index in located:
            selection = _selection(source, passages[index], text, first, last, (key, str(index)))
            if passages[index].text:
                SubElement(selection, "NoteRef", targetGUID=guids[index])
        in_text = {index for _, _, index in located}
        for index, passage in enumerate(passages):
            if passage.text:
                note = SubElement(written, "Note", guid=guids[index])
                SubElement(note, "PlainTextContent").text = for_xml(passage.text)
            if passage.text and index not in in_text:  # a correction removed its words
                SubElement(source, "NoteRef", targetGUID=guids[index])
    root.extend(part for part in (sources, written) if len(part))
    content = b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="utf-8")
    return zipped({"project.qde": content, **texts})


def _selection(
    source: Element, passage: NotedPassage, text: str, first: int, last: int, key: tuple[str, str]
) -> Element:
    """Add a coded passage of a text."""
    position = (*key, str(first))
    selection = SubElement(
        source,
        "PlainTextSelection",
        guid=_id("selection", *position),
        name=for_xml(text[first:last][:80]),
        startPosition=str(first),
        endPosition=str(last),
    )
    for code in passage.codes:
        coding = SubElement(selection, "Coding", guid=_id("coding", code, *position))
        SubElement(coding, "CodeRef", targetGUID=_id("code", code))
    return selection


def _text(reading: Reading, passages: Sequence[NotedPassage]) -> tuple[str, list[tuple[int, int, int]]]:
    """Return the text and the positions of the passages in it, in the form of `locate`."""
    text, located = "", []
    for part, line in qda.parts(reading):
        if line is not None:
            start = len(text) + part.rindex(line.text or "")
            located += [(start + first, start + last, index) for first, last, index in locate(line, passages)]
        text += part
    return text, sorted(located)


def _id(*content: str) -> str:
    """Return a UUID that stands for this content and nothing else."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\0".join(("https://github.com/witness", *content))))
