"""Notes, highlights and codes: where they are, what they survive, and the programs that they are for."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import talks
from conftest import in_process
from test_edits import edit, spelling
from witness.errors import InputError
from witness.formats import json_document, qda, qdpx, reading, writers
from witness.schema import Correction, Transcript
from witness.transcript import edits, rebuild, store

CALL = json_document.in_milliseconds(talks.call())
SPACE = {"q": qdpx.SPACE}


def place(transcript: Transcript, first: int, last: int):
    """Where some words are, as a page says it."""
    middles = [(word.start + word.end) / 2 for word in transcript.words[first:last]]
    return tuple((middle - 0.001, middle + 0.001) for middle in middles)


def note(transcript: Transcript, first: int, last: int, text: str | None = "", *codes: str) -> Correction:
    return Correction("note", (), None, place(transcript, first, last), text, codes)


def noted(*given: Correction) -> Transcript:
    return replace(CALL, corrections=given)


def test_of_several_notes_on_the_same_words_the_last_one_counts():
    found = reading.noted_passages(
        noted(
            note(CALL, 5, 9, "Later"),
            note(CALL, 2, 6, "Why?"),
            note(CALL, 2, 6, "Why not?", "Trust", "Money"),
            note(CALL, 3, 4, "gone"),
            note(CALL, 3, 4, None),
            note(CALL, 0, 1),
        )
    )
    assert [(one.text, one.codes) for one in found] == [
        ("", ()),
        ("Why not?", ("Trust", "Money")),
        ("Later", ()),
    ]
    assert found[1].quote == "".join(word.text for word in CALL.words[2:6]).strip()
    assert (found[1].start, found[1].end) == (CALL.words[2].start, CALL.words[5].end)
    assert found[1].whole == "Trust, Money\nWhy not?"


def test_word_has_them_as_comments_on_the_words():
    docx = pytest.importorskip("docx")
    given = noted(note(CALL, 2, 6, "Why?\nReally?", "Trust"), note(CALL, 4, 30, "Long"), note(CALL, 0, 1))
    content = writers.content(given, "docx")
    assert writers.content(given, "docx") == content  # no date
    found = docx.Document(io.BytesIO(content))
    assert [one.text for one in found.comments] == ["Trust\nWhy?\nReally?", "Long"]
    plain = docx.Document(io.BytesIO(writers.content(CALL, "docx")))
    assert [one.text for one in found.paragraphs] == [one.text for one in plain.paragraphs]
    marked = [run.text for one in found.paragraphs for run in one.runs if run.font.highlight_color]
    assert "".join(CALL.words[0].text.split()) == marked[0]
    body = found.element.xml
    assert body.index("commentRangeStart") < body.index("commentRangeEnd")


def test_a_qda_project_has_the_text_the_codes_and_the_passages():
    """As the standard's schema asks; the project below was valid by it when this was written."""
    given = noted(
        note(CALL, 2, 6, "Why?", "Trust", "Money"), note(CALL, 4, 30, "", "Trust"), note(CALL, 0, 1)
    )
    content = writers.content(given, "qdpx")
    assert writers.content(given, "qdpx") == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        project = ElementTree.fromstring(archive.read("project.qde"))  # noqa: S314 - our own
        names = archive.namelist()
        text = archive.read(names[1]).decode()
    assert text == qda.write(reading.read(CALL))
    assert [part.tag.partition("}")[2] for part in project] == ["CodeBook", "Sources", "Notes"]
    codes = {one.get("guid"): one.get("name") for one in project.findall("q:CodeBook/q:Codes/q:Code", SPACE)}
    assert sorted(codes.values()) == ["Money", "Trust"]
    (source,) = project.findall("q:Sources/q:TextSource", SPACE)
    assert source.get("plainTextPath") == f"internal://{source.get('guid')}.txt"
    assert names == ["project.qde", f"sources/{source.get('guid')}.txt"]
    coded: dict[str, str] = {}
    for one in source.findall("q:PlainTextSelection", SPACE):
        piece = text[int(one.attrib["startPosition"]) : int(one.attrib["endPosition"])]
        for reference in one.findall("q:Coding/q:CodeRef", SPACE):
            name = codes[reference.get("targetGUID")]
            coded[name] = f"{coded.get(name, '')} {piece}".strip()
    assert coded["Money"] == reading.noted_passages(given)[1].quote
    assert reading.noted_passages(given)[2].quote.split()[-1] in coded["Trust"]
    (written,) = project.findall("q:Notes/q:Note", SPACE)
    assert written.findtext("q:PlainTextContent", "", SPACE) == "Why?"
    assert source.find(f".//q:NoteRef[@targetGUID='{written.get('guid')}']", SPACE) is not None
    guids = [one.get("guid") for one in project.iter() if one.get("guid")]
    assert len(guids) == len(set(guids))


def test_a_note_on_words_that_were_taken_out_stays():
    lost = Correction("note", (), None, ((9000.0, 9001.0),), "Where is it?", ("Gone",))
    found = reading.noted_passages(noted(lost))
    assert [(one.quote, one.start, one.text) for one in found] == [("", 9000.0, "Where is it?")]
    with zipfile.ZipFile(io.BytesIO(writers.content(noted(lost), "qdpx"))) as archive:
        project = ElementTree.fromstring(archive.read("project.qde"))  # noqa: S314 - our own
    assert project.findtext("q:Notes/q:Note/q:PlainTextContent", "", SPACE) == "Where is it?"
    assert project.find("q:Sources/q:TextSource/q:NoteRef", SPACE) is not None
    docx = pytest.importorskip("docx")
    comments = docx.Document(io.BytesIO(writers.content(noted(lost), "docx"))).comments
    assert [one.text for one in comments] == ["Gone\nWhere is it?"]


def written(path, *given: Correction) -> edits.Edit:
    """What a page sends of notes."""
    made = edit(path)
    corrections = [
        {"kind": one.kind, "speaker": [], "name": None, "other": one.other, "text": one.text}
        | ({"codes": one.codes} if one.kind == "note" else {"at": one.at})
        for one in given
    ]
    steps = tuple(({"kind": one.kind},) for one in given)
    return replace(made, steps=steps, corrections={**made.corrections, "corrections": corrections})


@pytest.mark.parametrize("findings", [True, False])
def test_notes_and_times_of_paragraphs_survive_what_follows(shelved, findings):
    path = shelved
    if not findings:
        (path.parent / "toned.findings.npz").unlink()
    before = store.read(path)
    word = before.utterances[1].words[0]
    number = before.words.index(word)
    start = Correction("start", (), None, place(before, number, number + 1), at=word.start - 0.25)
    edits.save(path, written(path, note(before, 2, 6, "Why?", "Trust"), start))
    assert in_process(path.parent, "redo", path, "--name", "SPEAKER_01=Bo").returncode == 0
    edits.add_corrections(
        path, edits.show(path).version, edit(path, spelling(path, 3, "Zanzibar")).corrections
    )
    after = store.read(path)
    assert [(one.text, one.codes) for one in reading.noted_passages(after)] == [("Why?", ("Trust",))]
    assert "Zanzibar" in reading.noted_passages(after)[0].quote
    assert word.start - 0.25 in [round(one.start, 3) for one in after.utterances]
    assert [one.start for one in after.words] == [one.start for one in before.words]
    if findings:
        again = rebuild.rebuild(rebuild.recounted(rebuild.read(path), replace(after.asked, speakers=1)))
        assert len(reading.noted_passages(again)) == 1
        machine = rebuild.rebuild(rebuild.forgotten(rebuild.read(path)))
        assert [one.kind for one in machine.corrections] == ["note"]


@pytest.mark.parametrize(
    "wrong", [{"codes": ["a\u202eb"]}, {"codes": [""]}, {"text": "a\u0000b"}, {"at": 3.0}, {"other": []}]
)
def test_notes_that_cannot_be_are_refused(shelved, wrong):
    made = written(shelved, note(store.read(shelved), 2, 6, "Why?", "Trust"))
    made.corrections["corrections"][0] |= wrong
    before = shelved.read_bytes()
    with pytest.raises(InputError):
        edits.save(shelved, made)
    assert shelved.read_bytes() == before
    assert json.loads(before)["corrections"] == []
