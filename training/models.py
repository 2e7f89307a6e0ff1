"""The two networks. Their contracts are those of the standard pair (WeSpeaker's and pyannote's), their
insides are not.
"""

import torch
from features import mel_weights
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

# ----------------------------------------------------------------------------------------------------------
# embedding


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))

    def simplify(self) -> None:
        fold(self, "conv1", "norm1")
        fold(self, "conv2", "norm2")
        if isinstance(self.shortcut, nn.Sequential):
            fold(self.shortcut, "0", "1")


def fold(module: nn.Module, conv: str, norm: str) -> None:
    """Moves a normalization by batch statistics into the convolution before it; the result is the same."""
    setattr(module, conv, fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm)))
    setattr(module, norm, nn.Identity())


def statistics(frames: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """(B, C, F) -> (B, 2 C): mean and deviation of the frames, weighted as pyannote's StatsPool by (B, F)."""
    if weights is None:  # exported as ReduceMean, ReduceMean, Concat, where the product cuts the graph
        return torch.cat([frames.mean(-1), torch.sqrt(frames.var(-1) + 1e-7)], 1)
    weights = weights.unsqueeze(1)
    total = weights.sum(-1) + 1e-8
    mean = (frames * weights).sum(-1) / total
    spread = ((frames - mean.unsqueeze(-1)) ** 2 * weights).sum(-1)
    variance = spread / (total - (weights**2).sum(-1) / total + 1e-8)
    return torch.cat([mean, torch.sqrt(variance + 1e-7)], 1)


class EmbeddingNet(nn.Module):
    """ResNet34's blocks over half as many frequency rows: feats (B, T, 80) -> embs (B, 192).

    The first convolution takes every second mel band, which halves the work of all later layers. In time
    the strides and the receptive field (+-116 frames of 10 ms) are ResNet34's: one trunk frame per 8
    feature frames. A convolution treats all frequencies alike, so a learned offset per channel and row
    tells them apart after each stage's start.

    The last stage comes to know the training speakers by heart, and strangers less well, so the vector is a
    linear map of what the second, the third and the last stage hear, all pooled alike as one set of frames.
    """

    STRIDE = 8  # feature frames per trunk frame
    SIZE = 192  # values of a vector, as the teacher's
    DROPOUT = 0.1  # of the statistics

    def __init__(self, width: int = 32, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, (2, 1), 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages, offsets, features, inside, rows = [], [], [], width, 40
        for number, depth in enumerate(blocks):
            outside = width * 2**number
            offsets.append(nn.Parameter(torch.zeros(1, inside, rows, 1)))
            stages.append(
                nn.Sequential(
                    *[
                        Block(inside if i == 0 else outside, outside, 2 if i == 0 and number else 1)
                        for i in range(depth)
                    ]
                )
            )
            inside = outside
            rows = rows if number == 0 else (rows + 1) // 2
            features.append(inside * rows)
        self.stages = nn.ModuleList(stages)
        self.offsets = nn.ParameterList(offsets)
        self.taps = nn.ParameterList()
        size = 2 * sum(features[1:])
        self.head_norm: nn.Module = nn.BatchNorm1d(size)
        self.head = nn.Linear(size, self.SIZE)

    def frames(self, feats: torch.Tensor) -> torch.Tensor:
        """(B, T, 80) -> (B, channels x rows of the last, second and third stage, ceil(T / 8))."""
        bands = feats.transpose(1, 2).unsqueeze(1)
        y = functional.relu(self.norm(self.stem(bands)))
        offsets = list(self.offsets)
        for number, taps in enumerate(self.taps):
            offsets[number] = functional.conv2d(bands.clamp(1, 1), taps, stride=(2, 1), padding=(39, 0))
        outputs = []
        for stage, offset in zip(self.stages, offsets, strict=True):
            y = stage(y + offset)
            outputs.append(y)
        _, second, third, last = outputs
        second = functional.avg_pool2d(second, (1, 3), (1, 4), (0, 1), count_include_pad=False)
        third = functional.avg_pool2d(third, (1, 3), (1, 2), (0, 1), count_include_pad=False)
        return torch.cat([last.flatten(1, 2), second.flatten(1, 2), third.flatten(1, 2)], 1)

    def vectors(self, pooled: torch.Tensor) -> torch.Tensor:
        """(B, 2 x features) statistics of trunk frames -> (B, 192)."""
        return self.head(functional.dropout(self.head_norm(pooled), self.DROPOUT, self.training))

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        """Every frame alike."""
        return self.vectors(statistics(self.frames(feats)))

    def simplify(self) -> None:
        """The same function in less time, for export."""
        # ONNX Runtime adds what a convolution gives to what another one does in passing. Any other addition
        # takes all values out of the order in memory that its convolutions like, and back: 4 % of the trunk.
        # A tall convolution of ones sees other numbers of them in each row, as zeros are all around.
        for number in range(2):  # in later stages it would not pay
            self.taps.append(_taps(self.offsets[number].data[0, :, :, 0]))
        fold(self, "stem", "norm")
        for stage in self.stages:
            for block in stage:
                block.simplify()
        norm = self.head_norm
        scale = norm.weight.data / torch.sqrt(norm.running_var + norm.eps)
        self.head.bias.data += self.head.weight.data @ (norm.bias.data - norm.running_mean * scale)
        self.head.weight.data *= scale
        self.head_norm = nn.Identity()


def _taps(offsets: torch.Tensor) -> nn.Parameter:
    """(channels, rows) -> (channels, 1, 2 rows - 1, 1): the kernel that makes these rows of twice as many
    ones, two at a time, with rows - 1 zeros above and below.
    """
    channels, rows = offsets.shape
    size = 2 * rows - 1
    place = 2 * torch.arange(rows)[:, None] - (rows - 1) + torch.arange(size)
    inside = ((place >= 0) & (place < 2 * rows)).double()
    taps = torch.linalg.lstsq(inside, offsets.double().T, driver="gelsd").solution.T
    return nn.Parameter(taps.float().reshape(channels, 1, size, 1))


# -------------------------------------------------------------------------------------------------------
# segmentation

# Which of the three speakers of a window are active in each of the seven classes, in pyannote's order.
POWERSET = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]])


class LogMel(nn.Module):
    """(N, samples) -> (N, mels, 1 + (samples - 451) // 135), loudness and the channel's color removed per
    window.

    The discrete Fourier transform is two matrix products, which ONNX Runtime runs fast everywhere. 451 and
    135 samples are chosen so that five frames, taken two at a time, see exactly the 991 samples, and step
    the 270 samples, of pyannote's front end.
    """

    LENGTH, STEP = 451, 135

    def __init__(self, mels: int = 80) -> None:
        super().__init__()
        time = torch.arange(self.LENGTH)
        bins = self.LENGTH * 7000 // 16_000 + 2
        angle = 2 * torch.pi * torch.arange(bins)[:, None] * time[None] / self.LENGTH
        window = torch.hann_window(self.LENGTH + 2, periodic=False)[1:-1]
        half = self.LENGTH // 2
        centered = angle - angle[:, half : half + 1]
        # About the window's middle the cosines are even and the sines odd, so that half of the products do.
        even = (torch.cos(centered) * window / window.norm())[:, : half + 1]
        odd = (torch.sin(centered) * window / window.norm())[:, :half]
        self.register_buffer("even", even.t().contiguous(), persistent=False)
        self.register_buffer("odd", odd.t().contiguous(), persistent=False)
        weights = mel_weights(mels, bins, self.LENGTH, low=60.0, high=7000.0)
        weights = weights / weights.sum(0, keepdim=True).clamp(min=1e-3)
        self.register_buffer("mel", weights.contiguous(), persistent=False)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        samples = samples - samples.mean(-1, keepdim=True)
        # Without the bass, or a rumble would decide what is loud and push the upper bands under the floor.
        samples = functional.pad(samples[..., 1:] - 0.97 * samples[..., :-1], (1, 0))
        samples = samples / torch.sqrt((samples * samples).mean(-1, keepdim=True) + 1e-10)
        frames = 1 + (samples.shape[-1] - self.LENGTH) // self.STEP
        samples = samples[:, : (frames - 1) * self.STEP + self.LENGTH]
        # The second half of each frame backwards is the first half of a frame of the recording backwards.
        first, middle = self._halves(samples)
        last = self._halves(samples.flip(-1))[0].flip(1)
        real = torch.cat([first + last, middle], -1) @ self.even
        imaginary = (first - last) @ self.odd
        power = ((real * real + imaginary * imaginary) @ self.mel).transpose(1, 2)
        level = torch.log(power + 1e-5)
        return level - level.mean(-1, keepdim=True)

    def _halves(self, samples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, samples) -> (N, frames, 225) before the middle of each frame, and (N, frames, 1) in it."""
        half, behind = self.LENGTH // 2, self.LENGTH % self.STEP
        samples = functional.pad(samples, (0, self.STEP - behind))
        rows = samples.reshape(-1, samples.shape[-1] // self.STEP, self.STEP)
        second = rows[:, 1:-2]
        cut = half - self.STEP
        return torch.cat([rows[:, :-3], second[..., :cut]], -1), second[..., cut : cut + 1]


class Norm(nn.LayerNorm):
    """Layer normalization, in the exported graph as two small products: ONNX Runtime's own operator takes
    three times as long on a CPU, a tenth of the whole network. Its scale and offset can be moved into what
    follows.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.onnx.is_in_onnx_export():
            return super().forward(x)
        size = x.shape[-1]
        mean = torch.full((size, 1), 1 / size)
        centered = x - x @ mean
        unit = centered * (1 / torch.sqrt((centered * centered) @ mean + self.eps))
        return unit if self.weight is None else unit * self.weight + self.bias

    def move_into(self, after: nn.Linear) -> None:
        """Leave scale and offset to the layer that reads this one; the result is the same."""
        after.bias.data += after.weight.data @ self.bias.data
        after.weight.data *= self.weight.data
        self.weight = self.bias = None


class Conformer(nn.Module):
    """Attention over the whole window, convolution over its neighborhood, a feed-forward layer; all
    residual.
    """

    def __init__(self, width: int, inside: int, heads: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm = Norm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.conv_norm = Norm(width)
        self.conv_in = nn.Linear(width, 2 * width)
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, bias=False)
        self.conv_batch_norm = nn.BatchNorm1d(width)
        self.conv_out = nn.Linear(width, width)
        self.feed_norm = Norm(width)
        self.feed_in = nn.Linear(width, inside)
        self.feed_out = nn.Linear(inside, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, frames, width = x.shape
        q, k, v = (
            self.query_key_value(self.attention_norm(x)).view(batch, frames, 3, self.heads, -1).unbind(2)
        )
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = self.attention_out(y.transpose(1, 2).reshape(batch, frames, width))
        x = x + functional.dropout(y, self.dropout, self.training)
        y = functional.glu(self.conv_in(self.conv_norm(x)), -1).transpose(1, 2)
        y = self.conv_out(functional.relu(self.conv_batch_norm(self.conv(y))).transpose(1, 2))
        x = x + functional.dropout(y, self.dropout, self.training)
        y = self.feed_out(
            functional.dropout(functional.relu(self.feed_in(self.feed_norm(x))), self.dropout, self.training)
        )
        return x + functional.dropout(y, self.dropout, self.training)


class SegmentationNet(nn.Module):
    """waveform (N, 1, T) -> log-probabilities (N, 1 + (T - 991) // 270, 7); 589 frames for ten seconds.

    A log-mel front end, two convolutions over time and frequency, then conformer layers at a quarter of the
    frame rate, where the network compares voices across the window, and a full-rate path around them that
    keeps the edges sharp.
    """

    def __init__(
        self,
        width: int = 144,
        layers: int = 7,
        inside: int = 576,
        heads: int = 4,
        kernel: int = 15,
        mels: int = 64,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.log_mel = LogMel(mels)
        self.conv1 = nn.Conv2d(1, 24, 3, (2, 1), 1, bias=False)
        self.norm1 = nn.BatchNorm2d(24)
        self.conv2 = nn.Conv2d(24, 32, (3, 5), (2, 2), (1, 0), bias=False)
        self.norm2 = nn.BatchNorm2d(32)
        self.to_frames = nn.Conv1d(32 * (mels // 4), width, 1, bias=False)
        self.norm3 = nn.BatchNorm1d(width)
        self.to_half = nn.Conv1d(width, width, 3, 2, 1)
        self.to_quarter = nn.Conv1d(width, width, 3, 2, 1)
        self.layers = nn.ModuleList([Conformer(width, inside, heads, kernel, dropout) for _ in range(layers)])
        self.quarter_norm = Norm(width)
        self.to_full = nn.ConvTranspose1d(width, width, 4, 4)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.out = nn.Linear(width, 7)

    @staticmethod
    def of(weights: dict[str, torch.Tensor]) -> "SegmentationNet":
        """The network that these weights are of, which may have been pruned (prune.py)."""
        layers = len({name.split(".")[1] for name in weights if name.startswith("layers.")})
        net = SegmentationNet(layers=layers, inside=len(weights["layers.0.feed_in.bias"]))
        net.load_state_dict(weights)  # in single precision, whatever they are stored in
        return net

    def deepen(self, layers: int) -> None:
        """More layers behind the others, which do nothing until they are trained."""
        last = self.layers[-1]
        inside = last.feed_in.out_features
        for _ in range(layers):
            layer = Conformer(
                last.conv.in_channels, inside, last.heads, last.conv.kernel_size[0], last.dropout
            )
            for part in (layer.attention_out, layer.conv_out, layer.feed_out):
                nn.init.zeros_(part.weight)
                nn.init.zeros_(part.bias)
            self.layers.append(layer)

    def simplify(self) -> None:
        """The same function with fewer products, for export."""
        for conv, norm in (("conv1", "norm1"), ("conv2", "norm2"), ("to_frames", "norm3")):
            fold(self, conv, norm)
        for layer in self.layers:
            fold(layer, "conv", "conv_batch_norm")
            layer.attention_norm.move_into(layer.query_key_value)
            layer.conv_norm.move_into(layer.conv_in)
            layer.feed_norm.move_into(layer.feed_in)

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        with torch.autocast(waveform.device.type, enabled=False):
            y = self.log_mel(waveform[:, 0].float())
        y = functional.relu(self.norm1(self.conv1(y.unsqueeze(1))))
        y = functional.relu(self.norm2(self.conv2(y)))
        full = functional.relu(self.norm3(self.to_frames(y.flatten(1, 2))))
        quarter = functional.relu(self.to_quarter(functional.relu(self.to_half(full)))).transpose(1, 2)
        for layer in self.layers:
            quarter = layer(quarter)
        up = self.to_full(self.quarter_norm(quarter).transpose(1, 2))[..., : full.shape[-1]]
        y = functional.relu(self.mix(full + up)).transpose(1, 2)
        return functional.log_softmax(self.out(y).float(), -1)


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
