"""Train the separator on mixtures made on the GPU: python train_separator.py DATA END OUT.

END is a file with the time (seconds since 1970) at which training ends; it is read again and again.

DATA holds NAME.N.ogg (part N of the corpus NAME) and NAME.json (its index); parts that come later are heard, too.
"""

import glob
import json
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import soundfile
import torch
import torch.nn.functional as F
from separator import Separator

RATE, SIZE, HOP = 16000, 512, 256
LENGTH = 12 * RATE
DATA, END, OUT = sys.argv[1:]
TRIAL = float(os.environ.get("TRIAL", 40))  # seconds for each optimizer before the better one goes on
BATCH = int(os.environ.get("BATCH", 32))
PEAK = float(os.environ.get("LR", 1e-3))
COMPILE = os.environ.get("COMPILE", "1") == "1"
dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_float32_matmul_precision("high")
INDEX = {name: json.load(open(f"{DATA}/{name}.json")) for name in ("train", "train2")}


class Bank:
    """Each speaker's clips, one after another."""

    def __init__(self):
        self.parts, self.clips, self.noise = set(), {}, []
        self.ready = None

    def read(self):
        new = sorted(set(glob.glob(f"{DATA}/*.ogg")) - self.parts)
        if not new:
            return False
        with ThreadPoolExecutor(8) as pool:
            for path, samples in zip(new, pool.map(lambda p: soundfile.read(p, dtype="int16")[0], new)):
                name, part, _ = os.path.basename(path).split(".")
                index = INDEX[name]
                rows = index["index"]
                noise = [i for i, row in enumerate(rows) if row[4] == 2]
                kept = set(noise[2:409])  # ESC-10 and the librosa examples
                for row, (p, start, n, who, split) in enumerate(rows):
                    if p != int(part):
                        continue
                    clip = samples[start : start + n]
                    if split == 2:
                        if row in kept:
                            self.noise.append(clip)
                    elif split == 0 and "arabic" not in index["speakers"][who]:
                        self.clips.setdefault((name, who), []).append(clip)
                self.parts.add(path)
        self.ready = (self.tapes(lambda i: i % 25 != 0), self.tapes(lambda i: i % 25 == 0))
        hours = sum(len(c) for cs in self.clips.values() for c in cs) / RATE / 3600
        print(
            f"{len(self.clips)} speakers, {hours:.1f} h, noise {sum(map(len, self.noise)) / RATE / 60:.0f} min, {len(self.parts)} parts",
            flush=True,
        )
        noise = np.concatenate(self.noise) if self.noise else np.zeros(LENGTH * 2, np.int16)
        self.rest = torch.from_numpy(noise).to(dev)
        return True

    def tapes(self, wanted):
        keep, starts, lengths, place = [], [], [], 0
        for key, clips in sorted(self.clips.items()):
            n = sum(map(len, clips))
            if wanted(key[1]) and n >= 5 * RATE:
                clips = [c.astype(np.float32) / max(1.0, c.astype(np.float32).std()) * 2000 for c in clips]
                keep.append(np.concatenate(clips).clip(-32768, 32767).astype(np.int16))
                starts.append(place)
                lengths.append(n)
                place += n
        tape = torch.from_numpy(np.concatenate(keep)).to(dev)
        return tape, torch.tensor(starts, device=dev), torch.tensor(lengths, device=dev)


def uniform(g, shape, low=0.0, high=1.0):
    return torch.rand(shape, generator=g, device=dev) * (high - low) + low


def convolve(x, h):
    n = 1 << (x.shape[-1] + h.shape[-1] - 1).bit_length()
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(h, n), n)[..., : x.shape[-1]]


def batch(bank, g, count, held=False):
    """mix (count, LENGTH), targets (count, 2, LENGTH), active (count, frames, 2), counted (count, LENGTH)."""
    tape, starts, lengths = bank.ready[1 if held else 0]
    who = torch.rand((count, len(starts)), generator=g, device=dev).topk(2, -1).indices  # (count, 2)
    length = lengths[who].float()
    at = torch.arange(LENGTH, device=dev)
    # where each is alone, then the stretch
    solo = uniform(g, (count, 2), 1.5, 3.0) * RATE
    # now and then nobody knows the voice of one of the two
    none = (uniform(g, (count, 2)) < 0.06) & torch.tensor([True, False], device=dev)
    solo = torch.where(none | (none.flip(-1) & (uniform(g, (count, 1)) < 0.0)), 800.0, solo)
    swap = uniform(g, (count, 1)) < 0.5
    solo = torch.where(swap, solo.flip(-1), solo)
    begin = torch.stack((torch.zeros(count, device=dev), solo[:, 0]), -1)
    stretch = solo.sum(-1, keepdim=True)  # (count, 1)
    room = LENGTH - stretch
    rate = torch.where(uniform(g, (count, 2)) < 0.4, uniform(g, (count, 2), 0.88, 1.12), 1.0)
    span = torch.minimum(uniform(g, (count, 2), 0.35, 1.1) * room, length / rate - solo - 1600).clamp(
        min=RATE * 0.8
    )
    span = torch.minimum(span, room)
    first = stretch + uniform(g, (count, 2)) * (room - span)
    inside = (at >= begin[..., None]) & (at < (begin + solo)[..., None])
    within = (at >= first[..., None]) & (at < (first + span)[..., None])
    here = uniform(g, (count, 2)) * length
    offset = torch.where(inside, at - begin[..., None], at - first[..., None] + solo[..., None] + 800)
    position = (here[..., None] + offset * rate[..., None]) % length[..., None]
    low = position.floor().long().minimum(lengths[who][..., None] - 1)
    high = torch.where(low + 1 >= lengths[who][..., None], 0, low + 1)
    part = position - low
    s0 = starts[who][..., None]
    x = (tape[s0 + low].float() * (1 - part) + tape[s0 + high].float() * part) / 32768
    x = x * (inside | within)
    # active, by energy
    frames = LENGTH // HOP + 1
    energy = F.avg_pool1d(F.pad(x.pow(2), (HOP, HOP)), SIZE, HOP)[..., :frames]
    loud = energy.sort(-1).values[..., int(frames * 0.93)][..., None]
    active = (energy > loud * 10**-3).float()
    active = F.max_pool1d(active, 15, 1, 7)
    active = -F.max_pool1d(-active, 11, 1, 5)  # closed, and two frames wider
    power = (x.pow(2).sum(-1) / (x.abs() > 1e-5).sum(-1).clamp(min=1)).sqrt()
    x = x / power[..., None].clamp(min=1e-4)
    level = (torch.randn((count, 1), generator=g, device=dev) * 4).clamp(-10, 10) * torch.tensor(
        [0.5, -0.5], device=dev
    )
    x = x * (10 ** (level / 20))[..., None]
    # a room, one for both
    taps = torch.arange(8000, device=dev) / RATE
    decay = 6.9 / uniform(g, (count, 1, 1), 0.1, 0.7)
    tail = torch.randn((count, 2, 8000), generator=g, device=dev) * torch.exp(-decay * taps) * (taps > 0.002)
    tail = tail / tail.norm(dim=-1, keepdim=True) * 10 ** (-uniform(g, (count, 2, 1), -3, 18) / 20)
    tail = tail * (uniform(g, (count, 1, 1)) < 0.65)
    tail[..., 0] = 1
    x = convolve(x, tail)
    # noise
    start = (uniform(g, (count, 1)) * (len(bank.rest) - LENGTH)).long()
    noise = bank.rest[start + at].float()
    white = torch.fft.rfft(torch.randn((count, LENGTH), generator=g, device=dev))
    slope = torch.linspace(1, RATE / 2, white.shape[-1], device=dev)
    colored = torch.fft.irfft(white * (slope / 1000 + 0.05) ** -uniform(g, (count, 1), 0, 1.3), LENGTH)
    noise = torch.where(
        uniform(g, (count, 1)) < 0.6,
        noise / noise.std(-1, keepdim=True).clamp(min=1),
        colored / colored.std(-1, keepdim=True),
    )
    noise = noise * 10 ** (-uniform(g, (count, 1), 6, 40) / 20) * (uniform(g, (count, 1)) < 0.85)
    # one channel for all: a slope, and now and then a telephone
    sound = torch.cat((x, noise[:, None]), 1)
    f = torch.linspace(0, RATE / 2, LENGTH // 2 + 1, device=dev)
    gain = 10 ** (uniform(g, (count, 1), -6, 6) / 20 * (f / 4000 - 1).clamp(-1, 1))
    phone = (
        1
        / (1 + (uniform(g, (count, 1), 200, 350) / (f + 1)) ** 6)
        / (1 + (f / uniform(g, (count, 1), 3300, 4000)) ** 16)
    )
    gain = torch.where(uniform(g, (count, 1)) < 0.2, gain * phone, gain)
    sound = torch.fft.irfft(torch.fft.rfft(sound) * gain[:, None], LENGTH)
    mix = sound.sum(1)
    scale = 1 / mix.std(-1, keepdim=True).clamp(min=1e-3)
    # the overlaps count most: only they are taken from the network
    both = F.max_pool1d(active.amin(1, keepdim=True), 9, 1, 4)[:, 0].repeat_interleave(HOP, -1)[:, :LENGTH]
    counted = (at >= stretch) * (0.15 + 0.85 * both)
    # what a diarizer makes of it
    if True:
        shift = (torch.randn((count, 2, 1), generator=g, device=dev) * 4).round().long()
        t = (torch.arange(frames, device=dev) - shift).clamp(0, frames - 1)
        active = active.gather(-1, t)
        lost = uniform(g, (count, 2, 1), 0, frames)
        t = torch.arange(frames, device=dev)
        drop = (t > lost) & (t < lost + 40) & (uniform(g, (count, 2, 1)) < 0.15)
        more = (t > lost) & (t < lost + 30) & (uniform(g, (count, 2, 1)) > 0.92)
        active = torch.where(drop, 0.0, torch.where(more, 1.0, active))
    return mix * scale, sound[:, :2] * scale[:, None], active.transpose(1, 2), counted


WINDOW = torch.hann_window(SIZE, device=dev).sqrt()


def stft(x):
    shape = x.shape[:-1]
    s = torch.stft(
        x.reshape(-1, x.shape[-1]), SIZE, HOP, window=WINDOW, pad_mode="constant", return_complex=True
    )
    return torch.view_as_real(s).transpose(1, 2).reshape(*shape, -1, SIZE // 2 + 1, 2)


def istft(s):
    shape = s.shape[:-3]
    s = torch.view_as_complex(s.reshape(-1, *s.shape[-3:]).transpose(1, 2).contiguous())
    return torch.istft(s, SIZE, HOP, window=WINDOW, length=LENGTH).reshape(*shape, LENGTH)


def decibels(estimate, target, counted):
    error = ((estimate - target) ** 2 * counted[:, None]).sum(-1)
    power = (target**2 * counted[:, None]).sum(-1)
    return 10 * torch.log10(power.clamp(min=1e-3) / (error + 1e-3 * power + 1e-4))


def run(net, mix, targets, active):
    spectrum = stft(mix)
    even = (0, spectrum.shape[1] % 2)
    with torch.autocast(dev.type, torch.bfloat16):
        out = net(F.pad(spectrum, (0, 0, 0, 0, *even)), F.pad(active, (0, 0, *even)))
    out = out[:, : spectrum.shape[1]]
    return out.float().permute(0, 3, 1, 2, 4)  # (batch, 2, frames, bins, 2)


def size(s):
    return (s.pow(2).sum(-1) + 1e-6) ** 0.15


@torch.no_grad()
def judge(net, bank):
    before, after = [], []
    for seed in range(4):
        g = torch.Generator(dev).manual_seed(1000 + seed)
        mix, targets, active, counted = batch(bank, g, BATCH, held=True)
        y = istft(run(net, mix, targets, active))
        before.append(decibels(mix[:, None].expand_as(targets), targets, counted))
        after.append(decibels(y, targets, counted))
    b, a = torch.cat(before), torch.cat(after)
    return (
        a.mean().item(),
        f"SNR {b.mean():.2f} -> {a.mean():.2f} dB, worst tenth {a.flatten().quantile(0.1):.1f}, got worse {(a < b).float().mean():.3f}",
    )


class Muon:
    """Momentum whose every matrix is made orthogonal (Newton-Schulz), at the size of AdamW's steps."""

    def __init__(self, matrices, decay=0.01):
        shapes = {}
        for p in matrices:
            shapes.setdefault(tuple(p.shape), []).append(p)
        self.groups = [(ps, torch.zeros(len(ps), *shape, device=dev)) for shape, ps in shapes.items()]
        self.decay = decay

    @torch.no_grad()
    def step(self, rate):
        for ps, momentum in self.groups:
            gradient = torch.stack([p.grad for p in ps])
            momentum.lerp_(gradient, 0.05)
            x = gradient.lerp(momentum, 0.95)
            tall = x.shape[-2] > x.shape[-1]
            x = x.mT if tall else x
            x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = (x.mT if tall else x).float() * 0.2 * max(x.shape[-2:]) ** 0.5
            torch._foreach_mul_(ps, 1 - rate * self.decay)
            torch._foreach_add_(ps, list(x.unbind(0)), alpha=-rate)


class Run:
    """One optimizer, its network's weights and their mean."""

    def __init__(self, net, muon):
        self.net, self.steps, self.used = net, 0, 0.0
        matrices = [p for p in net.blocks.parameters() if p.ndim == 2 and min(p.shape) > 3] if muon else []
        taken = {id(p) for p in matrices}
        rest = [p for p in net.parameters() if id(p) not in taken]
        self.muon = Muon(matrices) if muon else None
        self.peak = PEAK * (1.5 if muon else 1)
        self.adam = torch.optim.AdamW(
            [
                {"params": [p for p in rest if p.ndim > 1], "weight_decay": 0.01},
                {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
            ],
            lr=PEAK,
            betas=(0.9, 0.98),
        )
        self.average = {k: v.clone() for k, v in net.state_dict().items()}

    def step(self, share):
        rate = min(1, (self.steps + 1) / 300) * share
        for group in self.adam.param_groups:
            group["lr"] = PEAK * rate
        if self.muon:
            self.muon.step(self.peak * rate)
        self.adam.step()
        self.steps += 1
        with torch.no_grad():
            keep = min(0.999, self.steps / (self.steps + 20))
            now = self.net.state_dict()
            torch._foreach_lerp_(list(self.average.values()), [now[k] for k in self.average], 1 - keep)


def share(done):
    """Of the highest rate: all of it for the first third, then down to nothing."""
    return 1 if done < 0.33 else max(0.01, 0.5 * (1 + math.cos(math.pi * (done - 0.33) / 0.67)))


def main():
    os.makedirs(OUT, exist_ok=True)
    bank = Bank()
    bank.read()
    torch.manual_seed(0)
    net = Separator().to(dev)
    print("parameters", sum(p.numel() for p in net.parameters()), flush=True)
    fast = torch.compile(net) if COMPILE else net
    g = torch.Generator(dev).manual_seed(1)
    losses = []

    def one(run_, part):
        mix, targets, active, counted = batch(bank, g, BATCH)
        out = run(fast, mix, targets, active)
        snr = decibels(istft(out), targets, counted)
        frames = counted[:, None, ::HOP][..., None]
        far = ((size(stft(targets)) - size(out)).abs()[:, :, : frames.shape[2]] * frames).sum((1, 2, 3))
        spectral = far / frames.sum((1, 2, 3)) / 257 / 2
        loss = -snr.mean() + 8 * spectral.mean()
        net.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 3.0)
        if not torch.isfinite(norm):
            print("not finite", run_.steps, flush=True)
            return
        run_.step(part)
        losses.append(torch.stack((snr.mean(), spectral.mean(), norm)).detach())

    def tell(run_, text=""):
        m = torch.stack(losses).mean(0).tolist()
        losses.clear()
        live = {k: v.clone() for k, v in net.state_dict().items()}
        net.load_state_dict(run_.average)
        snr, judged = judge(fast, bank)
        net.load_state_dict(live)
        print(
            f"{time.time() - begun:.0f} s, {text} step {run_.steps}, snr {m[0]:.2f}, spectral {m[1]:.4f}, norm {m[2]:.2f}; held back: {judged}",
            flush=True,
        )
        torch.save({k: v.cpu() for k, v in run_.average.items()}, f"{OUT}/net.pt.new")
        os.replace(f"{OUT}/net.pt.new", f"{OUT}/net.pt")
        return snr

    begun = time.time()
    first = {k: v.clone() for k, v in net.state_dict().items()}
    warm = Run(net, False)
    for _ in range(3):  # compiled
        one(warm, 0.0)
    judge(fast, bank)
    losses.clear()
    print(f"compiled in {time.time() - begun:.0f} s", flush=True)
    tried = []
    for muon in (False, True):
        net.load_state_dict(first)
        run_ = Run(net, muon)
        until = time.time() + TRIAL
        while time.time() < until:
            one(run_, 1.0)
        snr = tell(run_, f"trial, muon {muon},")
        tried.append((snr, muon, run_, {k: v.clone() for k, v in net.state_dict().items()}))
        bank.read()
    _, muon, run_, state = max(tried, key=lambda t: t[0])
    net.load_state_dict(state)
    tried.clear()
    start, told = time.time() - TRIAL, time.time()
    end = float(open(END).read())
    while time.time() < end:
        one(run_, share((time.time() - start) / (end - start)))
        if run_.steps % 100 == 0:
            bank.read()
            end = float(open(END).read())
        if time.time() - told > 45:
            told = time.time()
            tell(run_, f"muon {muon}, rate {share((time.time() - start) / (end - start)):.3f},")
    tell(run_, "last,")
    open(f"{OUT}/done", "w").close()


main()
