"""How similar strangers sound: the threshold of `--known`, and how often it errs.

    python benchmarks/voices.py FOLDER --cache CACHE [--models builtin|campplus|DIR] [--json FILE]

FOLDER holds partN.ogg and index.json. Voices are compared by `cohort.Cohort.scores`, and by plain cosine
beside it. `voices.THRESHOLD`, one number for every voice model, was chosen on training speakers that no
training step saw (split 0; the rule of training/data.py, `Corpus.dev`) and that are not in the cohort: it is
about what 1 in 1000 comparisons of strangers reach in the worst of these cases. It is reported on split 1:
other speakers, on whom nothing was tuned.

Each speaker is enrolled with all clips but the last, which is the test; LibriSpeech speakers, with one clip
each, are strangers only. Cases: clips as recorded; all of them in the same telephone band with the same
noise, because strangers in one call share a line; enrolled as recorded and heard on the telephone; and tests
of 2, 3 and 5 s of speech. Strangers of the same sex: those whose median pitch is on the same side of 165 Hz.
Voiceprints are made by the stages of the program, from segmentation to `voices.prints`, with a recording per
clip; those of `witness enroll` have 10 s and more, these 5 s and more. Intervals are of 95 %, from drawing
test speakers.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import harness
import numpy as np
import soundfile
from scipy.signal import butter, sosfilt

from witness.diarization import cohort, segmentation, voice_model, voices
from witness.models import store
from witness.options import Bounds, Layout
from witness.schema import Findings, Source, Track
from witness.transcript import assemble

sys.path.insert(0, str(Path(__file__).parent.parent / "training"))
from cohort import LOW, pitch

COMMON_VOICE, LIBRISPEECH = 60, 20  # DEV_COMMON_VOICE, DEV_LIBRISPEECH of training/data.py
STRANGERS = 1000  # comparisons, one of which may reach the threshold
LEAST_ENROLLED = 5.0  # seconds of clean speech; less than the program requires, or dev/ would have nobody
TURNS = {"2 s": 2.0, "3 s": 3.0, "5 s": 5.0}  # seconds of clean speech in short tests
LEAST_TESTED = 2.9  # seconds of clean speech in the others
CUT, LEAST_CUT = 1.2, 0.97  # a short test is cut to so many times its seconds, and holds at least so many
RESAMPLES = 1000
BAND = (300, 3400)  # Hz
LINE_NOISE = 1e-3  # 54 dB under the clips' peak
CASES = {  # how the enrolled clips and the tests are
    "as recorded": ("plain", "plain"),
    "one telephone line": ("tel", "tel"),
    "recorded, then telephone": ("plain", "tel"),
    **{f"tests of {name}": ("plain", name) for name in TURNS},
}


class Prints:
    """The voiceprint of each clip, by the program's own stages."""

    def __init__(self, folder: Path, choice: str) -> None:
        meta = json.loads((folder / "index.json").read_text())
        self.rows, self.names = np.array(meta["index"]), meta["speakers"]
        self._folder = folder
        self.chosen = store.diarization_models(choice, offline=True)
        self.voice = voice_model.load(self.chosen.embedding)
        self._segmenter = segmentation.load(self.chosen.segmentation)
        self._part = cache(self._read)

    def _read(self, part: int) -> Any:
        samples, rate = soundfile.read(self._folder / f"part{part}.ogg", dtype="float32")
        assert rate == 16_000 and samples.ndim == 1  # noqa: PT018, S101 - the format of the folder
        return samples

    def clip(self, row: int) -> Any:
        part, start, length, _, _ = self.rows[row]
        return self._part(int(part))[start : start + length]

    def of(self, row: int, how: str) -> voices.Print | None:
        """The voiceprint of the clip in a row of the index; None: nobody was heard in it."""
        samples = self.clip(row)
        if how == "tel":
            band = butter(6, BAND, "bandpass", fs=16_000, output="sos")
            hiss = np.random.default_rng(row).normal(0, LINE_NOISE, len(samples))
            samples = (sosfilt(band, samples) + hiss).astype(np.float32)
        elif how in TURNS:
            samples = samples[: int(CUT * TURNS[how] * 16_000)]
        windows = segmentation.segment(samples, self._segmenter, faint=self.chosen.rule.faint)
        findings = Findings(
            audio=Source("", len(samples) / 16_000, 1, ""),
            models={},
            device={},
            rule=self.chosen.rule,
            plda={},
            channels=Layout.MIX,
            tracks=(Track(windows, voice_model.embed(samples, [windows], self.voice)),),
        )
        found = assemble.diarize(findings, Bounds(speakers=1)).voiceprints()
        one = next(iter(found.values()), None)
        return one if one is not None and one.total.any() else None

    def speakers(self) -> dict[str, tuple[list[int], int]]:
        """Set -> its speakers and their split."""
        clips = np.bincount(self.rows[self.rows[:, 4] == 0, 3], minlength=len(self.names))
        named = list(enumerate(self.names))
        own = [i for i, name in named if name.startswith("train/commonvoice/") and clips[i] >= 3]
        libri = [i for i, name in named if name.startswith("train/librispeech") and clips[i] >= 1]
        chosen = sorted(own, key=lambda i: self.names[i])[:COMMON_VOICE] + libri[:LIBRISPEECH]
        others = [i for i, name in named if name.startswith(("heldout/", "dev/")) and "arabic" not in name]
        return {"cal": (chosen, 0), "rep": (others, 1)}

    def kept(self, path: Path) -> dict[str, Any]:
        """Arrays of all prints, from the file at `path` if it is there: row, cond, sec, vec, spk, set."""
        if not path.exists():
            columns: dict[str, list[Any]] = {name: [] for name in ("row", "cond", "sec", "vec", "spk", "set")}
            for name, (speakers, split) in self.speakers().items():
                wanted = np.isin(self.rows[:, 3], speakers) & (self.rows[:, 4] == split)
                for row in sorted(np.flatnonzero(wanted).tolist(), key=lambda row: tuple(self.rows[row, :2])):
                    for how in ("plain", "tel", *TURNS):
                        if (found := self.of(row, how)) is not None:
                            values = (row, how, found.seconds, found.vector, self.rows[row, 3], name)
                            for column, value in zip(columns.values(), values, strict=True):
                                column.append(value)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **{name: np.array(column) for name, column in columns.items()})
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}


def trials(kept: dict[str, Any], name: str, case: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """The enrolled and the tests of a set: speaker -> vector of length 1."""
    enrolled_how, tested_how = CASES[case]
    here = kept["set"] == name
    least = LEAST_CUT * TURNS[tested_how] if tested_how in TURNS else LEAST_TESTED
    last = {
        int(speaker): int(kept["row"][here & (kept["spk"] == speaker)].max()) for speaker in kept["spk"][here]
    }
    enrolled: dict[int, voices.Print] = {}
    tests = {}
    for place in np.flatnonzero(here):
        speaker, row, how = int(kept["spk"][place]), int(kept["row"][place]), kept["cond"][place]
        seconds, vector = float(kept["sec"][place]), kept["vec"][place].astype(np.float64)
        if row == last[speaker] and how == tested_how and seconds >= least:
            tests[speaker] = vector
        elif row != last[speaker] and how == enrolled_how:
            one = voices.Print(vector * seconds, seconds)
            enrolled[speaker] = enrolled[speaker] + one if speaker in enrolled else one
    long = {speaker: one.vector for speaker, one in enrolled.items() if one.seconds >= LEAST_ENROLLED}
    return long, tests


def equal_error(own: Any, strangers: Any) -> float:
    """In percent."""
    at = np.sort(np.concatenate([own, strangers]))
    missed = np.searchsorted(np.sort(own), at) / len(own)
    accepted = 1 - np.searchsorted(np.sort(strangers), at) / len(strangers)
    place = np.abs(missed - accepted).argmin()
    return float(50 * (missed[place] + accepted[place]))


def rates(scores: Any, same: Any, alike: Any, threshold: float) -> dict[str, Any]:
    """Errors at `threshold`, with 95 % intervals over test speakers; `alike`: pairs of the same sex."""
    reached = scores >= threshold

    def errors(columns: Any) -> tuple[float, float, float, float]:
        there, right, sex = reached[:, columns], same[:, columns], alike[:, columns]
        strangers = there & ~right
        return (
            100 * strangers.sum() / (~right).sum(),
            100 * (strangers & sex).sum() / max((~right & sex).sum(), 1),
            100 * (right & ~there).sum() / max(right.sum(), 1),
            equal_error(scores[:, columns][right], scores[:, columns][~right]) if right.any() else np.nan,
        )

    chance, everybody = np.random.default_rng(0), np.arange(same.shape[1])
    drawn = np.array([errors(chance.choice(everybody, len(everybody))) for _ in range(RESAMPLES)])
    names = "strangers_accepted", "strangers_of_the_same_sex_accepted", "own_voice_missed", "equal_error"
    return {
        name: [round(value, 2), *(round(edge, 2) for edge in np.nanpercentile(drawn[:, place], [2.5, 97.5]))]
        for place, (name, value) in enumerate(zip(names, errors(everybody), strict=True))
    }


def main() -> None:
    """Compare, report, print JSON."""
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--models", default="builtin")
    arguments = parser.parse_args()
    prints = Prints(arguments.folder, arguments.models)
    kept = prints.kept(arguments.cache / f"prints-{prints.chosen.name}.npz")
    strangers = cohort.load(prints.chosen.embedding, prints.voice)
    rows = {int(speaker): int(row) for row, speaker in zip(kept["row"], kept["spk"], strict=True)}
    low = {speaker: pitch(prints.clip(row)) < LOW for speaker, row in rows.items()}
    document: dict[str, Any] = {
        "models": {file.name: file.sha256 for file in (prints.chosen.segmentation, prints.chosen.embedding)},
        "threshold": voices.THRESHOLD,
        "per_cent": "value and 95 % interval over test speakers",
    }
    for name, title in (("cal", "calibration"), ("rep", "split 1")):
        for case in CASES:
            enrolled, tests = trials(kept, name, case)
            known, heard = (np.stack(list(some.values())) for some in (enrolled, tests))
            same = np.array(list(enrolled))[:, None] == np.array(list(tests))
            alike = np.array([low[one] for one in enrolled])[:, None] == np.array([low[one] for one in tests])
            scores, cosines = strangers.scores(known, heard), known @ heard.T
            found = {
                "enrolled": len(enrolled),
                "tests": len(tests),
                "own_trials": int(same.sum()),
                "stranger_trials": int((~same).sum()),
                **rates(scores, same, alike, voices.THRESHOLD),
            }
            for how, values in (("score", scores), ("cosine", cosines)):
                ordered = np.sort(values[~same])
                found[f"{how}_of_1_in_{STRANGERS}"] = round(float(ordered[-1 - len(ordered) // STRANGERS]), 3)
            found["equal_error_by_cosine"] = round(equal_error(cosines[same], cosines[~same]), 2)
            document[f"{title}, {case}"] = found
    harness.show(document, arguments.json)


if __name__ == "__main__":
    main()
