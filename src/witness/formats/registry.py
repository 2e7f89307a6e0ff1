"""The formats of a transcript: a line for each; a module of that name beside this one writes it.

A new format is its line here and its module, whose `write(reading)` returns the text or the bytes. The
command line, the desk, the API and the documentation read this table. It imports nothing heavy.
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
"""All parts of a style that a document shows or leaves out."""
SPOKEN = "names fillers"
"""The parts that a subtitle shows or leaves out."""
DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@dataclass(frozen=True)
class About:
    """Properties of a format."""

    label: str
    """The purpose in a few words."""
    media_type: str = "text/plain"
    ending: str | None = None
    """The ending of its files after `NAME.`, if it is not the word alone.

    It begins with the word and ends with the suffix that programs look for, so two formats of a recording
    never share a file.
    """
    extra: str = ""
    """The package extra that it requires."""
    library: str | None = None
    """The module that this extra installs."""
    package: str | None = None
    """The name of that module's package."""
    binary: bool = False
    """True if a terminal cannot show it."""
    sound: bool = False
    """True if it holds the recording, or a link to it."""
    purpose: str = DATA
    """One of PURPOSES."""
    shows: str = ""
    """The parts of `schema.Style` that it follows: of "times", "names", "pauses" and "fillers"."""

    labels: bool = False
    """True if it shows a speaker without a name as `Speaker 1`, False if as SPEAKER_01."""

    @property
    def smooth(self) -> bool:
        """True if it can leave fillers out: a subtitle or a document, not data."""
        return "fillers" in self.shows.split()


PLAIN = About("text")


class Format(Choice):
    """Format of a transcript."""

    about: About

    def __new__(cls, word: str, about: About = PLAIN) -> Format:
        self = str.__new__(cls, word)
        self._value_ = word
        self.about = about
        return self

    TXT = "txt", About("text, a line per utterance", purpose=READ, shows=EVERYTHING)
    MD = "md", About("Markdown", "text/markdown", purpose=READ, shows=EVERYTHING, labels=True)
    JSON = "json", About("everything, for programs", "application/json")
    SRT = (
        "srt",
        About("subtitles", "application/x-subrip", purpose=SUBTITLES, shows=SPOKEN, labels=True),
    )
    VTT = (
        "vtt",
        About("subtitles for the web", "text/vtt", purpose=SUBTITLES, shows=SPOKEN, labels=True),
    )
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
            labels=True,
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
        """The ending of its files after `NAME.`."""
        return self.about.ending or self.value

    @property
    def installed(self) -> bool:
        """True if its dependencies are installed."""
        return self.about.library is None or find_spec(self.about.library) is not None
