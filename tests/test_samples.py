"""The commands and examples of the pages, run as printed: their output is that on the page."""

import difflib
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import ORIGINAL, ROOT

sys.path.insert(0, str(ROOT / "docs"))
import samples
import speed_chart


def alike(printed: str, output: str) -> bool:
    """Return whether at most a tenth of the words differ, as on processors that round int8 differently."""
    if printed.count("\n") != output.count("\n"):
        return False
    before, after = printed.split(), output.split()
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    different = max(len(before), len(after)) - sum(block.size for block in blocks)
    return different <= (max(2, 0.1 * len(before)) if len(before) >= 10 else 0)


def test_another_text_is_not_alike():
    line = "[00:00:00] SPEAKER_01: Good morning. This is Laura at the service desk. How can I help you?\n"
    assert alike(line, line.replace("Laura", "Lauren"))
    assert not alike(line, line + line)
    assert not alike(line, line.replace("Good morning. This is Laura", "Hello, Lauren"))
    assert not alike("out/call.json\n", "")


def test_a_page_leaves_lines_out_at_the_ellipsis():
    assert samples.Sample("", "a\n…\nd\n", "1\n2\n3\n4\n").shortened == "1\n…\n4\n"
    assert samples.Sample("", "a\n", "1\n2\n").shortened == "1\n2\n"


# Each page takes two minutes of a processor; CI plays the tutorial.
@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if "tutorial" in page else pytest.mark.figures)
        for page in samples.PAGES
    ],
)
def test_the_page_prints_the_output_of_its_commands(page, tmp_path, monkeypatch):
    """`python docs/samples.py PAGE` writes the new output."""
    monkeypatch.setattr(os, "environ", ORIGINAL)  # with the models of this user
    played = []
    samples.play((ROOT / page).read_text("utf-8"), tmp_path, played.append)
    assert played
    other = [sample for sample in played if not alike(sample.printed, sample.shortened)]
    assert [(sample.source, sample.printed, sample.shortened) for sample in other] == []


@pytest.mark.slow
def test_the_examples_in_python_hold_under_strict_types(tmp_path):
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 8
    paths = [tmp_path / f"example_{number}.py" for number in range(len(examples))]
    for path, example in zip(paths, examples, strict=True):
        path.write_text(example)
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, paths)],
        env={**ORIGINAL, "MYPYPATH": str(ROOT / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_the_error_rate_beside_the_sample_is_that_of_its_command(tmp_path, monkeypatch):
    pytest.importorskip("kaldialign", reason="the extra `bench` is not installed")
    monkeypatch.setattr(os, "environ", ORIGINAL)  # with the models of this user
    settings, work = samples.environment(tmp_path), samples.checkout(tmp_path)
    samples.run_command("witness tests/data/call.flac -f json -o out/", work, settings)
    score = samples.run_command(
        "witness score --words tests/data/call.stm out/call.json --json", work, settings
    )
    ((count, rate),) = re.findall(
        r"Of the (\d+) words of this\ncall ([\d.]+) % are wrong", (ROOT / "README.md").read_text("utf-8")
    )
    error = json.loads(score)["wer"]
    assert error["words"] == int(count)
    assert abs(error["rate"] - float(rate)) <= 1.5  # three words; another processor rounds int8 differently


def test_the_picture_of_the_time_is_that_of_the_results():
    for theme in speed_chart.COLORS:
        assert (ROOT / "docs" / f"speed-{theme}.svg").read_text("utf-8") == speed_chart.chart(theme)


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_the_picture_of_the_page_shows_the_output_of_its_command(tmp_path, monkeypatch):
    """`python docs/screenshots.py` takes it again."""
    screenshots = pytest.importorskip("screenshots", reason="playwright is not here")
    monkeypatch.setattr(os, "environ", ORIGINAL)  # with the models of this user
    settings, work = samples.environment(tmp_path), samples.checkout(tmp_path)
    samples.run_command("witness tests/data/call.flac -f json -o call.json", work, settings)
    utterances = json.loads((work / "call.json").read_text("utf-8"))["utterances"]
    words = [word for utterance in utterances for word in (utterance["text"] or "").split()]
    page = screenshots.text_of((ROOT / "docs" / "page-light.png").read_bytes()).split()
    blocks = difflib.SequenceMatcher(None, words, page, autojunk=False).get_matching_blocks()
    assert sum(block.size for block in blocks) > 0.93 * len(words)
