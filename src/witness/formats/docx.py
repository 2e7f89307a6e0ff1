"""DOCX, for Word and LibreOffice, by python-docx (extra `docx`): https://python-docx.readthedocs.io.

Speakers, texts, pauses and times have a style each, so that a person changes the look of all at once.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import docx
from docx.document import Document
from docx.enum.style import WD_STYLE_TYPE
from docx.enum.text import WD_COLOR_INDEX
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Pt, RGBColor
from docx.styles.style import CharacterStyle, ParagraphStyle
from docx.text.paragraph import Paragraph
from docx.text.run import Run

from witness.formats.reading import Line, NotedPassage, Reading, for_xml, locate, noted_passages, zipped
from witness.languages import RIGHT_TO_LEFT
from witness.text import clock

AFTER_DIRECTION = """
adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc textDirection
textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange
"""
"""Properties of a paragraph that follow the direction: ECMA-376, part 1, 17.3.1.26."""


def write(reading: Reading) -> bytes:
    """Return title, speakers' shares and warnings; for each line the speaker with the time, and the text."""
    document = docx.Document()
    speaker, text, pause, warning, time = _styles(document)
    _set_language(document, reading.transcript.language, [speaker, text])
    _describe(document, for_xml(reading.title))
    document.add_paragraph(for_xml(reading.title), style="Title")
    document.add_paragraph(for_xml(reading.summary), style="Subtitle")
    for about in reading.warnings:
        _add(document, about, warning)
    passages = noted_passages(reading.transcript)
    runs: list[list[Run]] = [[] for _ in passages]
    for line in reading.lines:
        if line.pause:
            _add(document, line.pause, pause)
        named, timed = (shown or line.text is None for shown in (reading.named, reading.timed))
        if named or timed:
            head = _add(document, f"{line.speaker} " if named else "", speaker)
            if timed:
                head.add_run(f"[{clock(line.start)}]")._r.style = time.style_id
        if line.text is not None:
            said = _noted(document, line, text, passages, runs)
            _in_language(said, line.language, reading.transcript.language)
    for passage, pieces in zip(passages, runs, strict=True):
        _comment(document, passage, pieces)
    file = io.BytesIO()
    document.save(file)
    with zipfile.ZipFile(file) as archive:  # python-docx writes the time into it
        return zipped({name: archive.read(name) for name in archive.namelist()})


def _noted(
    document: Document,
    line: Line,
    style: ParagraphStyle,
    passages: Sequence[NotedPassage],
    runs: list[list[Run]],
) -> Paragraph:
    """Add the text of a line, with noted passages highlighted; `runs` collects the pieces of each passage."""
    located = locate(line, passages)
    if not located:
        return _add(document, line.text or "", style)
    text = line.text or ""
    paragraph = _add(document, "", style)
    edges = sorted({0, len(text), *(at for first, last, _ in located for at in (first, last))})
    for first, last in pairwise(edges):
        run = paragraph.add_run(for_xml(text[first:last]))
        numbers = [number for start, end, number in located if start <= first and last <= end]
        for number in numbers:
            runs[number].append(run)
        if numbers:
            run.font.highlight_color = WD_COLOR_INDEX.YELLOW
    return paragraph


def _comment(document: Document, passage: NotedPassage, runs: Sequence[Run]) -> None:
    """Add a comment with the codes and the text, without a date; a mere highlight needs none."""
    if not passage.whole:
        return
    if not runs:  # a correction removed its words
        runs = [document.add_paragraph(for_xml(f"[{clock(passage.start)}]")).runs[0]]
    comment = document.add_comment([runs[0], runs[-1]], for_xml(passage.whole))
    comment._comment_elm.attrib.pop(qn("w:date"), None)


def _add(document: Document, text: str, style: ParagraphStyle) -> Paragraph:
    """Add a paragraph; python-docx's own way to style it searches all styles for each paragraph."""
    paragraph = document.add_paragraph(for_xml(text))
    paragraph._p.style = style.style_id
    return paragraph


def _styles(
    document: Document,
) -> tuple[ParagraphStyle, ParagraphStyle, ParagraphStyle, ParagraphStyle, CharacterStyle]:
    """Return the styles of speakers, texts, pauses, warnings and times."""
    gray = RGBColor(0x60, 0x60, 0x60)

    def paragraph(name: str, before: float, after: float) -> ParagraphStyle:
        style: ParagraphStyle = document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
        style.base_style = document.styles["Normal"]
        style.quick_style = True  # for the list of styles in Word
        style.paragraph_format.space_before, style.paragraph_format.space_after = Pt(before), Pt(after)
        return style

    text = paragraph("Transcript Text", 0, 8)
    speaker = paragraph("Transcript Speaker", 4, 0)
    speaker.font.bold = True
    speaker.paragraph_format.keep_with_next = True
    speaker.next_paragraph_style = text
    pause = paragraph("Transcript Pause", 0, 8)
    pause.font.color.rgb = gray
    warning = paragraph("Transcript Warning", 0, 4)
    warning.font.italic = True
    time: CharacterStyle = document.styles.add_style("Transcript Time", WD_STYLE_TYPE.CHARACTER)
    time.quick_style = True
    time.font.bold = False
    time.font.color.rgb = gray
    return speaker, text, pause, warning, time


def _set_language(document: Document, language: str | None, styles: Sequence[ParagraphStyle]) -> None:
    """Set the language for the spelling, and the direction of the text in these styles."""
    if language is None:
        return
    for element in document.styles.element.iter(qn("w:lang")):
        _name_language(element, language)
    if language in RIGHT_TO_LEFT:
        for style in styles:
            style.font.rtl = True
            _insert_direction(style.element, OxmlElement("w:bidi"))


def _in_language(paragraph: Paragraph, language: str | None, usual: str | None) -> None:
    """Mark a paragraph in another language than the document."""
    if language in (None, usual):
        return
    for run in paragraph.runs:
        mark = OxmlElement("w:lang")
        _name_language(mark, str(language))
        run._r.get_or_add_rPr().append(mark)
        run.font.rtl = language in RIGHT_TO_LEFT
    if (language in RIGHT_TO_LEFT) != (usual in RIGHT_TO_LEFT):
        direction = OxmlElement("w:bidi")
        direction.set(qn("w:val"), "1" if language in RIGHT_TO_LEFT else "0")
        _insert_direction(paragraph._p, direction)


def _name_language(element: Any, language: str) -> None:
    for script in ("w:val", "w:eastAsia", "w:bidi"):
        element.set(qn(script), language)


def _insert_direction(element: Any, direction: Any) -> None:
    after = [f"w:{name}" for name in AFTER_DIRECTION.split()]
    element.get_or_add_pPr().insert_element_before(direction, *after)


def _describe(document: Document, title: str) -> None:
    """Replace the properties that python-docx's template has."""
    properties = document.core_properties
    properties.title = title[:255]  # the limit of the property
    properties.author = properties.comments = ""
    for element in list(properties._element):  # python-docx has no method to remove a date
        if element.tag.endswith(("}created", "}modified")):
            properties._element.remove(element)
