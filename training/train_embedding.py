# ruff: noqa: T201 - a training script: what it prints is its result
"""Trains the voice embedding: it learns to give the vectors of CAM++ (teachers.py).

Every training window is a small piece of conversation: two voices in turns, in one channel. The trunk runs
over the window once and each voice is pooled over its own frames, as the pipeline does. The teacher hears
each clip once, clean and whole; the student hears a piece of it, in a room, in noise, through a line, cut
short, and is to say the same. A voice appears in two windows of a batch, each with its own channel, while
the other voice of the window shares it, so channel cannot pass for identity.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import talk
import torch
from augment import Dice, add_hum, add_noise, convolve, damage, decibels, equalize, room_responses
from features import Fbank
from metrics import equal_error_rate, pair_scores
from models import EmbeddingNet, parameters, statistics
from simulate import voices_only
from slices import Training, arguments, fast_kernels, load_into
from teachers import CamPlus
from torch.nn import functional

from data import FRAME, HELD_OUT, Corpus, Voices, voices
from witness.models import convert

TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.07
ANGLE, AMONG, CONTRAST = 4.0, 0.5, 0.3  # weights of the three losses
FRAMES = 360  # of a window, 10 ms each
TAUGHT, MOST = 500, 3  # frames of a piece that the teacher hears, and pieces of a clip
SHARE = 2  # windows in turn that share room, noise, equalizer and codec
REAL, FAR = 0.5, 0.35  # with --talk: share of the windows with real turns, and with a far microphone
SLOPPY, LATE = 0.35, 15  # share of the pieces pooled a little off, as a segmentation does it, and frames
LEAST, FULL = 4, 19  # trunk frames: 0.3 s, below it no piece counts; 1.5 s, from there on each counts fully
ADULT = 16  # years


def turns(dice: Dice, count: int, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Assign each frame of each window to voices: (count, 2, frames) sounding, and the same without
    overlap, for pooling."""
    frame = torch.arange(frames, device=dice.generator.device)
    switches = (dice.uniform(count, 3) * frames).long()
    used = (
        torch.arange(3, device=frame.device)
        < dice.choice([0.0, 1.0, 2.0, 3.0], [0.35, 0.3, 0.2, 0.15], count)[:, None]
    )
    alone = ~used[:, 0]
    crossed = ((frame >= switches[..., None]) & used[..., None]).sum(1)
    first = crossed % 2 == 0
    second = ~first & ~alone[:, None]
    begin = (dice.uniform(count, 1) * frames).long()
    overlap = (frame >= begin) & (frame < begin + dice.below(100, count, 1))
    overlap &= dice.chance(0.2, count, 1) & ~alone[:, None]
    sounding = torch.stack([first | overlap, second | overlap], 1)
    return sounding, torch.stack([first & ~overlap, second & ~overlap], 1)


def windows(
    dice: Dice,
    corpus: Corpus,
    pool: Voices,
    fbank: Fbank,
    count: int,
    frames: int,
    meetings: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """feats (count, T, 80), weights (count, 2, trunk frames), voice and clip (count, 2) of each pooled piece.

    With `meetings` (talk.table) half of the windows have the turn-taking of meetings, and some a far
    microphone.
    """
    device = corpus.device
    first = dice.weighted(pool.weight, count, repeat=count > len(pool))
    voice = torch.stack([first, first.roll(-1)], 1)
    one, other = pool.two(first, dice.uniform(2, count))
    clip = torch.stack([one, other.roll(-1)], 1)
    sounding, own = turns(dice, count, frames)
    if meetings is not None:
        real, some = talk.windows(dice, meetings, count, 2, frames), dice.chance(REAL, count, 1, 1)
        sounding, own = torch.where(some, real, sounding), torch.where(some, real & ~real.flip(1), own)
    # From a random place; clips shorter than the window start over.
    length = corpus.frames[clip][..., None]
    at = (dice.uniform(count, 2, 1) * (length - frames).clamp(min=20)).long() + torch.arange(
        frames, device=device
    )
    source = corpus.start[clip][..., None] + at % length
    speech = corpus.flags[source] | dice.chance(0.25, count, 2, 1)
    tracks = voices_only(corpus, torch.where(sounding, source, -1))
    level = (tracks.pow(2).sum(-1, keepdim=True) / (sounding.sum(-1, keepdim=True) * FRAME + 1)).sqrt()
    tracks = tracks / (level + 1e-4) * 0.05 * decibels(dice.uniform(count, 2, 1, low=-7, high=7))
    groups = -(-count // SHARE)
    far = None if meetings is None else dice.chance(FAR, groups)
    response = room_responses(dice, groups, 2 * SHARE, far).view(groups * SHARE, 2, -1)[:count]
    same_place = dice.chance(0.4, count, 1)
    response = torch.stack([response[:, 0], torch.where(same_place, response[:, 0], response[:, 1])], 1)
    wet = dice.chance(0.65, groups, 1, 1)
    wet = (wet if far is None else wet | far[:, None, None]).repeat_interleave(SHARE, 0)[:count]
    tracks = torch.where(wet, convolve(tracks, response), tracks)
    mix = add_noise(dice, corpus, pool, tracks.sum(1), probability=0.7, low=3.0, high=30.0, share=SHARE)
    if far is not None:
        mix = add_hum(dice, mix, far.repeat_interleave(SHARE)[:count])
    mix = equalize(dice, mix, probability=0.75, share=SHARE)
    mix = damage(dice, mix, share=SHARE)
    feats = fbank(mix)
    feats = feats - feats.mean(1, keepdim=True)
    time_at, mel_at = torch.arange(feats.shape[1], device=device), torch.arange(80, device=device)
    start, size = dice.below(feats.shape[1], count, 1), dice.below(14, count, 1)
    feats = feats * ~((time_at >= start) & (time_at < start + size))[..., None]
    start, size = dice.below(80, count, 1), dice.below(9, count, 1)
    feats = feats * ~((mel_at >= start) & (mel_at < start + size))[:, None]
    trunk = -(-feats.shape[1] // EmbeddingNet.STRIDE)
    middle = (torch.arange(trunk, device=device) * EmbeddingNet.STRIDE + 1).clamp(max=frames - 1)
    # Where a segmentation says that somebody begins and ends is a little off.
    late = dice.below(2 * LATE + 1, count, 2, 1) - LATE
    moved = own.gather(-1, (torch.arange(frames, device=device) + late) % frames)
    own = torch.where(dice.chance(SLOPPY, count, 2, 1), moved, own)
    return feats, (own & speech)[..., middle].float(), voice, clip


def contrast_loss(
    vectors: torch.Tensor, voice: torch.Tensor, window: torch.Tensor, apart: torch.Tensor
) -> torch.Tensor:
    """Pieces of one voice in different windows against all other voices of the batch, those of its own
    window too.
    """
    likeness = vectors @ vectors.t() / TEMPERATURE
    same = voice[:, None] == voice
    positive = same & (window[:, None] != window)
    negative = apart
    others = likeness.masked_fill(~negative, -1e4).logsumexp(1, keepdim=True)
    each = functional.softplus(others - likeness)
    return (each * positive).sum() / positive.sum().clamp(min=1)


@torch.no_grad()
def embed_clips(
    see: Callable[[torch.Tensor], torch.Tensor],
    corpus: Corpus,
    fbank: Fbank,
    pieces: list[tuple[int, int, int]],
    batch: int = 256,
) -> torch.Tensor:
    """(clip, first frame, frames) -> (pieces, ...) on the CPU: what `see` makes of the features of each, less
    their mean, by itself and grouped by length.
    """
    # Many lengths: choosing kernels would take longer than running them.
    chosen, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    vectors: list[torch.Tensor] = [torch.empty(0)] * len(pieces)
    by_length: dict[int, list[int]] = {}
    for position, (_, _, size) in enumerate(pieces):
        by_length.setdefault(size, []).append(position)
    start = corpus.start.cpu()
    for size, positions in by_length.items():
        for first in range(0, len(positions), batch):
            some = positions[first : first + batch]
            begin = torch.tensor([int(start[pieces[p][0]]) + pieces[p][1] for p in some])
            rows = begin.to(corpus.device)[:, None] + torch.arange(size, device=corpus.device)
            feats = fbank((corpus.audio[rows].float() / 32768).flatten(1))
            for piece, vector in zip(some, see(feats - feats.mean(1, keepdim=True)).cpu(), strict=True):
                vectors[piece] = vector
    torch.backends.cudnn.benchmark = chosen
    return torch.stack(vectors)


def taught(teacher: CamPlus, corpus: Corpus, fbank: Fbank, pool: Voices) -> torch.Tensor:
    """(clips of the corpus, 192) unit vectors: the teacher's mean over the pieces of each clip of the pool,
    zeros for other clips.
    """
    frames, found = corpus.frames.cpu().numpy(), []
    for clip in pool.order.tolist():
        count = min(MOST, max(1, round(int(frames[clip]) / TAUGHT)))
        size = min(TAUGHT, int(frames[clip]))
        size = size // 50 * 50 if size >= 150 else size // 10 * 10
        last = int(frames[clip]) - size
        found += [(clip, last * number // max(1, count - 1), size) for number in range(count)]
    vectors = functional.normalize(embed_clips(teacher, corpus, fbank, found, batch=512)).to(corpus.device)
    owner = torch.tensor([clip for clip, _, _ in found], device=corpus.device)
    mean = torch.zeros(len(corpus.frames), vectors.shape[1], device=corpus.device)
    return functional.normalize(mean.index_add_(0, owner, vectors))


def pieces(
    corpus: Corpus, pool: Voices, seconds: float
) -> tuple[list[tuple[int, int, int]], np.ndarray, np.ndarray]:
    """Up to four pieces of each clip, as the prototype's figures were taken: pieces, their speakers, their
    clips.
    """
    size = int(seconds * 100)
    order, frames, speaker = (
        pool.order.cpu().numpy(),
        corpus.frames.cpu().numpy(),
        corpus.speaker.cpu().numpy(),
    )
    found = []
    for clip in order:
        for number in range(max(1, min(4, frames[clip] // size))):
            length = min(size, (frames[clip] - number * size) // 10 * 10)
            if length >= 80:
                found.append((int(clip), number * size, int(length)))
    clips = np.array([clip for clip, _, _ in found])
    return found, speaker[clips], clips


def error_rates(net: EmbeddingNet, corpus: Corpus, fbank: Fbank, pool: Voices) -> str:
    texts = []
    for seconds in (3.0, 1.5):
        found, speakers, clips = pieces(corpus, pool, seconds)
        same, different = pair_scores(embed_clips(net, corpus, fbank, found).numpy(), speakers, clips)
        if len(same) and len(different):
            rate, threshold = equal_error_rate(same, different)
            texts.append(
                f"{seconds} s {rate:.2f} % (at {threshold:.3f}, same {same.mean():.2f},"
                f" other {different.mean():.2f})"
            )
    return ", ".join(texts)


def by_age(pool: Voices, title: str) -> dict[str, Voices]:
    """The voices of a pool under its title, and by themselves those of speechocean762, its adults, its
    children: its names end in an age and a letter. Figures of all would not compare with those of earlier
    runs.
    """
    ocean = [re.search(r"speechocean762/\w+_(\d+)\w$", name) for name in pool.names]
    groups = {
        title: [found is None for found in ocean],
        f"{title} speechocean762": [found is not None for found in ocean],
        f"{title} adults": [found is not None and int(found[1]) >= ADULT for found in ocean],
        f"{title} children": [found is not None and int(found[1]) < ADULT for found in ocean],
    }
    return {name: pool.only(chosen) for name, chosen in groups.items() if any(chosen)}


def averaged(training: Training) -> EmbeddingNet:
    net = EmbeddingNet().to(training.args.device)
    net.load_state_dict(training.average)
    return net.eval()


def losses(
    vectors: torch.Tensor,
    wanted: torch.Tensor,
    label: torch.Tensor,
    speaker: torch.Tensor,
    window: torch.Tensor,
    length: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of unit vectors and the teacher's for the same clips: the angle between them, telling the right one of
    the teacher's from the others of the batch, and `contrast_loss`; last the mean cosine.
    """
    cosine = (vectors * wanted).sum(1)
    weight = (length / FULL).clamp(0.3, 1.0)
    angle = ((1 - cosine) * weight).sum() / weight.sum()
    same = label[:, None] == label
    itself = torch.eye(len(label), dtype=torch.bool, device=label.device)
    scores = (vectors @ wanted.t() / TEACHER_TEMPERATURE).masked_fill(same & ~itself, -1e4)
    among = functional.cross_entropy(scores, torch.arange(len(label), device=label.device))
    contrast = contrast_loss(vectors, label, window, speaker[:, None] != speaker)
    return angle, among, contrast, cosine.mean()


def main(argv: list[str] | None = None) -> Path:
    parser = arguments("Train the embedding.", steps=12_000, batch=426, rate=8e-4)
    parser.add_argument("--teacher", type=Path, required=True, help="checkpoint of CAM++ (README.md)")
    parser.add_argument(
        "--talk", type=Path, help="folder of RTTM files: turn-taking of real meetings, and far microphones"
    )
    args = parser.parse_args(argv)
    if args.smoke:
        args.steps, args.batch, args.device = min(args.steps, 2), 6, "cpu"
    fast_kernels()
    torch.manual_seed(args.seed)
    corpus = Corpus.load(args.cache, args.device)
    pool, dev = voices(corpus), voices(corpus, dev=True)
    held_out = voices(corpus, split=HELD_OUT, shortest=10)
    fbank, real = Fbank().to(args.device), None
    if args.talk:
        table = talk.table(talk.training_part(talk.load(args.talk)))
        real = torch.from_numpy(table).to(args.device)
    started = time.time()
    teacher = CamPlus()
    known = convert.read_checkpoint(args.teacher.read_bytes())
    teacher.load_state_dict({name: torch.from_numpy(array) for name, array in known.items()}, strict=False)
    targets = taught(teacher.to(args.device).eval(), corpus, fbank, pool)
    print(f"the teacher has heard {len(pool.order)} clips, {time.time() - started:.0f} s", flush=True)
    net = EmbeddingNet().to(args.device).to(memory_format=torch.channels_last)
    if args.init:
        load_into(net, args.init)
    training = Training(net, args, decay=0.05)
    trunk_of = torch.compile(net.frames, dynamic=False) if args.compile else net.frames
    print(
        f"{len(pool)} voices, {parameters(net) / 1e6:.2f} M parameters, step {training.step} of {args.steps}",
        flush=True,
    )
    while training.running:
        dice = Dice.seeded(args.device, args.seed, training.step)
        with torch.no_grad():
            feats, weights, voice, clip = windows(dice, corpus, pool, fbank, args.batch, FRAMES, real)
        with torch.autocast(corpus.device.type, torch.bfloat16, enabled=corpus.device.type == "cuda"):
            trunk = trunk_of(feats)
        trunk = trunk.float()
        pooled = torch.cat([statistics(trunk, weights[:, 0]), statistics(trunk, weights[:, 1])])
        label, clip = voice.t().reshape(-1), clip.t().reshape(-1)
        window = torch.arange(args.batch, device=corpus.device).repeat(2)
        length = weights.transpose(0, 1).reshape(2 * args.batch, -1).sum(1)
        enough = (length >= LEAST).nonzero()[:, 0]
        label, clip, window, length = label[enough], clip[enough], window[enough], length[enough]
        vectors = functional.normalize(net.vectors(pooled[enough]))
        angle, among, contrast, cosine = losses(
            vectors, targets[clip], label, pool.speaker[label], window, length
        )
        training.update(ANGLE * angle + AMONG * among + CONTRAST * contrast, clip=5.0)
        step = training.step
        if step % 250 == 0 or step in (1, 2, 10, 50):
            print(
                f"{step} {time.time() - training.started:.0f} s cosine {cosine.item():.3f} among"
                f" {among.item():.3f} contrast {contrast.item():.3f} pieces {len(enough)}",
                flush=True,
            )
        if step % 1000 == 0:
            training.save("embedding.npz")
    path, net = training.save("embedding.npz"), averaged(training)
    for title, some in (by_age(dev, "dev") | by_age(held_out, "held out")).items():
        if args.smoke:
            some.order = some.order[:6]
        print(f"{title:24}", error_rates(net, corpus, fbank, some), flush=True)
    return path


if __name__ == "__main__":
    main()
