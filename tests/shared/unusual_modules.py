"""Networks for 16x16 images and ten classes, each of which keeps something unusual.

Unusual forward passes are in anatomy/by_hand/conftest.py.
"""

import warnings
from contextlib import suppress

import torch
from small_models import seeded
from torch import nn
from torch.utils.checkpoint import checkpoint

SIDE, CLASSES, WIDTH = 16, 10, 6


class Residual(nn.Module):
    """A convolution with BatchNorm beside a skip connection."""

    def __init__(self, conv=None):
        super().__init__()
        self.conv = conv or nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Network(nn.Module):
    """Stem, blocks, and the logits of the mean over positions."""

    def __init__(self, *blocks):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.ModuleList(blocks or [Residual(), Residual()])
        self.head = nn.Linear(WIDTH, CLASSES)

    def features(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x):
        return self.conv(x).mul_(0.5).add_(x).relu_()


class DictOutput(Network):
    def forward(self, x):
        features = self.features(x)
        return {"logits": self.head(features.mean((2, 3))), "features": features}


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Residual()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


class TwoInputs(Network):
    def forward(self, x, scale):
        return super().forward(x * scale)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        tokens = self.norm(x.flatten(2).mT)
        mixed = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return x + mixed.mT.unflatten(2, x.shape[2:])


class Caching(Network):
    """Keeps a table of its own from the first pass on."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0.5, 1, CLASSES)
        return super().forward(x) * self.table


class Counting(Network):
    """Counts its passes in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes += 1
        return super().forward(x)


def shared():
    """The same block twice."""
    block = Residual()
    return Network(block, Residual(), block)


def tied():
    """Two convolutions of one weight."""
    first, second = Residual(), Residual()
    second.conv.weight = first.conv.weight
    return Network(first, second)


def partly_frozen():
    """Frozen parameters, and gradients of an earlier pass."""
    model = Network()
    model(torch.ones(2, 3, SIDE, SIDE)).sum().backward()
    model.stem.requires_grad_(requires_grad=False)
    return model


def hooked():
    """Hooks of the user's on modules and on a parameter, and an instance's own `forward`."""
    model = Network()
    model.blocks[0].register_forward_hook(lambda m, x, out: out * 1.5)  # noqa: ARG005
    model.blocks[1].register_forward_pre_hook(lambda m, x: (x[0] + 1,))  # noqa: ARG005
    model.stem.register_full_backward_hook(lambda m, a, b: None)  # noqa: ARG005
    model.head.weight.register_hook(lambda gradient: gradient)
    plain = model.blocks[1].conv.forward
    model.blocks[1].conv.forward = lambda x: 2 * plain(x)
    return model


def scripted():
    return torch.jit.trace(seeded(Network), torch.zeros(2, 3, SIDE, SIDE))


NETWORKS = {
    "shared block": shared,
    "tied weights": tied,
    "in-place operations": lambda: Network(InPlace(), InPlace()),
    "dict output": DictOutput,
    "compiled": lambda: torch.compile(seeded(Network), backend="eager"),
    "scripted": scripted,
    "bf16": lambda: Network().bfloat16(),
    "channels last": lambda: Network().to(memory_format=torch.channels_last),
    "checkpointed block": lambda: Network(Checkpointed(), Residual()),
    "two inputs": TwoInputs,
    "hooks": hooked,
    "frozen parts and gradients": partly_frozen,
    "attention": lambda: Network(Attention(), Residual(), Attention()),
    "own counter": Counting,
}


def built(name):
    """The network in evaluation mode, always with the same weights; it has run once."""
    # Of torch, that scripting is deprecated.
    with torch.random.fork_rng(), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(0)
        model = NETWORKS[name]().eval()
    with torch.no_grad(), suppress(TypeError):  # of the one with two inputs
        model(torch.zeros(2, 3, SIDE, SIDE, dtype=next(model.parameters()).dtype))
    return model
