# ruff: noqa: T201 - a training script: what it prints is its result
"""The training corpus: decode it once, then hand it out as tensors.

Input is folders in the format that README.md describes: `partN.ogg`, many clips one after another, and
`index.json`, one of each folder; together they are one corpus. `decode` writes one `.npy` of samples and one
of speech flags per part into a cache folder; every clip of a training speaker is stored at five speeds,
because a voice played 10 % faster or slower is, to a model, a new voice. `Corpus` loads the cache. Parts
that are missing are left out, so the whole recipe runs on a subset.
"""

import argparse
import json
import os
import re
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
import torch
from scipy.ndimage import maximum_filter1d, minimum_filter1d, uniform_filter1d
from scipy.signal import resample_poly

SAMPLE_RATE = 16_000
FRAME = 160  # samples: 10 ms, the unit of everything that is cut and pasted here
# Resampling ratios: as recorded, slower and faster by a tenth, and by a fifth.
SPEEDS = ((1, 1), (10, 9), (10, 11), (5, 4), (9, 11))
OFTEN = (1.0, 0.7, 0.7, 0.35, 0.35)  # how often a voice is drawn at each speed
TWIN_OF = {1: 2, 2: 1, 3: 0, 4: 0}  # the speed at which a voice is somebody else's, and yet alike
TRAIN, HELD_OUT, NOISE = 0, 1, 2  # values of the index's `split` column
MAX_STRETCHES = 12  # stretches of speech remembered per clip
REST = 20, 10, 20  # frames: at least so long, so long before the first word, so long after the last
REST_LEVEL = 2.0  # of 32768, root mean square: below it there is nothing but the coder's zeros

# Rows of the noise split, by position. Kept: ESC-10 and the librosa examples.
# Left out: SpeechBrain and Picovoice (origin or licence of the clips not stated), and both sets of Speech
# Commands
# background recordings, because the simulated recordings of `shared/data/eval` have them as their noise.
NOISE_ROWS_KEPT = range(2, 409)

# Speakers kept from training to choose thresholds and compare runs ("held-in": from the training split).
DEV_COMMON_VOICE, DEV_LIBRISPEECH = 60, 20
DEV_OCEAN = 8  # every so many-th speaker of speechocean762


def speech_flags(samples: np.ndarray) -> np.ndarray:
    """(samples,) of one clip, int16 or of that scale -> (frames,) bool: which 10 ms frames are speech, pauses
    under 0.4 s bridged.
    """
    frames = len(samples) // FRAME
    power = (samples[: frames * FRAME].astype(np.float32).reshape(frames, FRAME) ** 2).mean(1)
    level = uniform_filter1d(10 * np.log10(np.maximum(1, power)), 5, mode="nearest")
    loud, quiet = np.quantile(level, 0.95), np.quantile(level, 0.05)
    flags = (level > max(loud - 32, min(quiet + 9, loud - 14))).astype(np.uint8)
    flags = maximum_filter1d(minimum_filter1d(maximum_filter1d(flags, 3), 5), 3)  # drop specks under 30 ms
    flags = maximum_filter1d(flags, 41, mode="constant")  # grow by 0.2 s ...
    return minimum_filter1d(flags, 37, mode="nearest").astype(
        bool
    )  # ... shrink by 0.18 s: gaps closed, 20 ms of margin


def decode_part(job: tuple[str, int, str, int]) -> tuple[int, float]:
    """Decodes one part, numbered as in the cache's index, into the cache: samples, speech flags, and rows
    (index row, speed, first frame, frames).
    """
    ogg, part, cache, speeds = job
    rows = np.array(json.loads((Path(cache) / "index.json").read_text())["index"])
    audio, rate = soundfile.read(ogg, dtype="float32")
    if rate != SAMPLE_RATE:
        audio = resample_poly(audio, 1, rate // SAMPLE_RATE).astype(np.float32)
    samples, flags, table, position = [], [], [], 0
    for row in np.flatnonzero(rows[:, 0] == part):
        _, start, length, _, split = rows[row]
        clip = audio[start : start + length]
        for speed, (up, down) in enumerate(SPEEDS[: speeds if split == TRAIN else 1]):
            version = clip if up == down else resample_poly(clip, up, down)
            version = np.clip(version * 32767, -32768, 32767).astype(np.int16)
            frames = len(version) // FRAME
            if frames < 10:
                continue
            version = version[: frames * FRAME]
            samples.append(version)
            flags.append(np.zeros(frames, bool) if split == NOISE else speech_flags(version))
            table.append((row, speed, position, frames))
            position += frames
    np.save(f"{cache}/{part}.samples.npy", np.concatenate(samples))
    np.save(f"{cache}/{part}.flags.npy", np.concatenate(flags))
    np.save(f"{cache}/{part}.rows.npy", np.array(table, np.int64))
    return part, len(audio) / SAMPLE_RATE / 3600


def decode(folders: list[Path], cache: Path, workers: int, speeds: int = len(SPEEDS)) -> None:
    """Decodes every part that is not in the cache yet. The parts and the speakers of a folder are numbered
    on from those of the folders before it.
    """
    cache.mkdir(parents=True, exist_ok=True)
    index, speakers, todo = [], [], []
    for folder in folders:
        meta = json.loads((folder / "index.json").read_text())
        rows = np.array(meta["index"])
        base = 1 + max((row[0] for row in index), default=-1)
        rows[:, 0] += base
        rows[rows[:, 3] >= 0, 3] += len(speakers)
        index += rows.tolist()
        speakers += meta["speakers"]
        for path in sorted(folder.glob("part*.ogg")):
            part = base + int(re.search(r"part(\d+)", path.name).group(1))
            if not (cache / f"{part}.rows.npy").exists():
                todo.append((path, part))
    (cache / "index.json").write_text(json.dumps({"index": index, "speakers": speakers}))
    started = time.time()
    with ProcessPoolExecutor(workers) as pool:
        done = list(pool.map(decode_part, [(str(path), part, str(cache), speeds) for path, part in todo]))
    print(
        f"decoded {len(done)} parts, {sum(hours for _, hours in done):.2f} h,"
        f" in {time.time() - started:.0f} s",
        flush=True,
    )


@dataclass
class Corpus:
    """Clips on one device. A clip is `frames[i]` rows of `audio` from `start[i]` on; a row is 10 ms.

    audio: (rows, 160) int16; flags: (rows,) bool; per clip: start, frames, voice, split; `stretches`: per
    clip the frames where speech begins and ends, (clips, 2, MAX_STRETCHES), with `stretch_count` of them
    used. `voice` is speaker * 3 + speed: one class of the classifier. `order`, `first`, `count` list the
    clips of a voice.
    """

    audio: torch.Tensor
    flags: torch.Tensor
    start: torch.Tensor
    frames: torch.Tensor
    speaker: torch.Tensor
    speed: torch.Tensor
    split: torch.Tensor
    stretches: torch.Tensor
    stretch_count: torch.Tensor
    names: list[str]
    dev: frozenset[int]  # training speakers that no training step sees
    noise: torch.Tensor  # clips that may be used as noise
    flat: int = 0  # rows from a row to its version of channels.py; 0: there is none
    rests: torch.Tensor | None = None  # as `with_rests` finds them: (rests, 2) first row and rows
    rest_level: torch.Tensor | None = None  # (rests,) root mean square of each, of 32768

    @property
    def device(self) -> torch.device:
        return self.audio.device

    @classmethod
    def load(cls, cache: Path, device: str) -> "Corpus":
        meta = json.loads((cache / "index.json").read_text())
        index = np.array(meta["index"])
        noise_rows = np.flatnonzero(index[:, 4] == NOISE)
        kept_noise = set(noise_rows[[i for i in NOISE_ROWS_KEPT if i < len(noise_rows)]].tolist())
        audio, flags, tables, base = [], [], [], 0
        for path in sorted(cache.glob("*.rows.npy"), key=lambda p: int(p.name.split(".")[0])):
            table = np.load(path)
            table[:, 2] += base
            tables.append(table)
            audio.append(np.load(path.with_name(path.name.replace("rows", "samples"))))
            flags.append(np.load(path.with_name(path.name.replace("rows", "flags"))))
            base += len(flags[-1])
        table = np.concatenate(tables)
        # One silent second at the end: what an unused frame points at.
        audio.append(np.zeros(100 * FRAME, np.int16))
        flags.append(np.zeros(100, bool))
        samples, speech = np.concatenate(audio), np.concatenate(flags)
        stretches = np.full((len(table), 2, MAX_STRETCHES), 10**6)
        counts = np.zeros(len(table), np.int64)
        for clip, (_, _, start, frames) in enumerate(table):
            steps = np.diff(np.concatenate([[0], speech[start : start + frames].astype(np.int8), [0]]))
            begin, end = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
            counts[clip] = min(len(begin), MAX_STRETCHES)
            stretches[clip, 0, : counts[clip]] = begin[:MAX_STRETCHES]
            stretches[clip, 1, : counts[clip]] = end[:MAX_STRETCHES]
        rows = index[table[:, 0]]
        known = rows[(rows[:, 4] == TRAIN) & (table[:, 1] == 0), 3]
        clips = np.bincount(known, minlength=len(meta["speakers"]))

        def put(array: np.ndarray) -> torch.Tensor:
            return torch.as_tensor(array).to(device)

        return cls(
            audio=put(samples).view(-1, FRAME),
            flags=put(speech),
            start=put(table[:, 2]),
            frames=put(table[:, 3]),
            speaker=put(rows[:, 3]),
            speed=put(table[:, 1]),
            split=put(rows[:, 4]),
            stretches=put(stretches),
            stretch_count=put(counts),
            names=meta["speakers"],
            dev=_dev_speakers(meta["speakers"], clips),
            noise=put(np.flatnonzero([row in kept_noise for row in table[:, 0]])),
        )


def _dev_speakers(names: list[str], clips: np.ndarray) -> frozenset[int]:
    """The first by name that have enough of `clips`, the number of training clips of each: a fixed choice."""
    voice = [i for i, n in enumerate(names) if n.startswith("train/commonvoice/") and clips[i] >= 3]
    libri = [i for i, n in enumerate(names) if n.startswith("train/librispeech") and clips[i] >= 1]
    ocean = sorted(n for i, n in enumerate(names) if n.startswith("train/speechocean762/") and clips[i])
    every = [names.index(name) for name in ocean[::DEV_OCEAN]]
    return frozenset(
        [*sorted(voice, key=lambda i: names[i])[:DEV_COMMON_VOICE], *libri[:DEV_LIBRISPEECH], *every]
    )


def with_rests(corpus: Corpus, clips: torch.Tensor) -> Corpus:
    """The corpus with the rests of `clips`: what lies before and behind the speech of each.

    They are breaths, clicks, handling and rooms as thousands of microphones heard them, and nobody speaks.
    """
    clips = clips[corpus.speed[clips] == 0]
    shortest, before, behind = REST
    count = corpus.stretch_count[clips]
    begin = corpus.stretches[clips, 0, 0]
    end = corpus.stretches[clips, 1].gather(1, (count - 1).clamp(min=0)[:, None])[:, 0] + behind
    end = torch.where(count == MAX_STRETCHES, corpus.frames[clips], end)  # there may be more speech
    first = torch.cat([torch.zeros_like(begin), end])
    size = torch.cat([begin - before, corpus.frames[clips] - end])
    first = first + corpus.start[clips].repeat(2)
    long = size >= shortest
    first, size = first[long], size[long]
    frame = torch.arange(int(size.max()), device=corpus.device) if len(size) else size
    levels = []
    for start, rows in zip(first.split(1024), size.split(1024), strict=True):
        inside = frame < rows[:, None]
        power = corpus.audio[torch.where(inside, start[:, None] + frame, -1)].float().pow(2).mean(-1)
        levels.append((power.sum(1) / rows).sqrt())
    level = torch.cat(levels) if levels else size.float()
    loud = level >= REST_LEVEL
    return replace(corpus, rests=torch.stack([first[loud], size[loud]], 1), rest_level=level[loud])


@dataclass
class Voices:
    """The clips of some speakers, grouped so that a GPU can draw from them: clip = order[first[v] + r %
    count[v]].
    """

    order: torch.Tensor
    first: torch.Tensor
    count: torch.Tensor
    weight: torch.Tensor  # how often to draw each voice
    speaker: torch.Tensor  # position in corpus.names
    speed: torch.Tensor  # position in SPEEDS
    twin: torch.Tensor  # the same speaker at a speed 22 to 25 % off (TWIN_OF); -1: there is none
    names: list[str]

    def __len__(self) -> int:
        return len(self.first)

    def draw(self, voices: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
        """A clip of each voice; `random` is uniform in [0, 1), shaped like `voices`."""
        return self.order[self.first[voices] + (random * self.count[voices]).long()]

    def two(self, voices: torch.Tensor, random: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Two clips of each voice, different ones where it has them; `random` is (2, voices)."""
        count = self.count[voices]
        place = (random[0] * count).long()
        other = (place + 1 + (random[1] * (count - 1)).long()) % count
        return self.order[self.first[voices] + place], self.order[self.first[voices] + other]

    def some(self, count: int) -> "Voices":
        """The first `count` voices of a fixed shuffle, without their twins: enough for a short run."""
        return self._at(torch.randperm(len(self), generator=torch.Generator().manual_seed(0))[:count])

    def only(self, chosen: list[bool]) -> "Voices":
        """The voices that are chosen, without their twins."""
        return self._at(torch.tensor(chosen).nonzero()[:, 0])

    def _at(self, kept: torch.Tensor) -> "Voices":
        kept = kept.to(self.first.device)
        clips = [self.order[f : f + n] for f, n in zip(self.first[kept], self.count[kept], strict=True)]
        count_of = self.count[kept]
        return Voices(
            order=torch.cat(clips),
            first=count_of.cumsum(0) - count_of,
            count=count_of,
            weight=self.weight[kept],
            speaker=self.speaker[kept],
            speed=self.speed[kept],
            twin=torch.full_like(kept, -1),
            names=[self.names[i] for i in kept.tolist()],
        )


def voices(
    corpus: Corpus,
    *,
    dev: bool = False,
    split: int = TRAIN,
    shortest: int = 80,
    speeds: int = len(SPEEDS),
) -> Voices:
    """Training voices (speaker x speed), at the first `speeds` of SPEEDS, or with `dev` those of the speakers
    kept back, at their own speed only.
    """
    speaker, speed = corpus.speaker.cpu().numpy(), corpus.speed.cpu().numpy()
    usable = (corpus.split.cpu().numpy() == split) & (corpus.stretch_count.cpu().numpy() > 0)
    usable &= corpus.frames.cpu().numpy() >= shortest
    if split == TRAIN:
        usable &= np.isin(speaker, list(corpus.dev)) == dev
    usable &= speed < (1 if dev else speeds)
    clips = np.flatnonzero(usable)
    key = speaker[clips] * len(SPEEDS) + speed[clips]
    order = clips[np.argsort(key, kind="stable")]
    classes, first, count = np.unique(np.sort(key), return_index=True, return_counts=True)
    owner = classes // len(SPEEDS)
    names = [corpus.names[i] for i in owner]
    seconds = np.add.reduceat(corpus.frames.cpu().numpy()[order], first) / 100
    weight = 0.4 + 0.6 * np.minimum(seconds, 16) / 16
    weight *= np.where(["arabic" in name for name in names], 0.3, 1.0)  # one-word clips
    weight *= np.array(OFTEN)[classes % len(SPEEDS)]
    partner = np.array([TWIN_OF.get(speed, -1) for speed in range(len(SPEEDS))])[classes % len(SPEEDS)]
    other = np.where(partner < 0, -1, owner * len(SPEEDS) + partner)
    twin = np.searchsorted(classes, other).clip(max=len(classes) - 1)
    twin = np.where(classes[twin] == other, twin, -1)

    def put(array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array).to(corpus.device)

    return Voices(
        order=put(order),
        first=put(first),
        count=put(count),
        weight=put(weight).float(),
        speaker=put(owner),
        speed=put(classes % len(SPEEDS)),
        twin=put(twin),
        names=names,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode the training parts into a cache folder.")
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="folders, each with partN.ogg and index.json"
    )
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--speeds", type=int, default=len(SPEEDS), help="1: as recorded only, enough to evaluate"
    )
    args = parser.parse_args()
    decode(args.data, args.cache, args.workers, args.speeds)


if __name__ == "__main__":
    main()
