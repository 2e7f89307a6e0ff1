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
LENGTH = 10 * RATE
DATA, END, OUT = sys.argv[1:]
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


def chance(g, shape, p):
    return uniform(g, shape) < p


def convolve(x, h):
    n = 1 << (x.shape[-1] + h.shape[-1] - 1).bit_length()
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(h, n), n)[..., : x.shape[-1]]


def said(tape, start, length, here, rate, begin, solo, stretch, first, last):
    """Both voices (count, 2, LENGTH): alone from `begin` on, then in the stretch where a turn is."""
    at = torch.arange(LENGTH, device=tape.device)
    inside = (at >= begin[..., None]) & (at < (begin + solo)[..., None])
    offset = torch.where(inside, at - begin[..., None], at - stretch[..., None] + solo[..., None] + 800)
    offset = offset * rate[..., None]
    within = ((at >= first[..., None]) & (at < last[..., None])).any(-2)
    within = within & (at >= stretch[..., None]) & (offset < length[..., None] - 800)
    position = (here[..., None] + offset).clamp(min=0) % length[..., None]
    low = position.floor()
    part = position - low
    low = torch.minimum(low.long(), length[..., None].long() - 1)
    high = torch.where(low + 1 >= length[..., None].long(), 0, low + 1)
    x = tape[start[..., None] + low].float() * (1 - part) + tape[start[..., None] + high].float() * part
    return x / 32768 * (inside | within)


def telephone(x):
    """Through 8 bits of the mu-law."""
    top = x.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    y = torch.log1p(255 * x.abs() / top) / math.log(256)
    y = (y * 127).round() / 127
    return x.sign() * torch.expm1(y * math.log(256)) / 255 * top


if COMPILE:
    said, telephone = torch.compile(said), torch.compile(telephone)


def batch(bank, g, count, held=False):
    """mix (count, LENGTH), targets (count, 2, LENGTH), active (count, frames, 2), counted (count, LENGTH)."""
    tape, starts, lengths = bank.ready[1 if held else 0]
    who = torch.rand((count, len(starts)), generator=g, device=dev).topk(2, -1).indices  # (count, 2)
    length = lengths[who].float()
    at = torch.arange(LENGTH, device=dev)
    # where each is alone, then the stretch; now and then nobody knows the voice of one of the two
    solo = uniform(g, (count, 2), 1.2, 2.6) * RATE
    solo = torch.where(chance(g, (count, 1), 0.05) & torch.tensor([True, False], device=dev), 800.0, solo)
    solo = torch.where(chance(g, (count, 1), 0.5), solo.flip(-1), solo)
    begin = torch.stack((torch.zeros(count, device=dev), solo[:, 0]), -1)
    stretch = solo.sum(-1, keepdim=True)  # (count, 1)
    room = (LENGTH - stretch)[..., None]
    rate = torch.where(chance(g, (count, 2), 0.4), uniform(g, (count, 2), 0.88, 1.12), 1.0)
    # one long turn of each, or two shorter ones
    span = uniform(g, (count, 2, 1), 0.45, 1.2).clamp(max=1) * room
    span = torch.cat((span, torch.zeros_like(span)), -1)
    short = uniform(g, (count, 2, 2), 0.15, 0.6) * room
    span = torch.where(chance(g, (count, 2, 1), 0.4), short, span)
    first = stretch[..., None] + uniform(g, (count, 2, 2)) * (room - span)
    x = said(
        tape,
        starts[who],
        length,
        uniform(g, (count, 2)) * length,
        rate,
        begin,
        solo,
        stretch,
        first,
        first + span,
    )
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
    # a room, one for both or one for each
    taps = torch.arange(8000, device=dev) / RATE
    decay = uniform(g, (count, 2, 1), 0.1, 0.7)
    wet = uniform(g, (count, 2, 1), -3, 18)
    dry = chance(g, (count, 2, 1), 0.35)
    one = chance(g, (count, 1, 1), 0.5)
    decay, dry = torch.where(one, decay[:, :1], decay), torch.where(one, dry[:, :1], dry)
    tail = torch.randn((count, 2, 8000), generator=g, device=dev)
    tail = tail * torch.exp(-6.9 / decay * taps) * (taps > 0.002)
    tail = tail / tail.norm(dim=-1, keepdim=True) * 10 ** (-wet / 20) * ~dry
    tail[..., 0] = 1
    x = convolve(x, tail)
    # noise of one place, and now and then of each voice's own
    start = (uniform(g, (count, 1)) * (len(bank.rest) - LENGTH)).long()
    noise = bank.rest[start + at].float()
    noise = noise / noise.std(-1, keepdim=True).clamp(min=1)
    f = torch.linspace(0, RATE / 2, LENGTH // 2 + 1, device=dev)
    white = torch.fft.rfft(torch.randn((count, LENGTH), generator=g, device=dev))
    colored = torch.fft.irfft(white * (f / 1000 + 0.05) ** -uniform(g, (count, 1), 0, 1.3), LENGTH)
    colored = colored / colored.std(-1, keepdim=True)
    noise = torch.where(chance(g, (count, 1), 0.6), noise, colored)
    noise = noise * 10 ** (-uniform(g, (count, 1), 6, 40) / 20) * chance(g, (count, 1), 0.85)
    # a channel: a slope, now and then a dull microphone or a telephone; one for all, or one for each voice
    sound = torch.cat((x, noise[:, None]), 1)
    each = chance(g, (count, 1, 1), 0.5)

    def own(value):  # (count, 3, 1): that of the first for all, unless each has its own
        return torch.where(each, value, value[:, :1])

    slope = own(uniform(g, (count, 3, 1), -6, 6)) / 20 * (f / 4000 - 1).clamp(-1, 1)
    low, high = own(uniform(g, (count, 3, 1), 150, 350)), own(uniform(g, (count, 3, 1), 3200, 4000))
    dull = own(uniform(g, (count, 3, 1), 3000, 8000))
    phone = chance(g, (count, 1, 1), 0.3)
    narrow = 1 / (1 + (low / (f + 1)) ** 6) / (1 + (f / high) ** 16)
    muffled = torch.where(own(chance(g, (count, 3, 1), 0.2)), 1 / (1 + (f / dull) ** 8), 1.0)
    sound = torch.fft.irfft(torch.fft.rfft(sound) * 10**slope * torch.where(phone, narrow, muffled), LENGTH)
    mix = sound.sum(1)
    mix = torch.where(phone[:, 0] & chance(g, (count, 1), 0.5), telephone(mix), mix)
    scale = 1 / mix.std(-1, keepdim=True).clamp(min=1e-3)
    # the overlaps count most: only they are taken from the network
    both = F.max_pool1d(active.amin(1, keepdim=True), 9, 1, 4)[:, 0].repeat_interleave(HOP, -1)[:, :LENGTH]
    counted = (at >= stretch) * (0.15 + 0.85 * both)
    # what a diarizer makes of it
    shift = (torch.randn((count, 2, 1), generator=g, device=dev) * 4).round().long()
    t = torch.arange(frames, device=dev)
    active = active.gather(-1, (t - shift).clamp(0, frames - 1))
    lost = uniform(g, (count, 2, 1), 0, frames)
    drop = (t > lost) & (t < lost + 40) & chance(g, (count, 2, 1), 0.15)
    more = (t > lost) & (t < lost + 30) & chance(g, (count, 2, 1), 0.08)
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


def mels(count=64):
    """(bins, count): triangles at equal distances in mel, each of sum 1."""
    top = 2595 * math.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, count + 2) / 2595) - 1) / RATE * SIZE
    bins = torch.arange(SIZE // 2 + 1)[:, None]
    up, down = (
        (bins - edges[:-2]) / (edges[1:-1] - edges[:-2]),
        (edges[2:] - bins) / (edges[2:] - edges[1:-1]),
    )
    out = torch.minimum(up, down).clamp(min=0)
    return (out / out.sum(0).clamp(min=1e-3)).to(dev)


MELS = mels()


def difference(a, b, counted):
    """Of two spectra: that of the magnitudes to the power of 0.3, in bins and in mel bands."""
    a, b = a.pow(2).sum(-1), b.pow(2).sum(-1)
    bins = ((a + 1e-6) ** 0.15 - (b + 1e-6) ** 0.15).abs().mean(-1)
    bands = ((a @ MELS + 1e-6) ** 0.15 - (b @ MELS + 1e-6) ** 0.15).abs().mean(-1)
    return ((bins + bands) * counted).sum((-2, -1)) / counted.sum((-2, -1)) / 2


if COMPILE:
    difference = torch.compile(difference)


def judge(net, bank):
    before, after = [], []
    for seed in range(4):
        g = torch.Generator(dev).manual_seed(1000 + seed)
        mix, targets, active, counted = batch(bank, g, BATCH, held=True)
        y = istft(run(net, mix, targets, active)).detach()  # not no_grad: that would be compiled anew
        before.append(decibels(mix[:, None].expand_as(targets), targets, counted))
        after.append(decibels(y, targets, counted))
    b, a = torch.cat(before), torch.cat(after)
    return f"SNR {b.mean():.2f} -> {a.mean():.2f} dB, worst tenth {a.flatten().quantile(0.1):.1f}, got worse {(a < b).float().mean():.3f}"


class Run:
    """The optimizer, and the mean of the weights."""

    def __init__(self, net):
        self.net, self.steps = net, 0
        self.adam = torch.optim.AdamW(
            [
                {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.01},
                {"params": [p for p in net.parameters() if p.ndim <= 1], "weight_decay": 0.0},
            ],
            lr=PEAK,
            betas=(0.9, 0.98),
            fused=dev.type == "cuda",
        )
        self.average = {k: v.clone() for k, v in net.state_dict().items()}

    def step(self, share):
        rate = min(1, (self.steps + 1) / 300) * share
        for group in self.adam.param_groups:
            group["lr"] = PEAK * rate
        self.adam.step()
        self.steps += 1
        with torch.no_grad():
            keep = min(0.999, self.steps / (self.steps + 20))
            now = self.net.state_dict()
            torch._foreach_lerp_(list(self.average.values()), [now[k] for k in self.average], 1 - keep)


def share(done):
    """Of the highest rate: all of it for the first third, then down to nothing."""
    return 1 if done < 0.33 else max(0.005, 0.5 * (1 + math.cos(math.pi * min(1, (done - 0.33) / 0.66))))


def main():
    os.makedirs(OUT, exist_ok=True)
    bank = Bank()
    bank.read()
    torch.manual_seed(0)
    net = Separator().to(dev)
    print("parameters", sum(p.numel() for p in net.parameters()), flush=True)
    if os.path.exists(f"{DATA}/net.pt"):  # goes on with the mean of an earlier run
        net.load_state_dict(
            {k: v.float() for k, v in torch.load(f"{DATA}/net.pt", weights_only=True).items()}
        )
    fast = torch.compile(net) if COMPILE else net
    g = torch.Generator(dev).manual_seed(int(os.environ.get("SEED", 1)))
    losses = []
    trained = Run(net)

    def one(part):
        mix, targets, active, counted = batch(bank, g, BATCH)
        out = run(fast, mix, targets, active)
        snr = decibels(istft(out), targets, counted)
        weights = counted[:, None, ::HOP]
        spectral = difference(out[:, :, : weights.shape[2]], stft(targets)[:, :, : weights.shape[2]], weights)
        loss = -snr.mean() + 8 * spectral.mean()
        net.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 3.0, foreach=True)
        # one bad batch does nothing (and nobody waits for the GPU to know)
        for p in net.parameters():
            p.grad = torch.where(norm.isfinite(), p.grad, 0.0)
        trained.step(part)
        losses.append(torch.stack((snr.mean(), spectral.mean(), norm)).detach())

    def tell(text):
        m = torch.stack(losses).mean(0).tolist()
        losses.clear()
        live = {k: v.clone() for k, v in net.state_dict().items()}
        net.load_state_dict(trained.average)
        judged = judge(fast, bank)
        net.load_state_dict(live)
        print(
            f"{time.time() - begun:.0f} s, {text} step {trained.steps}, snr {m[0]:.2f}, spectral {m[1]:.4f}, norm {m[2]:.2f}; held back: {judged}",
            flush=True,
        )
        torch.save({k: v.half().cpu() for k, v in trained.average.items()}, f"{OUT}/net.pt.new")
        os.replace(f"{OUT}/net.pt.new", f"{OUT}/net.pt")

    begun = time.time()
    for _ in range(3):  # compiled
        one(0.0)
    trained = Run(net)
    judge(fast, bank)
    losses.clear()
    print(f"compiled in {time.time() - begun:.0f} s", flush=True)
    start = told = time.time()
    end = float(open(END).read())
    while time.time() < end:
        one(share((time.time() - start) / (end - start)))
        if trained.steps % 50 == 0:
            torch.cuda.synchronize() if dev.type == "cuda" else None
            bank.read()
            end = float(open(END).read())
            if time.time() - told > 40:
                told = time.time()
                tell(f"rate {share((time.time() - start) / (end - start)):.3f},")
    tell("last,")
    open(f"{OUT}/done", "w").close()


main()
