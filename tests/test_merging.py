import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from witness.schema import FRAME_STEP, Turn, Utterance, Word
from witness.transcript import assemble
from witness.transcript.corrections import find_inaudible, group_utterances

NAMES = ["A", "B"]


def label(*given) -> list[Word]:
    words, _ = assemble.label(*given)
    return words


def activity(*spans: tuple[float, float, int], seconds: float = 20.0, speakers: int = 2) -> np.ndarray:
    """(frames, speakers), 1 where a span (start, end, speaker) lies."""
    result = np.zeros((round(seconds / FRAME_STEP), speakers), np.float32)
    for start, end, speaker in spans:
        result[round(start / FRAME_STEP) : round(end / FRAME_STEP), speaker] = 1
    return result


def say(text: str, start: float, pace: float = 0.4, gap: float = 0.0) -> list[Word]:
    return [
        Word(start + i * (pace + gap), start + i * (pace + gap) + pace, f" {word}")
        for i, word in enumerate(text.split())
    ]


def who(words, evidence) -> str:
    return "".join(word.speaker or "-" for word in label(words, evidence, evidence > 0.5, NAMES))


def test_each_turn_in_another_language_is_an_utterance():
    turns = [Turn(0, 4, "A"), Turn(4, 5, "B"), Turn(5, 5.3, "A"), Turn(8, 11, "B")]
    foreign = ((0.0, 6.0),)
    found = find_inaudible(turns, [], foreign)
    assert [(one.start, one.end, one.speaker, one.not_english) for one in found] == [
        (0, 4, "A", True),
        (4, 5, "B", True),
        (8, 11, "B", False),
    ]
    # Whoever are one person now have no edge between them, and none of the edges moves.
    (one, _) = find_inaudible(turns, [], foreign, {"B": "A"})
    assert (one.start, one.end, one.speaker) == (0, 5, "A")


def test_words_go_to_whoever_speaks():
    evidence = activity((0, 2, 0), (2, 4, 1))
    assert who(say("this is the question. and this the answer.", 0, 0.5), evidence) == "AAAABBBB"


def test_a_word_on_the_edge_of_a_turn_stays_with_its_sentence():
    evidence = activity((0, 1.85, 0), (1.85, 4, 1))
    # The last word of the first sentence is timed a little late and lies across the edge.
    words = [*say("that was all.", 0, 0.5), Word(1.7, 2.15, " Thanks."), *say("you are welcome", 2.4)]
    assert who(words[:3] + words[4:], evidence) == "AAABBB"
    assert who(words, evidence)[:3] == "AAA"


def test_a_word_without_a_time_goes_with_its_sentence_and_is_unsure():
    evidence = activity((0, 1.9, 0), (2.5, 5, 1))
    words = [
        *say("could you spell that for me,", 0, 0.3),
        Word(2.7, 2.7, " please?"),
        *say("it is Oyelaran.", 2.75),
    ]
    assert who(words, evidence) == "AAAAAAABBB"
    found = label(words, evidence, evidence > 0.5, NAMES)
    assert found[6].speaker_confidence < 0.5
    assert all(word.speaker_confidence > 0.9 for word in found[:6])
    # The first word of a sentence, timed at the end of what another said before.
    words = [*say("that was all.", 0, 0.5), Word(1.6, 1.6, " How"), *say("can I help you?", 2.6)]
    assert who(words, evidence) == "AAABBBBB"


def test_a_short_reply_inside_anothers_sentence_survives():
    evidence = activity((0, 2, 0), (2, 2.6, 1), (2.6, 5, 0))
    words = [*say("so we went there and", 0), Word(2.1, 2.5, " Right."), *say("then we came back", 2.7)]
    assert who(words, evidence) == "AAAAABAAAA"


def test_a_weak_flicker_does_not_flip_a_word():
    evidence = activity((0, 4, 0))
    evidence[round(1.6 / FRAME_STEP) : round(2.0 / FRAME_STEP), 1] = 1.0  # both, equally
    assert who(say("one two three four five six seven", 0), evidence) == "AAAAAAA"


def test_words_over_silence_get_no_speaker():
    evidence = activity((0, 2, 0))
    words = label([*say("hello there", 0), *say("thank you for watching", 10)], evidence, evidence > 0, NAMES)
    assert [word.speaker for word in words] == ["A", "A", None, None, None, None]
    assert [word.supported for word in words] == [True, True, False, False, False, False]
    assert words[2].speaker_confidence is None
    assert words[0].speaker_confidence == pytest.approx(1.0)


def test_a_word_just_beside_the_speech_is_not_over_silence():
    evidence = activity((1, 3, 1))
    assert who([Word(0.55, 0.95, " Well,")], evidence) == "B"


def test_overlap_is_marked():
    evidence = activity((0, 4, 0), (2, 4, 1))
    words = label(say("a b c d e f g h", 0, 0.5), evidence, evidence > 0.5, NAMES)
    assert [word.overlap for word in words] == [False] * 4 + [True] * 4


def test_nobody_speaks_at_all():
    words = label(say("ghost words"[:5], 1), np.zeros((100, 0), np.float32), np.zeros((100, 0), bool), [])
    assert [(word.speaker, word.supported) for word in words] == [(None, False)]
    assert label([], activity(), activity() > 0, NAMES) == []


def test_utterances_follow_the_speakers_and_the_pauses():
    evidence = activity((0, 2, 0), (2, 4, 1), (8, 9, 1))
    words = label(
        [*say("one two three four five", 0), *say("six seven", 2.1), *say("eight", 8)],
        evidence,
        evidence > 0,
        NAMES,
    )
    found = group_utterances(words)
    assert [(u.speaker, u.text) for u in found] == [
        ("A", "one two three four five"),
        ("B", "six seven"),
        ("B", "eight"),
    ]
    assert (found[0].start, found[0].end) == (0, 2.0)
    assert group_utterances([]) == []


def test_scripts_without_spaces_are_joined_without():
    words = [Word(0, 0.2, "你"), Word(0.2, 0.4, "好"), Word(0.4, 0.6, "。")]
    assert [u.text for u in group_utterances(words)] == ["你好。"]


def test_a_long_monologue_is_cut_at_a_sentence_end():
    words = [Word(i, i + 0.9, " end." if i % 10 == 9 else " word", "A") for i in range(130)]
    found = group_utterances(words)
    assert [len(u.words) for u in found] == [40, 40, 50]  # the last 50 s are not too long
    assert all(u.words[-1].text == " end." for u in found)


def test_a_long_monologue_is_cut_at_its_longest_pause():
    words = [Word(i, i + (0.5 if i in (20, 37) else 0.9), " word", "A") for i in range(70)]
    assert [len(u.words) for u in group_utterances(words)] == [38, 32]  # 21 would be too short
    words[43] = Word(43, 43.9, " end.", "A")
    assert [len(u.words) for u in group_utterances(words)] == [44, 26]
    endless = [Word(0, 90, " aah", "A"), Word(90, 180, " ooh", "A")]
    assert [len(u.words) for u in group_utterances(endless)] == [2]


def test_a_pause_within_a_sentence_does_not_lose_its_last_word():
    """The recognizer puts the last word into the pause after it, where nobody is heard."""
    evidence = activity((0, 2, 0), (6, 8, 1))
    late = [*say("which lights are", 0.8), Word(2.9, 3.5, " on?")]
    early = [Word(4.6, 5.2, " There"), *say("is a green one", 6.0)]
    assert who(late, evidence) == "AAAA"
    assert who([*late, *early], evidence) == "AAAABBBBB"
    words = label([*late, *early], evidence, evidence > 0.5, NAMES)
    assert [word.supported for word in words] == [True] * 9
    assert (words[3].start, words[3].end) == (2.9, 3.5)  # a guess at the true time would be no better
    assert len(group_utterances(words)) == 2


def test_text_invented_in_a_pause_stays_without_speaker():
    evidence = activity((0, 2, 0), (8, 10, 1))
    asked = [*say("which lights are on?", 0.4)]
    assert who([*asked, *say("Thank you.", 2.6)], evidence) == "AAAA--"  # another sentence
    assert who([*say("and then I", 0.8), *say("you", 3.6)], evidence) == "AAA-"  # too far away
    assert who([*say("Thank", 2.02), *say("you for watching.", 2.6)], evidence) == "A---"  # hardly heard


def test_a_few_words_of_a_sentence_do_not_go_to_another_speaker():
    evidence = activity((0, 2.0, 0), (2.0, 5, 1))
    evidence[round(1.55 / FRAME_STEP) : round(2.0 / FRAME_STEP), 1] = 0.6  # an early edge in most windows
    evidence[round(1.55 / FRAME_STEP) : round(2.0 / FRAME_STEP), 0] = 0.3
    assert who(say("it is an hour before. I have to be at", 0), evidence) == "AAAAABBBBB"
    assert who(say("No, that is not necessary. Do I have to be", 0), evidence) == "AAAAABBBBB"
    # Five and five words with no sentence end between them can change there.
    assert who(say("it is an hour before I have to be at", 0), evidence) == "AAAABBBBBB"


def test_the_last_three_words_of_a_sentence_stay_in_it_where_the_answer_overlaps_them():
    evidence = activity((0, 2.5, 0), (1.8, 4, 1))
    evidence[round(1.8 / FRAME_STEP) : round(2.5 / FRAME_STEP), 0] = 0.75
    words = [*say("have you switched it off and waited for a minute?", 0, 0.25), *say("Yes, twice.", 2.5)]
    assert who(words, evidence) == "AAAAAAAAAABB"


def test_a_word_where_two_voices_overlap_goes_to_the_one_that_goes_on():
    evidence = activity((0, 2.24, 0), (2.0, 5, 1))
    words = [*say("an hour before he comes", 0), Word(2.0, 2.2, " I"), *say("have to be at home.", 2.2)]
    assert who(words, evidence) == "AAAAABBBBBB"


def test_speech_without_words_is_found():
    turns = [
        Turn(0, 10, "A"),
        Turn(10.2, 13, "B"),
        Turn(20, 21.4, "B"),
        Turn(25, 26.5, "B"),
        Turn(30, 31, "A"),
        Turn(31, 33, "B"),
    ]
    words = [*say("one two", 0, 0.5), *say("three", 4, 1.0), *say("four five six", 10.5)]
    assert find_inaudible(turns, words) == [
        Utterance(1.0, 4.0, "A"),
        # A word ends it, as long as the speech goes on: 5.0 to 10.0, and 10.2 to 10.5 after a short pause.
        Utterance(5.0, 10.5, "A"),
        # 11.7 to 13 and 20 to 21.4 are too short.
        Utterance(25, 26.5, "B"),
        Utterance(30, 33, "B"),
    ]
    assert find_inaudible([], words) == []
    assert find_inaudible([Turn(0, 2, "A")], []) == [Utterance(0, 2, "A")]


def test_speech_without_words_of_nobody_in_particular():
    turns = [Turn(n / 10, (n + 1) / 10, NAMES[n % 2]) for n in range(40)]
    assert find_inaudible(turns, []) == [Utterance(0, 4, None)]
    assert find_inaudible([*turns, Turn(4, 4.3, "B")], []) == [Utterance(0, 4.3, "B")]


def test_a_word_in_a_short_pause_divides_what_is_without_words():
    turns = [Turn(0, 1.4, "A"), Turn(1.8, 3.2, "A")]
    assert find_inaudible(turns, []) == [Utterance(0, 3.2, "A")]
    assert find_inaudible(turns, [Word(1.5, 1.7, " hm")]) == []


spans = st.tuples(st.floats(0, 18), st.floats(0.1, 3), st.integers(0, 1))


@settings(max_examples=80, deadline=None)
@given(st.lists(spans, max_size=8), st.lists(st.tuples(st.floats(0, 19), st.floats(0, 1)), max_size=30))
def test_no_word_is_lost_and_no_speaker_invented(turns, times):
    evidence = activity(*((start, start + length, speaker) for start, length, speaker in turns))
    words = [Word(start, start + length, " w") for start, length in sorted(times)]
    labeled = label(words, evidence, evidence > 0.5, NAMES)
    assert [(w.start, w.end, w.text) for w in labeled] == [(w.start, w.end, w.text) for w in words]
    for word in labeled:
        assert (word.speaker is None) == (not word.supported) == (word.speaker_confidence is None)
        if word.speaker:
            column = evidence[:, NAMES.index(word.speaker)]
            assert column.any()
            assert 0 <= word.speaker_confidence <= 1
    assert [w for u in group_utterances(labeled) for w in u.words] == labeled


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 9), st.sampled_from(NAMES)), max_size=8),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), max_size=12),
)
def test_unheard_speech_is_speech_and_has_no_word(turns, words):
    place, said, spoken = 0.0, [], []
    for gap, length, name in turns:
        spoken.append(Turn(place + gap, place + gap + length, name))
        place += gap + length
    place = 0.0
    for gap, length in words:
        said.append(Word(place + gap, place + gap + length, " w"))
        place += gap + length
    for found in find_inaudible(spoken, said):
        assert not any(word.start < found.end and found.start < word.end for word in said)
        parts = [turn for turn in spoken if turn.start < found.end and found.start < turn.end]
        assert found.speaker in {None, *(turn.speaker for turn in parts)}
        assert found.end - found.start >= 1.5 - 1e-9


def both(*sides: list[Word]) -> list[tuple[str | None, str | None]]:
    """Speaker and text of each utterance of two tracks, in the order in which they begin."""
    named = [
        [structs.replace(word, speaker=name) for word in side] for name, side in zip("AB", sides, strict=True)
    ]
    found = group_utterances(*named)
    assert [u.start for u in found] == sorted(u.start for u in found)
    assert sorted(w.text for u in found for w in u.words) == sorted(w.text for side in sides for w in side)
    assert {(u.speaker, u.track) for u in found} <= {("A", 0), ("B", 1)}
    return [(u.speaker, u.text) for u in found]


def test_an_utterance_ends_where_the_other_side_answers():
    question = [*say("Is it on?", 0), *say("I can wait.", 1.8), *say("Good.", 5)]
    answer = [*say("Yes it is.", 1.0), *say("Thanks.", 4.2)]
    assert both(question, answer) == [
        ("A", "Is it on?"),
        ("B", "Yes it is."),
        ("A", "I can wait."),
        ("B", "Thanks."),
        ("A", "Good."),
    ]
    assert both(question, []) == [("A", "Is it on? I can wait."), ("A", "Good.")]


def test_a_phrase_stays_together_while_the_other_side_agrees():
    told = say("so I went to the shop and it was closed. Then I left", 0)
    agreed = say("uh-huh", 1.5)
    assert both(told, agreed) == [
        ("A", "so I went to the shop and it was closed."),
        ("B", "uh-huh"),
        ("A", "Then I left"),
    ]
    paused = [*say("so I went", 0), *say("to the shop", 1.9)]
    assert both(paused, agreed) == [("A", "so I went"), ("B", "uh-huh"), ("A", "to the shop")]


def test_what_nobody_said_interrupts_nobody():
    told, invented = [*say("so I went", 0), *say("to the shop", 1.9)], say("Thank you.", 1.3)
    ghosts = [structs.replace(word, supported=False) for word in invented]
    found = group_utterances(told, ghosts)
    assert [u.text for u in found] == ["so I went to the shop", "Thank you."]
