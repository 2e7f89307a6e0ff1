# ruff: noqa: T201 - a training script: what it prints is its result
"""Trains the voice embedding.

Every training window is a small piece of conversation: two voices in turns, in one channel. The trunk runs
over the window once and each voice is pooled over its own frames, as the pipeline does. A voice appears in
two windows of a batch, each with its own room, distance, equalizer, level and codec, while the other voice
of the window shares the channel. So the contrastive loss says: same voice through different channels is
near, different voices through the same channel are far. A classifier with an angular margin over all voices
does the rest. Both halves of the network have losses of their own.
"""

import json
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
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from simulate import Talk, voices_only
from slices import Training, arguments, fast_kernels, load_into
from torch import nn
from torch.nn import functional

from data import FRAME, HELD_OUT, Corpus, Voices, joined, voices

SCALE, TEMPERATURE = 32.0, 0.1
MARGIN = 0.25  # angle, radians
FRAMES = 360  # of a window, 10 ms each
SPEEDS = 3  # of data.SPEEDS: with a fifth slower and faster, too, short pieces were told apart less well
SHARE = 2  # windows in turn that share room, noise, equalizer and codec
REAL, FAR = 0.5, 0.3  # with --talk: share of the windows with real turns, and with a far microphone
NEAR_RUNS = 50  # guessed speakers whose clip numbers are this close may be one person
# Who is more alike than all but one in so many pairs of labeled speakers, who are two people, may be one
# person; where clip numbers are near, as most such pairs are one, the second number will do.
ONE_IN, ONE_IN_NEAR = 100_000, 1_000
ADULT = 16  # years
# Pairs of speechocean762, by number, that may be one person each.
PERHAPS_ONE = ("0053", "0092"), ("5406", "5432"), ("0131", "0133"), ("8584", "8585"), ("0112", "0122")


class Classifier(nn.Module):
    """A direction for each class, of each half of the network."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            functional.normalize(torch.randn(classes, size))
            for size in (EmbeddingNet.LATE, EmbeddingNet.EARLY)
        )


def turns(dice: Dice, count: int, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Who holds which frame of each window: (count, 2, frames) sounding, and the same without overlap, for
    pooling.
    """
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
    talk: Talk | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """feats (count, T, 80), weights (count, 2, trunk frames) and voice (count, 2) of each pooled piece.

    With `talk` half of the windows have the turn-taking of meetings, and some a far microphone.
    """
    device = corpus.device
    first = dice.weighted(pool.weight, count, repeat=count > len(pool))
    voice = torch.stack([first, first.roll(-1)], 1)
    one, other = pool.two(first, dice.uniform(2, count))
    clip = torch.stack([one, other.roll(-1)], 1)
    sounding, own = turns(dice, count, frames)
    if talk is not None:
        real, some = talk.windows(dice, count, 2, frames), dice.chance(REAL, count, 1, 1)
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
    far = None if talk is None else dice.chance(FAR, groups)
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
    return feats, (own & speech)[..., middle].float(), voice


def margin_loss(
    vectors: torch.Tensor,
    voice: torch.Tensor,
    weight: torch.Tensor,
    margin: torch.Tensor,
    twins: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Additive angular margin; classes that may be the same person as the label take no part. -> loss,
    accuracy.
    """
    cosine = vectors @ functional.normalize(weight).t()
    target = cosine.gather(1, voice[:, None]).clamp(-1 + 1e-6, 1 - 1e-6)
    moved = torch.cos((torch.acos(target) + margin[:, None]).clamp(max=torch.pi))
    logits = (SCALE * cosine).masked_fill(twins, -1e4)
    logits = logits.scatter(1, voice[:, None], SCALE * moved)
    loss = functional.cross_entropy(logits, voice)
    return loss, (cosine.argmax(1) == voice).float().mean()


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


class Twins:
    """Pairs of training speakers that may be one person, and so must not be pushed apart."""

    def __init__(self, pool: Voices) -> None:
        self.speakers, self.owner = torch.unique(pool.speaker, return_inverse=True)
        names = {int(s): n for s, n in zip(pool.speaker.tolist(), pool.names, strict=True)}
        self.guessed = np.array([names[int(s)].startswith("train_pseudo") for s in self.speakers])
        number = np.array(
            [
                int(names[int(s)].rsplit("_", 1)[-1]) if g else -(10**9) - int(s) * 1000
                for s, g in zip(self.speakers, self.guessed, strict=True)
            ]
        )
        near = abs(number[:, None] - number[None]) <= NEAR_RUNS
        label = [names[int(s)].rsplit("/", 1)[-1].split("_")[0] for s in self.speakers]
        ocean = ["speechocean762/" in names[int(s)] for s in self.speakers]
        for pair in PERHAPS_ONE:
            place = [i for i, name in enumerate(label) if ocean[i] and name in pair]
            near[np.ix_(place, place)] = True
        np.fill_diagonal(near, True)  # a voice at another speed is not a negative of itself either
        self.near = torch.from_numpy(near).to(pool.speaker.device)
        self.pairs = self.near.clone()

    def joined(self, pool: Voices, groups: list[list[int]]) -> "Twins":
        """Of the speakers of `pool`, who were those of `self` before each of the groups became one."""
        first = {speaker: group[0] for group in groups for speaker in group}
        now = Twins(pool)
        speakers = [first.get(int(speaker), int(speaker)) for speaker in self.speakers]
        place = torch.searchsorted(now.speakers, torch.tensor(speakers, device=now.speakers.device))
        one, other = self.pairs.nonzero().t()
        now.pairs[place[one], place[other]] = True
        return now

    def between(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """(voices, voices): True where two voices are, or may be, one person."""
        return self.pairs[self.owner[one]][:, self.owner[other]]

    def find(self, vectors: torch.Tensor) -> int:
        """Adds pairs with a guessed speaker that are more alike than all but 1 in `ONE_IN` pairs of labeled
        ones; how many pairs are so alike.
        """
        new = self._alike(vectors)[0]
        self.pairs |= new
        return int(torch.triu(new, 1).sum())

    def groups(self, vectors: torch.Tensor) -> list[list[int]]:
        """Speakers, as the corpus numbers them, who are one person by their voices: all pairs of a group are
        so alike as `find` wants it. Of labeled ones there is one in a group at most, and it comes first.
        """
        alike, likeness = self._alike(vectors)
        if len(likeness) < 2:
            return []
        distance = torch.where(alike, 1 - likeness, 3.0).double().cpu().numpy()
        np.fill_diagonal(distance, 0)
        tree = linkage(squareform(distance, checks=False), "complete")
        cluster = fcluster(tree, 2.5, "distance")
        order = np.lexsort([self.guessed, cluster])
        ends = np.flatnonzero(np.diff(cluster[order])) + 1
        speakers = self.speakers.cpu().numpy()
        return [speakers[group].tolist() for group in np.split(order, ends) if len(group) > 1]

    def _alike(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(speakers, speakers): who may be one person, and how alike they are."""
        likeness = vectors @ vectors.t()
        guessed = torch.from_numpy(self.guessed).to(likeness.device)
        labeled = torch.triu(~guessed[:, None] & ~guessed[None], 1)
        scores = likeness[labeled]
        if len(scores) < 2:
            return torch.zeros_like(likeness, dtype=torch.bool), likeness
        far, close = (torch.topk(scores, max(1, len(scores) // n)).values[-1] for n in (ONE_IN, ONE_IN_NEAR))
        alike = (likeness > far) & (guessed[:, None] | guessed[None])
        return alike | ((likeness > close) & self.near), likeness


def both_halves(net: EmbeddingNet, pooled: torch.Tensor) -> torch.Tensor:
    return torch.cat(net.halves(pooled), 1) / 2**0.5


@torch.no_grad()
def embed_clips(
    net: EmbeddingNet,
    corpus: Corpus,
    fbank: Fbank,
    starts: list[tuple[int, int, int]],
    view: Callable[[EmbeddingNet, torch.Tensor], torch.Tensor] = both_halves,
    *,
    through: Callable[[torch.Tensor, list[int]], torch.Tensor] = lambda samples, _: samples,
) -> torch.Tensor:
    """(clip, first frame, frames) -> (pieces, ...), what `view` makes of the statistics of each: by itself
    and grouped by length. `through` may do something to the samples of some pieces.
    """
    net.eval()
    torch.backends.cudnn.benchmark = (
        False  # many lengths: choosing kernels would take longer than running them
    )
    vectors: list[torch.Tensor] = [torch.empty(0)] * len(starts)
    by_length: dict[int, list[int]] = {}
    for position, (_, _, size) in enumerate(starts):
        by_length.setdefault(size, []).append(position)
    for size, positions in by_length.items():
        for chunk in range(0, len(positions), 256):
            some = positions[chunk : chunk + 256]
            begin = torch.tensor(
                [int(corpus.start[starts[p][0]]) + starts[p][1] for p in some], device=corpus.device
            )
            rows = begin[:, None] + torch.arange(size, device=corpus.device)
            feats = fbank(through((corpus.audio[rows].float() / 32768).flatten(1), some))
            pooled = statistics(net.frames(feats - feats.mean(1, keepdim=True)))
            for piece, vector in zip(some, view(net, pooled).float().cpu(), strict=True):
                vectors[piece] = vector
    net.train()
    torch.backends.cudnn.benchmark = True
    return torch.stack(vectors)


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


def main(argv: list[str] | None = None) -> Path:
    parser = arguments("Train the embedding.", steps=15_500, batch=426, rate=1.5e-3)
    parser.add_argument(
        "--joined",
        type=Path,
        help="JSON: groups of speakers who are one person; found with the weights of --init where missing",
    )
    parser.add_argument(
        "--talk", type=Path, help="folder of RTTM files: turn-taking of real meetings, and far microphones"
    )
    args = parser.parse_args(argv)
    if args.smoke:
        args.steps, args.batch, args.device = min(args.steps, 2), 6, "cpu"
    fast_kernels()
    torch.manual_seed(args.seed)
    corpus = Corpus.load(args.cache, args.device)
    pool, dev, held_out = (
        voices(corpus, speeds=SPEEDS),
        voices(corpus, dev=True),
        voices(corpus, split=HELD_OUT, shortest=10),
    )
    fbank, real = Fbank().to(args.device), None
    if args.talk:
        table = talk.table(talk.divided(talk.load(args.talk))[0])
        real = Talk.of(corpus, torch.from_numpy(table).to(args.device))
    net = EmbeddingNet().to(args.device).to(memory_format=torch.channels_last)
    if args.init:
        load_into(net, args.init)
        net.forget_analysis()
    twins = Twins(pool)
    if args.joined:
        if not args.joined.exists():
            groups = twins.groups(speaker_means(twins, net, corpus, fbank, pool))
            args.joined.write_text(json.dumps(groups))
        groups = json.loads(args.joined.read_text())
        print(f"{sum(map(len, groups))} speakers are {len(groups)} people", flush=True)
        corpus = joined(corpus, groups)
        pool = voices(corpus, speeds=SPEEDS)
        twins = twins.joined(pool, groups)
    classifier = Classifier(len(pool)).to(args.device)
    classifier.register_buffer("twins", twins.pairs)  # one tensor: what is found goes into the checkpoint
    training = Training(net, args, decay=0.05, extra=classifier)
    if args.init and not training.step:
        start_at_means(classifier, net, corpus, fbank, pool)
    trunk_of = torch.compile(net.frames, dynamic=False) if args.compile else net.frames
    print(
        f"{len(pool)} voices, {parameters(net) / 1e6:.2f} M parameters, step {training.step} of {args.steps}",
        flush=True,
    )
    while training.running:
        step, progress = training.step, training.progress
        dice = Dice.seeded(args.device, args.seed, step)
        count = args.batch
        with torch.no_grad():
            feats, weights, voice = windows(dice, corpus, pool, fbank, count, FRAMES, real)
        with torch.autocast(corpus.device.type, torch.bfloat16, enabled=corpus.device.type == "cuda"):
            trunk = trunk_of(feats)
        trunk = trunk.float()
        pooled = torch.cat([statistics(trunk, weights[:, 0]), statistics(trunk, weights[:, 1])])
        label = voice.t().reshape(-1)
        window = torch.arange(count, device=corpus.device).repeat(2)
        length = weights.transpose(0, 1).reshape(2 * count, -1).sum(1)
        enough = (length >= 4).nonzero()[:, 0]  # 0.3 s
        label, window, length = label[enough], window[enough], length[enough]
        margin = MARGIN * min(1.0, max(0.0, (progress - 0.15) / 0.3))
        margins = margin * (length / 19).clamp(0.2, 1.0)  # full from 1.5 s on
        same_speaker = twins.between(label, torch.arange(len(pool), device=corpus.device))
        others = ~twins.between(label, label)
        losses, accuracies = [], []
        for half, weight in zip(net.halves(pooled[enough]), classifier.weights, strict=True):
            classes, accuracy = margin_loss(half, label, weight, margins, same_speaker)
            losses += [classes, contrast_loss(half, label, window, others)]
            accuracies.append(accuracy)
        training.update(sum(losses), clip=5.0)
        step += 1
        if step % 250 == 0 or step in (1, 2, 10, 50):
            print(
                f"{step} {time.time() - training.started:.0f} s classes and contrast, late and early"
                f" {' '.join(f'{loss.item():.3f}' for loss in losses)} accuracy"
                f" {' '.join(f'{accuracy.item():.3f}' for accuracy in accuracies)} margin {margin:.2f}"
                f" pieces {len(enough)}",
                flush=True,
            )
        if step % 2500 == 0:
            print("  dev", error_rates(averaged(training), corpus, fbank, dev), flush=True)
            save(training, corpus, fbank, pool)
        if step % 5000 == 0 and not args.smoke:
            means = speaker_means(twins, averaged(training), corpus, fbank, pool)
            print("  twins:", twins.find(means), flush=True)
    path, net = save(training, corpus, fbank, pool), averaged(training)
    for title, some in (by_age(dev, "dev") | by_age(held_out, "held out")).items():
        if args.smoke:
            some.order = some.order[:6]
        print(f"{title:24}", error_rates(net, corpus, fbank, some), flush=True)
    return path


def save(training: Training, corpus: Corpus, fbank: Fbank, pool: Voices) -> Path:
    net = averaged(training)
    join(net, corpus, fbank, pool)
    training.average |= {name: value for name, value in net.state_dict().items() if name.startswith("outs.")}
    return training.save("embedding.npz")


def mean_vectors(
    net: EmbeddingNet,
    corpus: Corpus,
    fbank: Fbank,
    clips: torch.Tensor,
    owner: torch.Tensor,
    count: int,
) -> torch.Tensor:
    """(count, 448) unit vectors: the mean of the first four seconds of the clips of each owner."""
    frames = corpus.frames.cpu().numpy()
    chosen = [(int(clip), 0, int(min(400, frames[clip] // 40 * 40))) for clip in clips.tolist()]
    vectors = embed_clips(net, corpus, fbank, chosen).to(corpus.device)
    mean = torch.zeros(count, vectors.shape[1], device=corpus.device)
    return functional.normalize(mean.index_add_(0, owner, vectors))


@torch.no_grad()
def start_at_means(
    classifier: Classifier, net: EmbeddingNet, corpus: Corpus, fbank: Fbank, pool: Voices
) -> None:
    """A network that knows voices already begins with a classifier that knows its vectors."""
    owner = torch.repeat_interleave(torch.arange(len(pool), device=corpus.device), pool.count)
    means = mean_vectors(net, corpus, fbank, pool.order, owner, len(pool))
    for weight, half in zip(classifier.weights, means.split([net.LATE, net.EARLY], 1), strict=True):
        weight.copy_(functional.normalize(half))


@torch.no_grad()
def join(net: EmbeddingNet, corpus: Corpus, fbank: Fbank, pool: Voices) -> None:
    """The last map, from three seconds of each speaker."""
    clips = pool.order[pool.first[pool.speed == 0]].tolist()  # the first of each
    chosen = [(clip, 0, min(300, int(corpus.frames[clip]) // 50 * 50)) for clip in clips]
    net.join(embed_clips(net, corpus, fbank, chosen, lambda net, pooled: torch.cat(net.parts(pooled), 1)))


def speaker_means(
    twins: Twins, net: EmbeddingNet, corpus: Corpus, fbank: Fbank, pool: Voices
) -> torch.Tensor:
    """(speakers, 448): of clips at their own speed."""
    clips = pool.order[corpus.speed[pool.order] == 0]
    owner = torch.searchsorted(twins.speakers, corpus.speaker[clips])
    return mean_vectors(net, corpus, fbank, clips, owner, len(twins.speakers))


if __name__ == "__main__":
    main()
