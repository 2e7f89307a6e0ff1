import pytest

from witness.errors import InputError
from witness.formats import rttm
from witness.schema import Turn

TURNS = [Turn(0.5, 2.25, "SPEAKER_01"), Turn(2.0, 3.0, "Anna B")]


def test_there_and_back():
    text = rttm.serialize("my  call", TURNS)
    assert text.splitlines()[0] == "SPEAKER my_call 1 0.500 1.750 <NA> <NA> SPEAKER_01 <NA> <NA>"
    assert rttm.parse(text) == {"my_call": [TURNS[0], Turn(2.0, 3.0, "Anna_B")]}


def test_pyannote_reads_what_we_write(tmp_path):
    from pyannote.database.util import load_rttm

    path = tmp_path / "a.rttm"
    path.write_text(rttm.serialize("ünï call 🎧", TURNS))
    (annotation,) = load_rttm(path).values()
    assert annotation.uri == "ünï_call_🎧"
    assert [(s.start, s.end, name) for s, _, name in annotation.itertracks(yield_label=True)] == [
        (0.5, 2.25, "SPEAKER_01"),
        (2.0, 3.0, "Anna_B"),
    ]


def test_other_lines_are_passed_over():
    text = (
        ";; a comment\nSPKR-INFO f 1 <NA> <NA> <NA> unknown A <NA>\n\nSPEAKER f 1 1 2 <NA> <NA> A <NA> <NA>\n"
    )
    assert rttm.parse(text) == {"f": [Turn(1.0, 3.0, "A")]}


@pytest.mark.parametrize(
    "line",
    [
        *("SPEAKER f 1 x 2 <NA> <NA> A", "SPEAKER f 1 1", "SPEAKER f 1 nan nan <NA> <NA> A"),
        *("SPEAKER f 1 0 -5 <NA> <NA> A", "SPEAKER f 1 0 inf <NA> <NA> A", "SPEAKER f 1 0 1e300 <NA> <NA> A"),
    ],
)
def test_a_broken_line_is_named(line):
    with pytest.raises(InputError, match=r"ref\.rttm, line 2"):
        rttm.parse(f"SPEAKER f 1 1 2 <NA> <NA> A\n{line}\n", "ref.rttm")
