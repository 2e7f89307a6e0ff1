"""DOCX, for Word and LibreOffice, by python-docx (extra `docx`): https://python-docx.readthedocs.io.

What is of one kind has one style, so that a person changes the look of all of it at once.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from witness.formats import notes
from witness.formats.notes import NotedPassage
from witness.formats.reading import Line, Reading, for_xml
from witness.languages import RIGHT_TO_LEFT
from witness.text import clock

if TYPE_CHECKING:
    from docx.document import Document
    from docx.styles.style import CharacterStyle, ParagraphStyle
    from docx.text.paragraph import Paragraph
    from docx.text.run import Run

DATE = (1980, 1, 1, 0, 0, 0)
"""Of the files in the archive: the earliest that it can express. The same transcript gives the same bytes."""
AFTER_DIRECTION = """
adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc textDirection
textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange
"""
"""What comes after the direction among the properties of a paragraph: ECMA-376, part 1, 17.3.1.26."""


def write(reading: Reading) -> bytes:
    """A title, who spoke how much, the warnings; for each line the speaker with the time, and the text."""
    import docx

    document = docx.Document()
    speaker, text, pause, warning, time = _styles(document)
    _set_language(document, reading.transcript.language, [speaker, text])
    _describe(document, for_xml(reading.title))
    document.add_paragraph(for_xml(reading.title), style="Title")
    document.add_paragraph(for_xml(reading.summary), style="Subtitle")
    for about in reading.transcript.warnings:
        _add(document, about, warning)
    found = notes.of(reading.transcript)
    runs: list[list[Run]] = [[] for _ in found]
    for line in reading.lines:
        if line.pause:
            _add(document, line.pause, pause)
        named, timed = (told or line.text is None for told in (reading.named, reading.timed))
        if named or timed:
            head = _add(document, f"{line.speaker} " if named else "", speaker)
            if timed:
                head.add_run(f"[{clock(line.start)}]")._r.style = time.style_id
        if line.text is not None:
            said = _noted(document, line, text, found, runs)
            _in_language(said, line.language, reading.transcript.language)
    for note, own in zip(found, runs, strict=True):
        _comment(document, note, own)
    return _archive(document)


def _noted(
    document: Document,
    line: Line,
    style: ParagraphStyle,
    found: Sequence[NotedPassage],
    runs: list[list[Run]],
) -> Paragraph:
    """The text of a line, highlighted where there are notes; `runs` are the pieces that each is about."""
    from docx.enum.text import WD_COLOR_INDEX

    passages = notes.passages(line, found)
    if not passages:
        return _add(document, line.text or "", style)
    text = line.text or ""
    paragraph = _add(document, "", style)
    edges = sorted({0, len(text), *(at for first, last, _ in passages for at in (first, last))})
    for first, last in pairwise(edges):
        run = paragraph.add_run(for_xml(text[first:last]))
        about = [number for start, end, number in passages if start <= first and last <= end]
        for number in about:
            runs[number].append(run)
        if about:
            run.font.highlight_color = WD_COLOR_INDEX.YELLOW
    return paragraph


def _comment(document: Document, note: NotedPassage, runs: Sequence[Run]) -> None:
    """A comment with the codes and the text, without a date; a mere highlight needs none."""
    from docx.oxml.ns import qn

    if not note.whole:
        return
    if not runs:  # its words were taken out
        runs = [document.add_paragraph(for_xml(f"[{clock(note.start)}]")).runs[0]]
    comment = document.add_comment([runs[0], runs[-1]], for_xml(note.whole))
    element = comment._comment_elm
    element.attrib.pop(qn("w:date"), None)


def _add(document: Document, text: str, style: ParagraphStyle) -> Paragraph:
    """A paragraph; python-docx's own way to give it a style looks at all styles, for each of them anew."""
    paragraph = document.add_paragraph(for_xml(text))
    paragraph._p.style = style.style_id
    return paragraph


def _styles(
    document: Document,
) -> tuple[ParagraphStyle, ParagraphStyle, ParagraphStyle, ParagraphStyle, CharacterStyle]:
    """Of speakers, texts, pauses, warnings and times."""
    from docx.enum.style import WD_STYLE_TYPE
    from docx.shared import Pt, RGBColor

    gray = RGBColor(0x60, 0x60, 0x60)

    def paragraph(name: str, before: float, after: float) -> ParagraphStyle:
        style: ParagraphStyle = document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
        style.base_style = document.styles["Normal"]
        style.quick_style = True  # so that it is offered
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
    """For the spelling, and for the direction of the text in these styles."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    if language is None:
        return
    for element in document.styles.element.iter(qn("w:lang")):
        for script in ("w:val", "w:eastAsia", "w:bidi"):
            element.set(qn(script), language)
    if language in RIGHT_TO_LEFT:
        for style in styles:
            style.font.rtl = True
            after = [f"w:{name}" for name in AFTER_DIRECTION.split()]
            style.element.get_or_add_pPr().insert_element_before(OxmlElement("w:bidi"), *after)


def _in_language(paragraph: Paragraph, language: str | None, usual: str | None) -> None:
    """Say so of a paragraph in another language than the document."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    if language in (None, usual):
        return
    for run in paragraph.runs:
        mark = OxmlElement("w:lang")
        for script in ("w:val", "w:eastAsia", "w:bidi"):
            mark.set(qn(script), str(language))
        run._r.get_or_add_rPr().append(mark)
        run.font.rtl = language in RIGHT_TO_LEFT
    if (language in RIGHT_TO_LEFT) != (usual in RIGHT_TO_LEFT):
        way = OxmlElement("w:bidi")
        way.set(qn("w:val"), "1" if language in RIGHT_TO_LEFT else "0")
        after = [f"w:{name}" for name in AFTER_DIRECTION.split()]
        paragraph._p.get_or_add_pPr().insert_element_before(way, *after)


def _describe(document: Document, title: str) -> None:
    """The properties of the document: not those of python-docx's template."""
    properties = document.core_properties
    properties.title = title[:255]  # the most that it takes
    properties.author = properties.comments = ""
    for element in list(properties._element):  # there is no other way to take a date away
        if element.tag.endswith(("}created", "}modified")):
            properties._element.remove(element)


def _archive(document: Document) -> bytes:
    """The file, without the time at which it was written."""
    written, file = io.BytesIO(), io.BytesIO()
    document.save(written)
    with zipfile.ZipFile(written) as before, zipfile.ZipFile(file, "w") as after:
        for name in before.namelist():
            after.writestr(zipfile.ZipInfo(name, DATE), before.read(name), zipfile.ZIP_DEFLATED)
    return file.getvalue()
