"""What others wrote, on its way to a person."""

import os
import sys

import pytest

from witness.cli import options
from witness.cli.main import main
from witness.storage import atomic
from witness.text import count, for_terminal, in_json, one_line, printable, without_commands

ATTACK = "a\x1b]0;owned\x07\x9b2Jb\r\x08c\u202ed"
"""Sets the title of a terminal, clears it, and writes over the beginning of the line."""


def test_a_message_names_a_file_exactly_and_in_one_line():
    assert printable(f"{ATTACK}\n") == r"a\x1b]0;owned\x07\x9b2Jb\r\x08c\u202ed\n"
    assert printable(printable(ATTACK)) == printable(ATTACK)
    assert printable("می\u200cخواهم 👩\u200d👧 é") == "می\u200cخواهم 👩\u200d👧 é"


def test_a_line_of_a_document():
    assert one_line(ATTACK) == "a\ufffd]0;owned\ufffd\ufffd2Jb \ufffdc\ufffdd"
    assert one_line("one\n\r\n\u2028two\tthree\x85\ud800") == "one two three \ufffd"
    assert one_line("Bonjour\xa0!") == "Bonjour\xa0!"


def test_what_somebody_could_say():
    assert without_commands(f" {ATTACK}\udcff\u2028") == "a ]0;owned 2Jb c d"
    assert without_commands("می\u200cخواهم") == "می\u200cخواهم"


def test_lines_for_a_terminal_keep_their_layout():
    assert for_terminal(f"x\ty\r\n{ATTACK}\n") == "x\ty\r\n" + printable(ATTACK) + "\n"


def test_a_json_document_has_no_raw_controls():
    assert in_json('{"a": "\x7f\x9b\u2028\u202e\ud800"}\n') == '{"a": "\\u007f\\u009b\\u2028\\u202e\ufffd"}\n'


def test_nouns_are_counted():
    assert [count(n, "word") for n in (0, 1, 2)] == ["0 words", "1 word", "2 words"]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no terminals to open")
@pytest.mark.parametrize("printed", [lambda text: atomic.write(text.encode(), None), options.say])
def test_stdout_on_a_terminal_is_commanded_by_nobody(monkeypatch, printed):
    ours, its = os.openpty()
    with os.fdopen(its, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        printed(ATTACK)
        monkeypatch.undo()
        shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert shown.strip() == printable(ATTACK)


def test_stdout_in_a_pipe_is_left_as_it_is(capsysbinary):
    atomic.write(ATTACK.encode(), None)
    assert capsysbinary.readouterr().out == ATTACK.encode()


def test_errors_and_notes_command_no_terminal(capsys):
    with pytest.raises(SystemExit):
        main(["redo", f"{ATTACK}.json"])
    with options.progress(quiet=False) as reporter:
        reporter.note(f"HTTP 500 {ATTACK}")
    for line in capsys.readouterr().err.splitlines():
        assert r"\x1b]0;owned\x07\x9b2Jb" in line
        assert line.isprintable()
