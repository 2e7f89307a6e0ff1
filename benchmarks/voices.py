"""How similar strangers sound: the threshold of `--known`, and how often it errs.

    python benchmarks/voices.py FOLDER [--models builtin|DIR]        FOLDER: partN.ogg and index.json

The threshold is chosen on training speakers that no training step saw (split 0; the rule of
training/data.py, `Corpus.dev`): the cosine that 1 in 1000 comparisons of strangers reach. Each of them is
enrolled with all clips but the last, which is the test; LibriSpeech speakers, with one clip each, are
strangers only. Two strangers in one call share a line and sound more similar for it, so the clips are
compared twice: as recorded, and all of them in the same telephone band with the same noise.

The threshold is then reported on split 1: other speakers, on whom nothing was tuned. Those of heldout/ have
10 s and more to enroll with, as `witness enroll` requires; those of dev/ have one clip of about 5 s.
Voiceprints are made by the stages of the program, from segmentation to `voices.prints`, with a recording per
clip.

Put the threshold into models.catalogue.STRANGERS under the sha256 that is printed with it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import harness
import numpy as np
import soundfile
from scipy.signal import butter, sosfilt

from witness.diarization import embedding, segmentation, voices
from witness.models import store
from witness.options import Bounds, Layout
from witness.schema import Findings, Source, Track
from witness.transcript import assemble

COMMON_VOICE, LIBRISPEECH = 60, 20  # DEV_COMMON_VOICE, DEV_LIBRISPEECH of training/data.py
STRANGERS = 1000  # comparisons, one of which may reach the threshold
LEAST_ENROLLED = 5.0  # seconds of clean speech; less than the program requires, or dev/ would have nobody
RESAMPLES = 1000
BAND = (300, 3400)  # Hz
LINE_NOISE = 1e-3  # 54 dB under the clips' peak


class Prints:
    """The voiceprint of each clip, by the program's own stages."""

    def __init__(self, folder: Path, choice: str) -> None:
        meta = json.loads((folder / "index.json").read_text())
        self.rows, self.names = np.array(meta["index"]), meta["speakers"]
        self._folder = folder
        self.chosen = store.diarization_models(choice, offline=True)
        self._segmenter = segmentation.load(self.chosen.segmentation)
        self._voice = embedding.load(self.chosen.embedding)
        self._part = cache(self._read)

    def _read(self, part: int) -> Any:
        samples, rate = soundfile.read(self._folder / f"part{part}.ogg", dtype="float32")
        assert rate == 16_000 and samples.ndim == 1  # noqa: PT018, S101 - the format of the folder
        return samples

    def of(self, row: int, *, telephone: bool = False) -> voices.Print | None:
        """The voiceprint of the clip in a row of the index; None: nobody was heard in it."""
        part, start, length, _, _ = self.rows[row]
        samples = self._part(int(part))[start : start + length]
        if telephone:
            band = butter(6, BAND, "bandpass", fs=16_000, output="sos")
            hiss = np.random.default_rng(row).normal(0, LINE_NOISE, len(samples))
            samples = (sosfilt(band, samples) + hiss).astype(np.float32)
        windows = segmentation.segment(samples, self._segmenter, faint=self.chosen.rule.faint)
        vectors = embedding.embed(samples, [windows], self._voice)
        findings = Findings(
            audio=Source("", length / 16_000, 1, ""),
            models={},
            device={},
            rule=self.chosen.rule,
            plda={},
            channels=Layout.MIX,
            tracks=(Track(windows, vectors),),
        )
        found = assemble.voiceprints(findings, Bounds(speakers=1))
        one = next(iter(found.values()), None)
        return one if one is not None and one.total.any() else None


def trials(prints: Prints, speakers: list[int], split: int, *, telephone: bool = False) -> dict[str, Any]:
    """Cosines of each enrolled speaker with each test, and seconds of both."""
    enrolled, tests = {}, {}
    for speaker in speakers:
        rows = np.flatnonzero((prints.rows[:, 3] == speaker) & (prints.rows[:, 4] == split))
        heard = [prints.of(int(row), telephone=telephone) for row in rows]
        found = [one for one in heard if one is not None]
        if found and found[-1].seconds >= voices.LEAST_TO_NAME:
            tests[speaker] = found[-1]
        whole = None
        for one in found[:-1]:
            whole = one if whole is None else whole + one
        if whole is not None and whole.seconds >= LEAST_ENROLLED:
            enrolled[speaker] = whole
    known = np.stack([one.vector for one in enrolled.values()])
    tested = np.stack([one.vector for one in tests.values()])
    same = np.array(list(enrolled))[:, None] == np.array(list(tests))[None]
    return {
        "cosines": known @ tested.T,
        "same": same,
        "enrolled_seconds": float(np.median([one.seconds for one in enrolled.values()])),
        "test_seconds": float(np.median([one.seconds for one in tests.values()])),
    }


def report(found: dict[str, Any], threshold: float) -> dict[str, Any]:
    """Error rates at `threshold`, with 95 % intervals over test speakers."""
    cosines, same = found["cosines"], found["same"]
    reached = cosines >= threshold

    def rates(columns: Any) -> tuple[float, float, float]:
        there, right = reached[:, columns], same[:, columns]
        strangers = there & ~right
        # As with a folder of all of them: how often a person is given the name of somebody else.
        return (
            100 * strangers.sum() / (~right).sum(),
            100 * (right & ~there).sum() / max(right.sum(), 1),
            100 * strangers.any(axis=0).mean(),
        )

    chance = np.random.default_rng(0)
    everybody = np.arange(same.shape[1])
    drawn = np.array([rates(chance.choice(everybody, len(everybody))) for _ in range(RESAMPLES)])
    names = ("strangers_accepted", "own_voice_missed", "wrong_name_in_a_folder_of_all")
    return {
        "enrolled": same.shape[0],
        "tests": same.shape[1],
        "own_trials": int(same.sum()),
        "stranger_trials": int((~same).sum()),
        "median_seconds_enrolled": round(found["enrolled_seconds"], 1),
        "median_seconds_tested": round(found["test_seconds"], 1),
        **{
            name: [round(value, 2), *(round(edge, 2) for edge in np.percentile(drawn[:, place], [2.5, 97.5]))]
            for place, (name, value) in enumerate(zip(names, rates(everybody), strict=True))
        },
    }


def main() -> None:
    """Calibrate, report, print JSON."""
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="builtin")
    arguments = parser.parse_args()
    prints = Prints(arguments.folder, arguments.models)
    clips = np.bincount(prints.rows[prints.rows[:, 4] == 0, 3], minlength=len(prints.names))
    own = [i for i, n in enumerate(prints.names) if n.startswith("train/commonvoice/") and clips[i] >= 3]
    libri = [i for i, n in enumerate(prints.names) if n.startswith("train/librispeech") and clips[i] >= 1]
    chosen = sorted(own, key=lambda i: prints.names[i])[:COMMON_VOICE] + libri[:LIBRISPEECH]
    plain, line = trials(prints, chosen, 0), trials(prints, chosen, 0, telephone=True)
    strangers = np.sort(np.concatenate([found["cosines"][~found["same"]] for found in (plain, line)]))
    threshold = round(float(strangers[-1 - len(strangers) // STRANGERS]) + 0.0005, 3)
    document = {
        "models": prints.chosen.name,
        "embedding": prints.chosen.embedding.sha256,
        "threshold": threshold,
        "per_cent": "value and 95 % interval over test speakers",
        "calibration, as recorded": report(plain, threshold),
        "calibration, one telephone line": report(line, threshold),
    }
    for prefix in ("heldout/", "dev/"):
        speakers = [i for i, name in enumerate(prints.names) if name.startswith(prefix)]
        for telephone, how in ((False, "as recorded"), (True, "one telephone line")):
            found = trials(prints, speakers, 1, telephone=telephone)
            document[f"split 1, {prefix}, {how}"] = report(found, threshold)
    harness.show(document, arguments.json)


if __name__ == "__main__":
    main()
