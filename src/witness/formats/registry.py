"""The formats of a transcript: a line for each, and a module of that name beside this one that writes it.

A new format is its line here and its module, whose `write(reading)` gives the text or the bytes. The command
line, the desk, the API and the documentation read this table. It imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from witness.options import Choice

READ, SUBTITLES, ANALYSIS, DATA, SCORING = PURPOSES = (
    "To read and edit",
    "Subtitles",
    "For software that codes and annotates",
    "Tables and data",
    "For scorers",
)
EVERYTHING = "times names pauses fillers"
"""The parts of a style that a document shows or leaves out."""
DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@dataclass(frozen=True)
class About:
    """What there is to know of a format beside its word."""

    label: str
    """What it is for, in a few words."""
    media_type: str = "text/plain"
    ending: str | None = None
    """What its files end with after `NAME.`, if not with the word alone.

    It ends with what programs look for and begins with the word, so two formats of one recording are never
    one file.
    """
    extra: str = ""
    """The extra of the package that it needs."""
    library: str | None = None
    """The module that this extra brings, and the name of its package."""
    package: str | None = None
    binary: bool = False
    """Not text, which a terminal could show."""
    sound: bool = False
    """Whether it holds the recording, or a link to it."""
    purpose: str = DATA
    """One of PURPOSES: what people want it for."""
    shows: str = ""
    """Which parts of `schema.Style` it follows, of "times", "names", "pauses" and "fillers"."""

    @property
    def smooth(self) -> bool:
        """Whether fillers are left out of it if a person wants that: a subtitle or a document, not data."""
        return "fillers" in self.shows.split()


PLAIN = About("text")


class Format(Choice):
    """Of a transcript."""

    about: About

    def __new__(cls, word: str, about: About = PLAIN) -> Format:
        self = str.__new__(cls, word)
        self._value_ = word
        self.about = about
        return self

    TXT = "txt", About("text, a line per utterance", purpose=READ, shows=EVERYTHING)
    MD = "md", About("Markdown", "text/markdown", purpose=READ, shows=EVERYTHING)
    JSON = "json", About("everything, for programs", "application/json")
    SRT = "srt", About("subtitles", "application/x-subrip", purpose=SUBTITLES, shows="names fillers")
    VTT = "vtt", About("subtitles for the web", "text/vtt", purpose=SUBTITLES, shows="names fillers")
    RTTM = "rttm", About("who spoke when", purpose=SCORING)
    CSV = "csv", About("a table", "text/csv")
    TSV = "tsv", About("a table as Whisper writes it", "text/tab-separated-values")
    HTML = "html", About("a page to read, hear and correct", "text/html", sound=True, purpose=READ)
    DOCX = (
        "docx",
        About(
            "Word",
            DOCX_TYPE,
            extra="docx",
            library="docx",
            package="python-docx",
            binary=True,
            purpose=READ,
            shows=EVERYTHING,
        ),
    )
    QDA = "qda", About("MAXQDA, NVivo, ATLAS.ti", ending="qda.txt", purpose=ANALYSIS, shows="pauses fillers")
    QDPX = (
        "qdpx",
        About(
            "REFI-QDA: notes and codes",
            "application/zip",
            binary=True,
            purpose=ANALYSIS,
            shows="pauses fillers",
        ),
    )
    EAF = "eaf", About("ELAN", "application/xml", purpose=ANALYSIS)
    TEXTGRID = "textgrid", About("Praat", ending="TextGrid", purpose=ANALYSIS)
    AUDACITY = (
        "audacity",
        About("Audacity labels", "text/tab-separated-values", "audacity.txt", purpose=ANALYSIS),
    )
    CTM = "ctm", About("words, for scorers", purpose=SCORING)
    STM = "stm", About("segments, for scorers", purpose=SCORING)
    SEGLST = "seglst", About("segments, for meeteval", "application/json", "seglst.json", purpose=SCORING)
    WHISPERX = "whisperx", About("JSON as whisperX writes it", "application/json", "whisperx.json")
    OPENAI = "openai", About("JSON as OpenAI writes it", "application/json", "openai.json")
    PODCAST = "podcast", About("JSON for podcasts", "application/json", "podcast.json", shows="fillers")

    @property
    def ending(self) -> str:
        """What its files end with after `NAME.`."""
        return self.about.ending or self.value

    @property
    def installed(self) -> bool:
        """Whether everything that it needs is."""
        return self.about.library is None or find_spec(self.about.library) is not None
