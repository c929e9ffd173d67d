"""Networks as people write them, each small enough that its parts can be told by reading it."""

import itertools
from functools import cache

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from visprism import dissect


def conv(in_chans, out_chans, **options):
    return nn.Conv2d(in_chans, out_chans, 3, padding=1, **options)


class Pooled(nn.Module):
    """A stem, whatever `body` gives, and a linear classifier of the mean."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = conv(3, width)
        self.fc = nn.Linear(width, 5)

    def body(self, x):
        raise NotImplementedError

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


class Functional(Pooled):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(conv(8, 8) for _ in range(3))

    def body(self, x):
        for layer in self.convs:
            x = functional.relu(x + layer(x))
        return x


class OnlyParameters(nn.Module):
    """Not a single submodule, so no hook of a submodule can see anything."""

    def __init__(self):
        super().__init__()
        shapes = [(8, 3, 3, 3), (8, 8, 3, 3), (8, 8, 3, 3), (5, 8)]
        self.weights = nn.ParameterList(torch.randn(shape) / 4 for shape in shapes)

    def forward(self, x):
        x = functional.conv2d(x, self.weights[0], padding=1)
        for weight in self.weights[1:3]:
            x = x + functional.conv2d(functional.relu(x), weight, padding=1)
        return functional.linear(x.mean((2, 3)), self.weights[3])


class Tied(Pooled):
    def __init__(self):
        super().__init__()
        self.block = conv(8, 8)

    def body(self, x):
        for _ in range(3):
            x = x + self.block(x)
        return x


class InPlace(Pooled):
    """The sum and the activation overwrite the feature map that came in."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(conv(8, 8) for _ in range(2))
        self.act = nn.ReLU(inplace=True)

    def body(self, x):
        for layer in self.convs:
            y = layer(x)
            y += x
            x = self.act(y)
        return x


class OverTheStream(Functional):
    """The sum overwrites what came in."""

    def body(self, x):
        for layer in self.convs:
            branch = layer(x)
            x += branch
        return x


class ByAssignment(Functional):
    """The sum is written into a tensor that stands ready."""

    def body(self, x):
        for layer in self.convs:
            out = torch.zeros_like(x)
            out[:] = x + layer(x)
            x = out
        return x


class UNet(Pooled):
    def __init__(self):
        super().__init__()
        self.down, self.middle = conv(8, 16, stride=2), conv(16, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.fuse = conv(16, 8)

    def body(self, x):
        y = self.up(functional.relu(self.middle(functional.relu(self.down(x)))))
        return self.fuse(torch.cat([x, y], dim=1))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.ways = nn.ModuleList(nn.Conv2d(8, 4, k, padding=k // 2) for k in (1, 3))

    def forward(self, x):
        return functional.relu(torch.cat([way(x) for way in self.ways], dim=1))


class Inceptions(Pooled):
    def __init__(self):
        super().__init__()
        self.mixed = nn.Sequential(Inception(), Inception())

    def body(self, x):
        return self.mixed(x)


class Tokens(nn.Module):
    """Patches of 4, and torch's own transformer layers, one by one."""

    def __init__(self, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, stride=4)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.fc = nn.Linear(16, 5)

    def between(self, x):
        return x

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = self.between(block(x))
        return self.fc(x.mean(1))


class Pruned(Tokens):
    """Keeps the half of the tokens that is the largest: another half in every image."""

    def between(self, x):
        best = x.norm(dim=-1).topk(x.shape[1] // 2, dim=1).indices
        return x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))


class Sorted(Tokens):
    """Keeps all tokens, the largest first: another order in every image."""

    def between(self, x):
        order = x.norm(dim=-1).argsort(dim=1)
        return x.gather(1, order[..., None].expand_as(x))


class TakesDict(Functional):
    def forward(self, inputs):
        return super().forward(inputs["image"])


class GivesTuple(Functional):
    def forward(self, x):
        return super().forward(x), {"loss": None}


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return x / 2


class AfterHalving(Functional):
    """Begins with a function that has its own derivative."""

    def body(self, x):
        return super().body(Halved.apply(x))


class Table(nn.Module):
    """A table over the rows of its input, of which it takes the size alone."""

    def forward(self, x):
        return torch.arange(x.shape[2]).float()[:, None].cos()


class WithTable(Functional):
    def __init__(self):
        super().__init__()
        self.table = Table()

    def body(self, x):
        return super().body(x * self.table(x))


@cache
def _rows(height):
    return torch.linspace(0, 1, height)[:, None]


class CachedTable(nn.Module):
    def forward(self, x):
        angle = _rows(x.shape[2]) * x.shape[3]
        return torch.cos(angle), torch.sin(angle)


class WithCachedTable(Functional):
    def __init__(self):
        super().__init__()
        self.table = CachedTable()

    def body(self, x):
        cos, sin = self.table(x)
        for layer in self.convs:
            x = x + layer(x * cos + x.flip(1) * sin)
        return x


class Normed(Functional):
    """One of its weights is computed from two parameters."""

    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.convs[1])


class Hidden(nn.Module):
    """What it does, torch cannot see."""

    def __init__(self):
        super().__init__()
        self.layer = conv(8, 8)

    def forward(self, x):
        y = self.layer(x).detach().numpy() * 2
        return torch.from_numpy(y)


class AroundHidden(nn.Sequential):
    def __init__(self):
        super().__init__(conv(3, 8), Hidden(), nn.Flatten(), nn.Linear(2048, 5))


class Encoder(Tokens):
    """Torch's own encoder; the norm stands before or after each branch."""

    def __init__(self, *, norm_first):
        super().__init__(depth=0)
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, batch_first=True, norm_first=norm_first, dropout=0.0
        )
        self.blocks.append(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(
            conv(3, 4),
            nn.ReLU(inplace=True),
            conv(4, 4),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            conv(4, 8),
            nn.Flatten(),
            nn.Linear(8 * 64, 5),
        )


class Padded(nn.Sequential):
    """The padding of each convolution is a module of its own, as with TensorFlow's rule."""

    def __init__(self):
        rows = [(nn.ZeroPad2d(1), nn.Conv2d(n, 4, 3), nn.ReLU()) for n in (3, 4, 4)]
        head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
        super().__init__(*itertools.chain(*rows), *head)


NETWORKS = {
    "encoder, norm first": lambda: Encoder(norm_first=True),
    "encoder, norm last": lambda: Encoder(norm_first=False),
    "functional": Functional,
    "only parameters": OnlyParameters,
    "tied": Tied,
    "in place": InPlace,
    "over the stream": OverTheStream,
    "by assignment": ByAssignment,
    "u net": UNet,
    "inceptions": Inceptions,
    "tokens": Tokens,
    "pruned": Pruned,
    "sorted": Sorted,
    "takes dict": TakesDict,
    "gives tuple": GivesTuple,
    "after halving": AfterHalving,
    "normed": Normed,
    "with a table": WithTable,
    "with a cached table": WithCachedTable,
    "around hidden": AroundHidden,
    "vit": lambda: timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=12, depth=3, num_heads=2, num_classes=5
    ),
    "plain": Plain,
    "padded": Padded,
}


@pytest.fixture(scope="session")
def built():
    """A new network, by name; the same weights each time."""

    def build(name):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return NETWORKS[name]().eval()

    return build


@pytest.fixture(scope="session")
def anatomy_of(built):
    """That of a network, by name; dissected once for all tests, which leave it as it was."""
    return cache(lambda name: dissect(built(name), torch.randn(2, 3, 16, 16)))


@pytest.fixture(
    params=[
        *("functional", "only parameters", "tied", "in place"),
        *("over the stream", "by assignment", "vit"),
    ]
)
def anatomy(request, anatomy_of):
    """That of each network in turn whose blocks keep the shape of what comes in."""
    return anatomy_of(request.param)
