"""EAF, the tiers of ELAN: https://www.mpi.nl/tools/elan/EAF_Annotation_Format_3.0_and_ELAN.pdf."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePath
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from witness.audio import source
from witness.formats.reading import Reading, for_xml, interval, tiers

DATE = "1970-01-01T00:00:00Z"
"""The date that the format requires; a fixed one, so that the same recording gives the same bytes."""
TYPE = "default-lt"
"""ELAN's name for annotations that have times and no parent."""
MIME_TYPES = {".wav": "audio/x-wav", ".mp4": "video/mp4", ".mpg": "video/mpeg", ".mpeg": "video/mpeg"}
"""The types that ELAN distinguishes; for others it looks at the file."""


def write(reading: Reading) -> str:
    """Return a tier for each speaker, an annotation for each line; simultaneous speech stays simultaneous.

    ELAN looks for the recording at its absolute path, then at its path relative to the file, then beside it.
    """
    root = Element(
        "ANNOTATION_DOCUMENT",
        {
            "AUTHOR": "Witness",
            "DATE": DATE,
            "FORMAT": "3.0",
            "VERSION": "3.0",
            "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
            "xsi:noNamespaceSchemaLocation": "http://www.mpi.nl/tools/elan/EAFv3.0.xsd",
        },
    )
    by_name = {name: [interval(line) for line in lines] for name, lines in tiers(reading).items()}
    edges = sorted({edge for tier in by_name.values() for part in tier for edge in (part.start, part.end)})
    slots = {edge: f"ts{number}" for number, edge in enumerate(edges, start=1)}
    _header(root, reading, sum(map(len, by_name.values())))
    order = SubElement(root, "TIME_ORDER")
    for edge, slot in slots.items():
        SubElement(order, "TIME_SLOT", TIME_SLOT_ID=slot, TIME_VALUE=str(edge))
    number = 0
    for name, tier in by_name.items():
        names = {"TIER_ID": for_xml(name), "PARTICIPANT": for_xml(name), "LINGUISTIC_TYPE_REF": TYPE}
        element = SubElement(root, "TIER", names)
        for part in tier:
            number += 1
            annotation = SubElement(
                SubElement(element, "ANNOTATION"),
                "ALIGNABLE_ANNOTATION",
                ANNOTATION_ID=f"a{number}",
                TIME_SLOT_REF1=slots[part.start],
                TIME_SLOT_REF2=slots[part.end],
            )
            SubElement(annotation, "ANNOTATION_VALUE").text = for_xml(part.text)
    fields = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": TYPE, "TIME_ALIGNABLE": "true"}
    SubElement(root, "LINGUISTIC_TYPE", fields)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _header(root: Element, reading: Reading, annotations: int) -> None:
    """Write the recording's path and the number of annotations."""
    header = SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    recording = reading.transcript.audio.path
    if Path(recording).suffix:  # not from standard input, nor from an array
        beside = reading.path.absolute().parent if reading.path is not None else None
        near = source.possible_paths(recording, beside)
        path = Path(next(filter(os.path.isfile, near), recording)).absolute()
        media = {"MEDIA_URL": path.as_uri(), "MIME_TYPE": MIME_TYPES.get(path.suffix.lower(), "unknown")}
        if beside is not None:
            with suppress(ValueError):  # on another drive
                media["RELATIVE_MEDIA_URL"] = _relative(os.path.relpath(path, beside))
        SubElement(header, "MEDIA_DESCRIPTOR", media)
    SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId").text = str(annotations)


def _relative(path: str) -> str:
    """Return a path as ELAN writes it: with slashes, and ./ before a folder below."""
    url = quote(PurePath(path).as_posix().encode("utf-8", "surrogateescape"))
    return url if url.startswith("../") else f"./{url}"
