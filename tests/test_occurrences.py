"""Words written otherwise: where they are said, and the step that a page can undo."""

from __future__ import annotations

import pytest

from test_serve_library import talk
from witness.errors import ConflictError, UsageError
from witness.transcript import corrections, edits, rebuild, store


def test_each_place_is_shown_with_its_words():
    said = talk(("SPEAKER_01", " Frau Maier met a maier, and Maier left"), ("SPEAKER_02", " Maier?"))
    found = corrections.find_occurrences(said, "maier", "Meyer")
    assert [(one.before, one.old, one.new, one.after) for one in found][:2] == [
        ("Frau", "Maier", "Meyer", "met a maier, and Maier left Maier?"),
        ("Frau Maier met a", "maier,", "Meyer,", "and Maier left Maier?"),
    ]
    assert len({one.place for one in found}) == 4
    assert corrections.find_occurrences(said, "frau maier", "Mrs. Meyer")[0].new == "Mrs. Meyer"
    for heard, written in (("", "x"), ("maier", " "), ("maier", "a\nb"), ("maier", "x" * 10_001)):
        with pytest.raises(UsageError):
            corrections.find_occurrences(said, heard, written)


def test_what_is_written_otherwise_can_be_undone_and_keeps_what_was_corrected(shelved):
    text = store.read(shelved)
    word = text.words[3].text.strip()
    count = sum(one.text.strip().casefold() == word.casefold() for one in text.words)
    found = corrections.find_occurrences(text, word, "Zanzibar")
    assert len(found) == count > 1
    edits.name_speaker(shelved, edits.show(shelved).version, rebuild.read(shelved).find("SPEAKER_01"), "Ann")
    version = edits.show(shelved).version
    chosen = [one.place for one in found][1:]
    edits.rewrite_words(shelved, version, word, "Zanzibar", chosen)
    now = store.read(shelved)
    assert sum(one.text.strip() == "Zanzibar" for one in now.words) == count - 1
    shown = edits.show(shelved)
    assert [len(step) for step in shown.steps] == [1, count - 1]  # the name is a step of its own
    assert "Ann" in {one.name for one in now.speakers}
    with pytest.raises(ConflictError):
        edits.rewrite_words(shelved, version, word, "Zanzibar", chosen)
    again = corrections.find_occurrences(now, "zanzibar", "Sansibar")  # what was corrected is corrected again
    edits.rewrite_words(shelved, shown.version, "zanzibar", "Sansibar", [one.place for one in again])
    texts = [one.text.strip() for one in store.read(shelved).words]
    assert (texts.count("Sansibar"), texts.count("Zanzibar")) == (count - 1, 0)
    assert len(texts) == len(text.words)
    with pytest.raises(UsageError, match="not said"):
        edits.rewrite_words(shelved, edits.show(shelved).version, word, "Zanzibar", [-1])
