"""The strangers that `--known` compares voices with: clips of CC0 speech in one small file.

    python cohort.py --data DATA --out ../src/witness/diarization/cohort.ogg

DATA is in the format of README.md. Of Mozilla Common Voice (CC0), VOICES speakers that were trained on
(but those that `Corpus.dev` sets aside, for choosing the threshold), drawn with a fixed seed,
half of them with low and half with high voices; 5 s of one clip of each, without the silence before it.
Nothing else of them is kept: no names, no identifiers, no texts.
"""

import argparse
import json
import sys
from pathlib import Path

import av
import numpy as np
import soundfile

from data import DEV_COMMON_VOICE, TRAIN, speech_flags
from data import SAMPLE_RATE as RATE

VOICES = 100
CLIP = 5 * RATE
LOW = 165.0  # Hz: median pitch of low voices is below, of high voices above
SEED = 20261123
BIT_RATE = 16_000


def pitch(samples: np.ndarray) -> float:
    """Median pitch in Hz of the voiced frames, by autocorrelation."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, 640)[::320]
    frames = frames[np.square(frames).mean(1) > 0.1 * np.square(frames).mean()]
    spectrum = np.abs(np.fft.rfft(frames - frames.mean(1, keepdims=True), 2048)) ** 2
    correlation = np.fft.irfft(spectrum)[:, : RATE // 60]
    lags = np.arange(RATE // 400, RATE // 60)
    best = correlation[:, lags].argmax(1)
    voiced = correlation[np.arange(len(best)), lags[best]] > 0.5 * correlation[:, 0]
    return float(np.median(RATE / lags[best[voiced]])) if voiced.any() else np.nan


def clips(data: Path) -> np.ndarray:
    """(VOICES, CLIP) float32."""
    meta = json.loads((data / "index.json").read_text())
    rows, names = np.array(meta["index"]), meta["speakers"]
    own = rows[:, 4] == TRAIN
    count = np.bincount(rows[own, 3], minlength=len(names))
    common = [i for i, name in enumerate(names) if name.startswith("train/commonvoice/")]
    kept_back = sorted((i for i in common if count[i] >= 3), key=lambda i: names[i])[:DEV_COMMON_VOICE]
    speakers = np.random.default_rng(SEED).permutation([i for i in common if i not in kept_back])
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    parts: dict[int, np.ndarray] = {}
    for speaker in speakers:
        for part, start, length, *_ in rows[own & (rows[:, 3] == speaker) & (rows[:, 2] > CLIP)]:
            if part not in parts:
                parts[part], rate = soundfile.read(data / f"part{part}.ogg", dtype="float32")
                assert rate == RATE  # noqa: S101 - the format of the folder
            samples = parts[part][start : start + length]
            heard = np.flatnonzero(speech_flags(32767 * samples))
            if len(heard) < CLIP // 160:
                continue
            samples = samples[heard[0] * 160 :][:CLIP]
            if len(samples) == CLIP and np.isfinite(hertz := pitch(samples)):
                some = found[bool(hertz < LOW)]
                if len(some) < VOICES // 2:
                    some.append(samples)
                break
        if min(map(len, found.values())) == VOICES // 2:
            break
    return np.concatenate([np.stack([low, high]) for low, high in zip(*found.values(), strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    samples = clips(args.data).ravel()
    with av.open(str(args.out), "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=RATE, layout="mono", bit_rate=BIT_RATE)
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(stream.format, stream.layout, RATE, stream.frame_size or 320)
        for piece in [*resampler.resample(frame), *resampler.resample(None), None]:
            container.mux(stream.encode(piece))
    sys.stdout.write(f"{args.out}: {args.out.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
