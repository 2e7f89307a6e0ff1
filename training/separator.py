"""The network: a mixture's spectrum and who is active when -> a complex mask per speaker."""

import torch
import torch.nn.functional as F
from torch import nn

BINS = 257
WIDTHS = [4] * 10 + [8] * 8 + [16] * 3 + [26, 26, 26, 27]  # 25 bands
WIDE = max(WIDTHS)
assert sum(WIDTHS) == BINS
DILATIONS = [1, 2, 4, 8, 16, 32, 8, 2]


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
    """Attention between the bands of a frame."""

    def __init__(self, c, heads=4):
        super().__init__()
        self.norm, self.heads = Norm(c), heads
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.out.weight.data *= 0.3

    def forward(self, x):
        b, t, k, c = x.shape
        h, d = self.heads, c // self.heads
        q, key, v = self.qkv(self.norm(x)).reshape(b, t, k, 3, h, d).permute(3, 0, 1, 4, 2, 5).unbind(0)
        weight = (q @ key.transpose(-1, -2) * d**-0.5).softmax(-1)
        return x + self.out((weight @ v).permute(0, 1, 3, 2, 4).reshape(b, t, k, c))


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
    def __init__(self, c=80):
        super().__init__()
        into, back = places()
        self.register_buffer("into", into, persistent=False)
        self.register_buffer("back", back, persistent=False)
        k = len(WIDTHS)
        self.split = nn.Parameter(torch.randn(k, 3 * WIDE, c) * (3 * WIDE) ** -0.5)
        self.band = nn.Parameter(torch.randn(k, c) * 0.3)
        self.active = nn.Linear(2, c)
        blocks = []
        for n, dilation in enumerate(DILATIONS):
            blocks += [InTime(c, dilation), AcrossBands(c)]
            if n % 2:
                blocks.append(AcrossTime(c))
        self.blocks = nn.ModuleList(blocks)
        self.norm = Norm(c)
        self.hidden = nn.Linear(c, 2 * c)
        self.join = nn.Parameter(torch.randn(k, 2 * c, WIDE * 4) * (2 * c) ** -0.5 * 0.5)
        self.bias = nn.Parameter(torch.tensor([0.5, 0.0, 0.5, 0.0]).repeat(k, WIDE))

    def forward(self, spectrum, active):
        """(batch, frames, BINS, 2) and (batch, frames, 2) -> (batch, frames, BINS, 2 speakers, 2)."""
        b, t = spectrum.shape[:2]
        k = len(WIDTHS)
        size = (spectrum.pow(2).sum(-1, keepdim=True) + 1e-8).sqrt()
        x = torch.cat((spectrum * size**-0.7, size**0.3), -1)
        x = x[:, :, self.into].reshape(b, t, k, WIDE * 3)
        x = torch.matmul(x.transpose(1, 2), self.split).transpose(1, 2)
        x = x + self.band + self.active(active)[:, :, None]
        for block in self.blocks:
            x = block(x)
        x = F.silu(self.hidden(self.norm(x)))
        mask = torch.matmul(x.transpose(1, 2), self.join).transpose(1, 2) + self.bias
        mask = mask.float().reshape(b, t, k * WIDE, 2, 2)[:, :, self.back]
        re, im = spectrum[..., None, 0], spectrum[..., None, 1]
        return torch.stack((re * mask[..., 0] - im * mask[..., 1], re * mask[..., 1] + im * mask[..., 0]), -1)
