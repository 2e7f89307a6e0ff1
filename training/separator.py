"""The network: a mixture's spectrum and who is active when -> a complex mask per speaker."""

import torch
import torch.nn.functional as F
from torch import nn

BINS = 257
WIDTHS = [4] * 10 + [8] * 8 + [16] * 3 + [26, 26, 26, 27]  # 25 bands
WIDE = max(WIDTHS)
assert sum(WIDTHS) == BINS
DILATIONS = [1, 2, 4, 8, 16, 4, 2, 1]
PAIR = 2  # frames that go through the network as one


def places():
    into, back, first = [], [], 0
    for k, w in enumerate(WIDTHS):
        into += [first + min(i, w - 1) for i in range(WIDE)]
        back += [k * WIDE + i for i in range(w)]
        first += w
    return torch.tensor(into), torch.tensor(back)


class Norm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(c))

    def forward(self, x):
        x32 = x.float()
        return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale).to(x.dtype)


class InTime(nn.Module):
    """A gated convolution over frames, the same in every band."""

    def __init__(self, c, dilation, taps=3, wide=2):
        super().__init__()
        self.norm = Norm(c)
        self.into = nn.Linear(c, 2 * wide * c)
        self.taps = nn.Parameter(torch.randn(taps, wide * c) * taps**-0.5)
        self.out = nn.Linear(wide * c, c)
        self.dilation, self.count = dilation, taps
        nn.init.zeros_(self.out.bias)
        self.out.weight.data *= 0.3

    def forward(self, x):
        value, gate = self.into(self.norm(x)).chunk(2, -1)
        reach = self.count // 2 * self.dilation
        padded = F.pad(value, (0, 0, 0, 0, reach, reach))
        t = x.shape[1]
        taps = self.taps.to(value.dtype)
        y = sum(padded[:, j * self.dilation : j * self.dilation + t] * taps[j] for j in range(self.count))
        return x + self.out(y * F.silu(gate))


class AcrossBands(nn.Module):
    """What the bands of a frame tell each other: a few channels of all of them together, through one matrix."""

    def __init__(self, c, few=24):
        super().__init__()
        k = len(WIDTHS)
        self.norm, self.few = Norm(c), few
        self.down, self.mix, self.up = nn.Linear(c, few), nn.Linear(k * few, k * few), nn.Linear(few, c)
        self.up.weight.data *= 0.3

    def forward(self, x):
        b, t, k, _ = x.shape
        y = F.silu(self.down(self.norm(x))).reshape(b, t, k * self.few)
        return x + self.up(F.silu(self.mix(y)).reshape(b, t, k, self.few))


class AcrossTime(nn.Module):
    """Attention between frames, all bands of a frame together: what a voice sounds like, from where it is alone."""

    def __init__(self, c, heads=4, narrow=4):
        super().__init__()
        self.norm, self.heads, self.narrow = Norm(c), heads, narrow
        self.qk, self.v, self.out = nn.Linear(c, 2 * heads * narrow), nn.Linear(c, c), nn.Linear(c, c)
        self.out.weight.data *= 0.3

    def forward(self, x):
        b, t, k, c = x.shape
        h, e, d = self.heads, self.narrow, c // self.heads
        y = self.norm(x)
        q, key = (
            self.qk(y)
            .reshape(b, t, k, 2, h, e)
            .permute(3, 0, 4, 1, 2, 5)
            .reshape(2, b, h, t, k * e)
            .unbind(0)
        )
        v = self.v(y).reshape(b, t, k, h, d).permute(0, 3, 1, 2, 4).reshape(b, h, t, k * d)
        weight = (q @ key.transpose(-1, -2) * (k * e) ** -0.5).softmax(-1)
        y = (weight @ v).reshape(b, h, t, k, d).permute(0, 2, 3, 1, 4).reshape(b, t, k, c)
        return x + self.out(y)


class Separator(nn.Module):
    def __init__(self, c=128):
        super().__init__()
        into, back = places()
        self.register_buffer("into", into, persistent=False)
        self.register_buffer("back", back, persistent=False)
        k = len(WIDTHS)
        self.split = nn.Parameter(torch.randn(k, PAIR * 3 * WIDE, c) * (PAIR * 3 * WIDE) ** -0.5)
        self.band = nn.Parameter(torch.randn(k, c) * 0.3)
        self.active = nn.Linear(PAIR * 2, c)
        blocks = []
        for n, dilation in enumerate(DILATIONS):
            blocks += [InTime(c, dilation), AcrossBands(c)]
            if n % 2:
                blocks.append(AcrossTime(c))
        self.blocks = nn.ModuleList(blocks)
        self.norm = Norm(c)
        self.hidden = nn.Linear(c, 2 * c)
        self.join = nn.Parameter(torch.randn(k, 2 * c, PAIR * WIDE * 4) * (2 * c) ** -0.5 * 0.5)
        self.bias = nn.Parameter(torch.tensor([0.5, 0.0, 0.5, 0.0]).repeat(k, PAIR * WIDE))

    def forward(self, spectrum, active):
        """(batch, frames, BINS, 2) and (batch, frames, 2) -> (batch, frames, BINS, 2 speakers, 2); an even number of frames."""
        b, t = spectrum.shape[0], spectrum.shape[1] // PAIR
        k = len(WIDTHS)
        size = (spectrum.pow(2).sum(-1, keepdim=True) + 1e-8).sqrt()
        x = torch.cat((spectrum * size**-0.7, size**0.3), -1)
        x = (
            x[:, :, self.into]
            .reshape(b, t, PAIR, k, WIDE * 3)
            .transpose(2, 3)
            .reshape(b, t, k, PAIR * WIDE * 3)
        )
        x = torch.matmul(x.transpose(1, 2), self.split).transpose(1, 2)
        x = (x + self.band + self.active(active.reshape(b, t, PAIR * 2))[:, :, None]).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        x = F.silu(self.hidden(self.norm(x)))
        mask = torch.matmul(x.transpose(1, 2), self.join).transpose(1, 2) + self.bias
        mask = mask.float().reshape(b, t, k, PAIR, WIDE, 2, 2).transpose(2, 3)
        mask = mask.reshape(b, t * PAIR, k * WIDE, 2, 2)[:, :, self.back]
        re, im = spectrum[..., None, 0], spectrum[..., None, 1]
        return torch.stack((re * mask[..., 0] - im * mask[..., 1], re * mask[..., 1] + im * mask[..., 0]), -1)
