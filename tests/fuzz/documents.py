"""Documents of strangers: transcripts, corrections, findings, rules and voices, with anything in any place.

The same number always gives the same bytes. `Papers` makes whole ones without a recording or a model;
`mutated` puts what nobody expects into a place of a document, or damages its bytes.
"""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import corpus
import numpy as np

from witness.diarization import voices
from witness.formats import html, output_paths
from witness.models import catalogue
from witness.options import Layout
from witness.schema import (
    FRAMES,
    SAMPLE_RATE,
    Findings,
    ModelFile,
    Recognition,
    Segmentation,
    Source,
    Track,
    Word,
)
from witness.storage import files
from witness.transcript import assemble, store
from witness.transcript import corrections as correcting

WINDOWS = 60
NESTED = "[" * 100_000 + "]" * 100_000
TOKENS = {
    "@nan": "NaN",
    "@inf": "-Infinity",
    "@1e400": "1e400",
    "@10**400": "1" + "0" * 400,
    "@10**5000": "1" + "0" * 5000,
    "@nested": NESTED,
    "@open": "[" * 100_000,
    "@-0": "-0.0",
    "@objects": '{"a":' * 100_000,
    "@surrogate": '"\\ud800"',
    "@raw": '"\ud800"',
    "@nul": '"\\u0000"',
}
"""What Python's json does not write, by what stands for it."""
VALUES: tuple[Any, ...] = (
    *TOKENS,
    *(None, True, False, 0, -1, 1.5, 2, 1e308, -1e308, 1e7, 1e-320, 2**31, 2**63, 2**64, 10_001),
    *("", " ", "x", "x" * 1_000_000, "\n", "\x1b[31m", "\u202e", "../x", "/etc/passwd", "CON", "<b>", "-->"),
    *([], {}, [[]], [None] * 1000, [0, 1], [[0, 1]], [[1, 0]], {"": {}}, [[-1, 1e7]] * 1000),
)


def text_of(document: Any) -> bytes:
    """As JSON, or what passes for it."""
    text = json.dumps(document)
    for name, token in TOKENS.items():
        text = text.replace(json.dumps(name), token)
    return text.encode("utf-8", "surrogatepass")


def places(document: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document, the first few of a long list."""
    found = [above] if above else []
    inner = document.items() if isinstance(document, dict) else enumerate(document[:3])
    for key, value in inner:
        if isinstance(value, dict | list) and value:
            found += places(value, (*above, key))
        else:
            found.append((*above, key))
    return found


def mutated(document: Any, chance: random.Random) -> bytes:
    """One to three values replaced, removed or repeated; or bytes of its text damaged."""
    if chance.random() < 0.15:
        data = text_of(document)
        return chance.choice(corpus.MUTATIONS)(bytearray(data), chance, data) or b"\0"
    document = copy.deepcopy(document)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if not (paths := places(document)):
            break
        *folders, last = chance.choice(paths)
        inner = document
        for key in folders:
            inner = inner[key]
        what = chance.random()
        if what < 0.75:
            inner[last] = copy.deepcopy(chance.choice(VALUES))
        elif what < 0.85:
            del inner[last]
        elif isinstance(inner, list):
            inner += [inner[last]] * chance.choice([1, 100, 20_000])
        else:
            inner[f"{last} "] = inner[last]
    return text_of(document)


class Papers:
    """Whole documents of one recording that nobody made, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.json = folder / "call.json"
        made = correcting.apply(assemble.make_draft(found()))
        store.save(made, [("json", self.json)])
        self.transcript = json.loads(self.json.read_text())
        self.findings = output_paths.beside(self.json)
        with np.load(self.findings) as archive:
            self.arrays = dict(archive)
        self.whole = {path: path.read_bytes() for path in (self.json, self.findings)}
        spans = self.transcript["turns"]
        anchor = [[turn["start"], turn["end"]] for turn in spans[:3]]
        word = [[self.transcript["words"][0]["start"], self.transcript["words"][2]["end"]]]
        blank = {"speaker": [], "name": None, "other": [], "text": None}
        self.corrections = {
            "schema": html.CORRECTIONS,
            "sha256": self.transcript["audio"]["sha256"],
            "recording": "call",
            "corrections": [
                {**blank, "kind": "name", "speaker": anchor, "name": "Ana"},
                {**blank, "kind": "merge", "speaker": anchor[:1], "other": anchor[1:2]},
                {**blank, "kind": "move", "speaker": anchor[:1], "other": word},
                {**blank, "kind": "new", "other": word},
                {**blank, "kind": "text", "other": word, "text": "said"},
                {**blank, "kind": "fill", "other": [[3.0, 9.0]], "text": "heard"},
            ],
        }

    def restore(self) -> None:
        """Everything whole again."""
        for path, content in self.whole.items():
            path.write_bytes(content)

    def vouch(self) -> None:
        """Let the transcript name the findings as they are now."""
        link = {"file": self.findings.name, "sha256": files.sha256(self.findings.read_bytes())}
        self.json.write_text(json.dumps({**self.transcript, "findings": link}))


def transcript(papers: Papers, chance: random.Random) -> list[str]:
    """A JSON transcript that was tampered with, as arguments of the command."""
    whole = {**papers.transcript, "corrections": papers.corrections["corrections"]}
    papers.json.write_bytes(mutated(whole, chance))
    return ["redo", "-q", str(papers.json)]


def corrections(papers: Papers, chance: random.Random) -> list[str]:
    """Corrections that were tampered with; or many, of which each changes everything."""
    document: Any = papers.corrections
    if chance.random() < 0.1:
        kind = chance.choice(document["corrections"])
        many = [
            {**kind, "text": kind["text"] and str(n), "other": kind["other"] and [[0, n + 1]]}
            for n in range(chance.choice([100, 3000]))
        ]
        document = {**document, "corrections": many}
    file = papers.folder / "call.corrections.json"
    file.write_bytes(mutated(document, chance) if chance.random() < 0.95 else text_of(document))
    return ["redo", "-q", str(papers.json), "--corrections", str(file)]


def findings(papers: Papers, chance: random.Random) -> list[str]:
    """Findings that were tampered with, and a transcript that vouches for them."""
    arrays = dict(papers.arrays)
    way = chance.random()
    if way < 0.5:
        header = json.loads(arrays["header"].tobytes())
        arrays["header"] = np.frombuffer(mutated(header, chance), np.uint8)
    elif way < 0.85:
        name = chance.choice(sorted(arrays))
        arrays[name] = chance.choice(ARRAYS)(arrays[name])
    content = _archive(arrays, chance)
    if way >= 0.85:
        content = chance.choice(corpus.MUTATIONS)(bytearray(content), chance, content) or b"\0"
    papers.findings.write_bytes(content)
    papers.vouch()
    return ["redo", "-q", str(papers.json)]


ARRAYS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda array: array[:-1],
    lambda array: array[::-1],
    lambda array: np.concatenate([array, array]),
    lambda array: array * 0,
    lambda array: array.astype(np.float32) * np.float32("nan"),
    lambda array: np.full(array.shape, 3e38, np.float32),
    lambda array: np.zeros_like(array) + array.dtype.type(1),
    lambda array: array.reshape(1, *array.shape),
    lambda array: array.astype(str),
    lambda array: np.zeros(array.size * 1000, array.dtype),
    lambda _: np.zeros(200_000_000, np.uint8),
)


def _archive(arrays: dict[str, np.ndarray], chance: random.Random) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            data = content.getvalue()
            if chance.random() < 0.02:  # the header of an array claims another shape
                data = data.replace(b"(", chance.choice([b"(9", b"((", b"(-", b"(10**9,", b"["]), 1)
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def rule(papers: Papers, chance: random.Random) -> list[str]:
    """A folder of models with a rule that was tampered with."""
    whole = chance.choice([asdict(one.rule) for one in catalogue.SETS.values()])
    models = papers.folder / "models"
    models.mkdir(exist_ok=True)
    for role in ("segmentation", "embedding"):
        if not (models / f"{role}.onnx").exists():
            (models / f"{role}.onnx").symlink_to(catalogue.BUILTIN_FOLDER / f"{role}.onnx")
    (models / "clustering.json").write_bytes(mutated(whole, chance))
    return _run(papers, "--models", str(models))


def voice(papers: Papers, chance: random.Random) -> list[str]:
    """A known person who was tampered with."""
    embedding = next(entry.sha256 for entry in catalogue.TABLE if entry.name == "builtin-embedding")
    whole = {"schema": voices.SCHEMA, "name": "Ana", "model": "m", "embedding": embedding, "seconds": 20.0}
    whole |= {"recordings": [{"path": "ana.wav", "sha256": "0" * 64}]}
    folder = papers.folder / "people"
    folder.mkdir(exist_ok=True)
    (folder / "Ana.json").write_bytes(mutated({**whole, "vector": [1.0] + [0.0] * 255}, chance))
    return _run(papers, "--known", str(folder), "--models", "builtin")


def _run(papers: Papers, *options: str) -> list[str]:
    sound = papers.folder / "sound.wav"
    if not sound.exists():
        sound.write_bytes(corpus.seeds()["wav-pcm_s16le"])
    quiet = ["-q", "--offline", "--whisper", "none", "--threads", "1", "-f", "json"]
    return ["run", str(sound), *quiet, *options, "-o", str(papers.folder / "sound.json")]


def found() -> Findings:
    """A minute in which three people speak in turn, and what they say."""
    chance = np.random.default_rng(0)
    starts = np.arange(WINDOWS) * SAMPLE_RATE
    active = np.zeros((WINDOWS, FRAMES, 3), np.bool_)
    for window in range(WINDOWS):
        for frame in range(FRAMES):
            second = window + frame * 10 / FRAMES
            if second % 7 < 6:
                active[window, frame, int(second // 7) % 3] = True
    people = chance.normal(size=(3, 256))
    vectors = (people[None] + chance.normal(scale=0.2, size=(WINDOWS, 3, 256))).astype(np.float32)
    vectors[active.sum(axis=1) < 60] = np.nan
    words = tuple(
        Word(n * 0.5, n * 0.5 + 0.4, f" word{n}") for n in range(100) if n * 0.5 % 7 < 6 and not 5 < n < 20
    )
    models = {role: ModelFile(role, "", role[0] * 64) for role in ("segmentation", "embedding")}
    return Findings(
        audio=Source("call.wav", float(WINDOWS + 9), 1, "a" * 64),
        models={**models, "whisper": ModelFile("tiny", "", "w" * 64, "ctranslate2")},
        device={"embedding": "cpu", "whisper": "cpu"},
        rule=catalogue.SETS["builtin"].rule,
        plda={},
        channels=Layout.MIX,
        tracks=(Track(Segmentation(active, starts), vectors, Recognition(words, "en", "cpu")),),
    )
