"""Subtitles of words that a person can check."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from witness.formats import cues
from witness.schema import Style, Word


def say(text: str, start: float, pace: float = 0.3, speaker: str = "Anna") -> list[cues.CueText]:
    """The words of a text, one after the other."""
    return [
        cues.CueText(start + n * pace, start + (n + 1) * pace, f" {word}", speaker)
        for n, word in enumerate(text.split())
    ]


def shown(*items: cues.CueText, duration: float = 60.0) -> list[str]:
    """The text of each cue, its lines parted by slashes."""
    return [
        "/".join(text for _, text in cue.parts).replace("\n", "/") for cue in cues.divide([items], duration)
    ]


def test_cues_end_where_sentences_do():
    text = "Good morning, this is Laura at the service desk. How can I help you? I am sorry to hear that."
    assert shown(*say(text, 0)) == [
        "Anna: Good morning, this is Laura/at the service desk. How can I help you?",
        "I am sorry to hear that.",
    ]


def test_lines_break_at_clauses_and_are_about_as_long():
    text = "Your line drops every few minutes, so the box never gets a stable signal."
    assert shown(*say(text, 0)) == [
        "Anna: Your line drops every few minutes,/so the box never gets a stable signal."
    ]
    text = "We have to replace a part and wait for the next report."
    assert shown(*say(text, 0)) == ["Anna: We have to replace a part/and wait for the next report."]


def test_a_long_sentence_breaks_before_a_conjunction_and_leaves_no_word_alone():
    text = "There is a green one at the top of the box and a red one right below it that blinks all day long"
    assert shown(*say(text, 0)) == [
        "Anna: There is a green/one at the top of the box",
        "and a red one right below it/that blinks all day long",
    ]


def test_no_cue_breaks_after_the_first_word_of_a_sentence():
    first = say("I see.", 0)
    then = "Okay, could you tell me your name and the number that is on the back of the box, please?"
    assert shown(*first, *say(then, first[-1].end + 0.1)) == [
        "Anna: I see. Okay,/could you tell me your name",
        "and the number that is on/the back of the box, please?",
    ]


def test_a_cue_starts_with_its_word_and_stays_as_long_as_it_is_read():
    fast = say("Extraordinarily straightforward.", 1.0, 0.2)
    later = say("Yes.", 5.0)
    first, second = cues.divide([[*fast, *later]], 60)
    assert (first.start, second.start) == (1.0, 5.0)
    assert first.end == pytest.approx(1.0 + len("Anna: Extraordinarily straightforward.") / cues.SPEED)
    assert second.end == pytest.approx(5.0 + cues.SHORTEST)
    (only,) = cues.divide([[*fast]], 2.0)
    assert only.end == 2.0  # where the recording ends
    reply = say("Yes, I can see that from over here as well, but what does it mean?", 2.0, speaker="Ben")
    first, second, *_ = cues.divide([[*fast, *reply]], 60)
    assert first.end == second.start == 2.0


def test_a_word_after_a_long_pause_is_not_shown_before_it_is_said():
    assert shown(*say("I think", 0), *say("so.", 3)) == ["Anna: I think", "so."]
    assert shown(*say("I really think", 0), *say("so.", 1.2)) == ["Anna: I really think so."]


def test_two_short_replies_share_a_cue():
    items = [*say("Go ahead.", 0, 0.3), *say("Okay.", 0.6, 0.2, "Ben"), *say("Here is the plan.", 0.8)]
    first, second = cues.divide([items], 60)
    assert first.parts == (("Anna", "Anna: Go ahead."), ("Ben", "Ben: Okay."))
    assert second.parts == (("Anna", "Anna: Here is the plan."),)


def test_speech_without_words_is_a_cue_of_its_own_and_names_its_speaker():
    mark = cues.CueText(2.0, 6.0, "[inaudible]", "Anna", mark=True)
    items = [*say("One two.", 0), mark, *say("three four.", 6)]
    assert shown(*items) == ["Anna: One two.", "Anna: [inaudible]", "three four."]
    assert shown(cues.CueText(0, 4, "", "Anna", mark=True), cues.CueText(4, 6, "", "Anna", mark=True)) == [
        "Anna",
        "Anna",
    ]


def test_tracks_that_overlap_are_named_at_each_change():
    left = [*say("one two three.", 0), *say("And then four.", 6)]
    right = say("Uh-huh.", 0.5, 0.5, "Ben")
    found = cues.divide([left, right], 60)
    assert [cue.parts[0][1] for cue in found] == [
        "Anna: one two three.",
        "Ben: Uh-huh.",
        "Anna: And then four.",
    ]
    assert found[1].start < found[0].end


def test_a_word_before_speech_without_words_is_shown_long_enough():
    """What follows begins later or, where it would be too short then, the word is shown earlier."""
    word = cues.CueText(5.0, 5.08, " Uh", "Anna")
    mark = cues.CueText(5.08, 9.0, "[inaudible]", "Anna", mark=True)
    first, second = cues.divide([[word, mark]], 60)
    assert (first.start, first.end) == (5.0, pytest.approx(5.0 + cues.SHORTEST))
    assert (second.start, second.end) == (first.end, 9.0)
    first, second = cues.divide([[word, cues.CueText(5.08, 5.6, "[inaudible]", "Anna", mark=True)]], 5.6)
    assert (first.start, first.end) == (pytest.approx(5.08 - cues.SHORTEST), 5.08)
    assert (second.start, second.end) == (pytest.approx(5.08), 5.6)


def test_scripts_without_spaces_break_too():
    tokens = ["今天", "天气", "很", "好，", "我们", "一起", "去", "公园", "散步", "吧。"] * 2
    items = [cues.CueText(0.3 * n, 0.3 * (n + 1), text, "李") for n, text in enumerate(tokens)]
    assert shown(*items) == [
        "李: 今天天气很好，我们一起去公园散步吧。/今天天气很好，我们一起去公园散步吧。",
    ]
    thai = ["ผม", "ไม่", "เข้าใจ", "ว่า", "คุณ", "หมายถึง", "อะไร", "ครับ"] * 5
    items = [cues.CueText(0.3 * n, 0.3 * (n + 1), text, "A") for n, text in enumerate(thai)]
    lines = [line for cue in shown(*items) for line in cue.split("/")]
    assert len(lines) == 4
    assert all(cell_len(line) <= Style.line_width for line in lines)


def test_a_corrected_passage_is_divided_like_words():
    passage = Word(10, 20, " We met in the spring. Then we went on a long journey through the whole country.")
    found = list(cues.words([passage], "Anna"))
    assert [item.text for item in found[:3]] == [" We", " met", " in"]
    assert (found[0].start, found[-1].end) == (10, pytest.approx(20))
    assert shown(*found)[0].startswith("Anna: We met in the spring.")
    endless = list(cues.words([Word(0, 6, " " + "x" * 100)], "Anna"))
    assert [cell_len(item.text) for item in endless] == [42, 42, 17]


def test_a_name_longer_than_a_line_is_shortened():
    (cue,) = shown(*say("Hello there.", 0, speaker="N" * 60))
    assert cue == "N" * 40 + "…:/Hello there."


spoken = st.tuples(
    st.sampled_from(["a", "well", "however,", "yes.", "no?", "extraordinarily", "and", "你好。", "x" * 50]),
    st.floats(0, 1.5),
    st.floats(0, 1),
    st.sampled_from(["Anna", "Ben", "C" * 45]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(spoken, max_size=40))
def test_every_word_is_shown_once_in_lines_that_fit(parts):
    place, items = 0.0, []
    for text, gap, length, speaker in parts:
        items += cues.words([Word(place + gap, place + gap + length, f" {text}")], speaker)
        place += gap + length
    found = cues.divide([items], place)
    before = 0.0
    for cue in found:
        lines = [line for _, text in cue.parts for line in text.split("\n")]
        assert 1 <= len(lines) <= 2
        assert all(0 < cell_len(line) <= Style.line_width for line in lines)
        assert before <= cue.start < cue.end
        before = cue.end
    text = " ".join(
        text.removeprefix(f"{speaker[:40]}…:" if len(speaker) > 41 else f"{speaker}:")
        for cue in found
        for speaker, text in cue.parts
    )
    assert "".join(text.split()) == "".join("".join(item.text for item in items).split())
