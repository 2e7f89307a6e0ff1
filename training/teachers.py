"""CAM++ of 3D-Speaker, whose voice vectors the embedding learns to give; the network only, no weights.

Names are those of its checkpoint. It looks at all it is given, so it takes whole pieces and no masks. Only
inference: nothing here is trained.
"""

import torch
from torch import nn
from torch.nn import functional

POOLED = 100  # features of the stretches whose mean a layer looks at


class Residual(nn.Module):
    """Two convolutions over time and frequency beside a shortcut; halves the frequencies if `first`."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        stride = (2 if first else 1, 1)
        self.conv1 = nn.Conv2d(32, 32, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 32, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.shortcut = nn.Sequential()
        if first:
            self.shortcut = nn.Sequential(nn.Conv2d(32, 32, 1, stride, bias=False), nn.BatchNorm2d(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Head(nn.Module):
    """(B, 80, T) -> (B, 320, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.layer1 = nn.Sequential(Residual(first=True), Residual(first=False))
        self.layer2 = nn.Sequential(Residual(first=True), Residual(first=False))
        self.conv2 = nn.Conv2d(32, 32, 3, (2, 1), 1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(bands.unsqueeze(1))))
        y = functional.relu(self.bn2(self.conv2(self.layer2(self.layer1(y)))))
        return y.flatten(1, 2)


class Unit(nn.Module):
    """Layer that the checkpoint calls linear or nonlinear: a convolution, batch statistics before or
    behind."""

    def __init__(self, inside: int, outside: int, *, size: int = 1, before: bool, bias: bool = False) -> None:
        super().__init__()
        self.before = before
        self.linear = nn.Conv1d(inside, outside, size, 2 if size > 1 else 1, size // 2, bias=bias)
        self.nonlinear = nn.ModuleDict({"batchnorm": nn.BatchNorm1d(inside if before else outside)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            return self.linear(functional.relu(self.nonlinear["batchnorm"](x)))
        return functional.relu(self.nonlinear["batchnorm"](self.linear(x)))


class Mask(nn.Module):
    """A convolution whose channels are weighed by what all frames, and those around, have in common."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(128, 32, 3, 1, dilation, dilation, bias=False)
        self.linear1 = nn.Conv1d(128, 64, 1)
        self.linear2 = nn.Conv1d(64, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around = functional.avg_pool1d(x, POOLED, POOLED, ceil_mode=True)
        around = around.repeat_interleave(POOLED, -1)[..., : x.shape[-1]]
        context = x.mean(-1, keepdim=True) + around
        return self.linear_local(x) * torch.sigmoid(self.linear2(functional.relu(self.linear1(context))))


class Layer(nn.Module):
    """Adds 32 channels to those there are."""

    def __init__(self, inside: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = nn.ModuleDict({"batchnorm": nn.BatchNorm1d(inside)})
        self.linear1 = nn.Conv1d(inside, 128, 1, bias=False)
        self.nonlinear2 = nn.ModuleDict({"batchnorm": nn.BatchNorm1d(128)})
        self.cam_layer = Mask(dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear1(functional.relu(self.nonlinear1["batchnorm"](x)))
        return torch.cat([x, self.cam_layer(functional.relu(self.nonlinear2["batchnorm"](y)))], 1)


class CamPlus(nn.Module):
    """Features less their mean (B, T, 80) -> voice vectors (B, 192), not of unit length."""

    BLOCKS = (12, 1), (24, 2), (16, 2)  # layers of each, and their dilation

    def __init__(self) -> None:
        super().__init__()
        self.head = Head()
        parts: dict[str, nn.Module] = {"tdnn": Unit(320, 128, size=5, before=False)}
        channels = 128
        for number, (layers, dilation) in enumerate(self.BLOCKS, 1):
            parts[f"block{number}"] = nn.ModuleDict(
                {f"tdnnd{i + 1}": Layer(channels + 32 * i, dilation) for i in range(layers)}
            )
            channels += 32 * layers
            parts[f"transit{number}"] = Unit(channels, channels // 2, before=True)
            channels //= 2
        parts["out_nonlinear"] = nn.ModuleDict({"batchnorm": nn.BatchNorm1d(channels)})
        parts["dense"] = nn.ModuleDict(
            {
                "linear": nn.Conv1d(2 * channels, 192, 1, bias=False),
                # No ReLU behind it: in 3D-Speaker the last layer has none.
                "nonlinear": nn.ModuleDict({"batchnorm": nn.BatchNorm1d(192, affine=False)}),
            }
        )
        self.xvector = nn.ModuleDict(parts)

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        parts = self.xvector
        y = parts["tdnn"](self.head(feats.transpose(1, 2)))
        for number in range(1, len(self.BLOCKS) + 1):
            for layer in parts[f"block{number}"].values():
                y = layer(y)
            y = parts[f"transit{number}"](y)
        y = functional.relu(parts["out_nonlinear"]["batchnorm"](y))
        pooled = torch.cat([y.mean(-1), y.std(-1)], 1)
        dense = parts["dense"]
        return dense["nonlinear"]["batchnorm"](dense["linear"](pooled.unsqueeze(-1)).squeeze(-1))
