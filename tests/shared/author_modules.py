"""Networks with the names, shapes and order of operations of the code of Park and Kim (2022).

Only what their files need: no dropout and no options. Written from the papers' equations.
"""

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512)


def conv(into, out, side=1, stride=1, padding=None, groups=1):
    padding = side // 2 if padding is None else padding
    return nn.Conv2d(into, out, side, stride, padding, groups=groups, bias=False)


def step(into, out, side=1, stride=1, groups=1, *, act=True):
    """Convolution, norm and ReLU."""
    layers = [conv(into, out, side, stride, groups=groups), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([nn.ReLU()] if act else []))


class Dense(nn.Module):
    """The mean over positions and a linear map; before it a norm, or not."""

    def __init__(self, width, classes, *, norm=False):
        super().__init__()
        self.bn = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.norm, self.dense = norm, nn.Linear(width, classes)

    def forward(self, x):
        x = self.bn(x).relu() if self.norm else x
        return self.dense(x.mean((2, 3)))


class ChannelGate(nn.Module):
    def __init__(self, width, *, peak):
        super().__init__()
        self.peak = peak
        layers = nn.Linear(width, width // 16, bias=False), nn.ReLU()
        self.ff = nn.Sequential(*layers, nn.Linear(width // 16, width, bias=False))

    def forward(self, x):
        gate = self.ff(x.mean((2, 3)))
        if self.peak:
            gate = (gate + self.ff(x.amax((2, 3)))) / 2
        return x * gate.sigmoid()[:, :, None, None]


class SpatialGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.ff = step(2, 1, 7, act=False)

    def forward(self, x):
        pooled = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * self.ff(pooled).sigmoid()


class Residual(nn.Module):
    """A basic block (expansion 1) or a bottleneck (4), with a gate or not."""

    def __init__(self, into, width, stride, expansion, groups=1, group_width=64, gate=None):
        super().__init__()
        out, inner = width * expansion, width * group_width // 64 * groups
        self.shortcut = nn.Sequential()
        if stride != 1 or into != out:
            self.shortcut = step(into, out, 1, stride, act=False)
        if expansion == 1:
            self.conv1 = step(into, inner, 3, stride)
            self.conv2 = step(inner, out, 3, act=False)
        else:
            self.conv1 = step(into, inner)
            self.conv2 = step(inner, inner, 3, stride, groups)
            self.conv3 = step(inner, out, act=False)
        self.gate = gate(out) if gate else nn.Identity()

    def forward(self, x):
        branch = self.conv2(self.conv1(x))
        branch = self.conv3(branch) if hasattr(self, "conv3") else branch
        return (self.gate(branch) + self.shortcut(x)).relu()


def before(into, out, side, stride=1):
    """Norm and ReLU before a convolution."""
    return nn.Sequential(nn.BatchNorm2d(into), nn.ReLU(), conv(into, out, side, stride))


class PreActivation(nn.Module):
    def __init__(self, into, width, stride, expansion):
        super().__init__()
        out = width * expansion
        self.shortcut = nn.Sequential()
        if stride != 1 or into != out:
            self.shortcut.append(conv(into, out, 1, stride))
        self.bn = nn.BatchNorm2d(into)
        if expansion == 1:
            self.conv1, self.conv2 = conv(into, width, 3, stride), before(width, out, 3)
        else:
            self.conv1, self.conv2 = conv(into, width), before(width, width, 3, stride)
            self.conv3 = before(width, out, 1)

    def forward(self, x):
        active = self.bn(x).relu()
        branch = self.conv2(self.conv1(active))
        branch = self.conv3(branch) if hasattr(self, "conv3") else branch
        return branch + (self.shortcut(active) if len(self.shortcut) else x)


class MapAttention(nn.Module):
    def __init__(self, into, out, heads, width=64):
        super().__init__()
        self.heads, self.width = heads, width
        self.to_q = nn.Conv2d(into, heads * width, 1, bias=False)
        self.to_kv = nn.Conv2d(into, 2 * heads * width, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(heads * width, out, 1))

    def forward(self, x, bias):
        q, k, v = (
            t.flatten(2).unflatten(1, (self.heads, self.width)).mT
            for t in (self.to_q(x), *self.to_kv(x).chunk(2, 1))
        )
        weights = (q @ k.mT * self.width**-0.5 + bias).softmax(-1)
        return self.to_out((weights @ v).mT.flatten(1, 2).unflatten(2, x.shape[2:]))


class Windows(nn.Module):
    """Attention in windows of p x p pixels with one bias for each relative position."""

    def __init__(self, into, out, heads, p):
        super().__init__()
        self.attn, self.p = MapAttention(into, out, heads), p
        self.pos_embedding = nn.Parameter(torch.randn(2 * p - 1, 2 * p - 1))

    def forward(self, x):
        p, places = self.p, [(i, j) for i in range(self.p) for j in range(self.p)]
        bias = torch.stack(
            [
                self.pos_embedding[k - i + p - 1, m - j + p - 1]
                for i, j in places
                for k, m in places
            ]
        ).view(p * p, p * p)
        rows = []
        for row in x.split(p, 2):
            rows.append(torch.cat([self.attn(window, bias) for window in row.split(p, 3)], 3))
        return torch.cat(rows, 2)


class Msa(nn.Module):
    """A block of an Alter-ResNet; its shape stays."""

    def __init__(self, out, heads, p, expansion):
        super().__init__()
        width = out // expansion
        self.norm1, self.conv = nn.BatchNorm2d(out), nn.Conv2d(out, width, 1, bias=False)
        self.norm2, self.attn = nn.BatchNorm2d(width), Windows(width, out, heads, p)

    def forward(self, x):
        active = functional.gelu(self.norm1(x))
        return x + self.attn(self.norm2(self.conv(active)))


class Stages(nn.Module):
    """A stem, four stages of blocks and a classifier."""

    def __init__(self, depths, make, expansion, stem, classifier):
        super().__init__()
        self.layer0, width = stem, 64
        for stage, depth in enumerate(depths):
            blocks = []
            for place in range(depth):
                blocks.append(make(stage, place, width, WIDTHS[stage]))
                width = WIDTHS[stage] * expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.classifier = nn.Sequential(classifier(width))

    def forward(self, x):
        for layer in (self.layer0, self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.classifier(x)


def stride_of(stage, place):
    return 2 if stage and not place else 1


def resnet(depths, expansion, classes, **block):
    def make(stage, place, into, width):
        return Residual(into, width, stride_of(stage, place), expansion, **block)

    return Stages(depths, make, expansion, step(3, 64, 3), lambda w: Dense(w, classes))


def cbam(width):
    return nn.Sequential(ChannelGate(width, peak=True), SpatialGate())


def squeeze(width):
    return ChannelGate(width, peak=False)


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer0 = nn.Sequential(conv(3, 64, 3))

    def forward(self, x):
        return self.layer0(x)


def preresnet(depths, expansion, classes, msas=(0, 0, 0, 0), window=4):
    heads = (3, 6, 12, 24)
    places = [set(range(d - 1, d - 1 - 2 * n, -2)) for d, n in zip(depths, msas, strict=True)]

    def make(stage, place, into, width):
        if place in places[stage]:
            return Msa(into, heads[stage], window, expansion)
        return PreActivation(into, width, stride_of(stage, place), expansion)

    stem = Stem() if any(msas) else nn.Sequential(conv(3, 64, 3))
    return Stages(depths, make, expansion, stem, lambda w: Dense(w, classes, norm=True))


class Mlp(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(width, 4096), nn.Linear(4096, 4096)
        self.dense3 = nn.Linear(4096, classes)

    def forward(self, x):
        return self.dense3(self.dense2(self.dense1(x.flatten(1)).relu()).relu())


class PlainLayer(nn.Module):
    """A convolution with ReLU, and a norm before it, after it or none."""

    def __init__(self, into, out, side, stride=1, padding=None, norm=""):
        super().__init__()
        if norm == "before":
            self.bn = nn.BatchNorm2d(into)
        self.conv = conv(into, out, side, stride, padding)
        if norm == "after":
            self.bn = nn.BatchNorm2d(out)
        self.norm = norm

    def forward(self, x):
        if self.norm == "before":
            return self.conv(self.bn(x).relu())
        x = self.conv(x)
        return (self.bn(x) if self.norm else x).relu()


class Plain(nn.Module):
    """Rows of layers, each but the first behind a max-pool, and an MLP on a grid."""

    def __init__(self, rows, grid, classes):
        super().__init__()
        for number, row in enumerate(rows):
            pool = [nn.MaxPool2d(2, 2)] if number else []
            self.add_module(f"layer{number}", nn.Sequential(*pool, *row))
        self.rows = len(rows)
        last = rows[-1][-1].conv.out_channels
        pools = nn.MaxPool2d(2, 2), nn.AdaptiveAvgPool2d(grid)
        self.classifier = nn.Sequential(*pools, Mlp(last * grid**2, classes))

    def forward(self, x):
        for number in range(self.rows):
            x = self.get_submodule(f"layer{number}")(x)
        return self.classifier(x)


def vgg(depths, norm, classes):
    rows, into = [], 3
    for depth, width in zip(depths, (64, 128, 256, 512, 512), strict=True):
        rows.append([])
        for _ in range(depth):
            rows[-1].append(PlainLayer(into, width, 3, norm=norm))
            into = width
    return Plain(rows, 7, classes)


def alexnet(classes):
    rows = [
        [PlainLayer(3, 64, 3, 2, 1)],
        [PlainLayer(64, 192, 5)],
        [PlainLayer(192, 384, 3), PlainLayer(384, 256, 3), PlainLayer(256, 256, 3)],
    ]
    return Plain(rows, 2, classes)


class Inverted(nn.Module):
    def __init__(self, into, out, stride, factor):
        super().__init__()
        inner, self.same = into * factor, stride == 1 and into == out
        steps = [step(into, inner)] if factor > 1 else []
        steps += [step(inner, inner, 3, stride, inner), step(inner, out, act=False)]
        for number, layer in enumerate(steps, 1):
            for place, act in enumerate(layer):
                if isinstance(act, nn.ReLU):
                    layer[place] = nn.ReLU6()
            self.add_module(f"conv{number}", layer)

    def forward(self, x):
        branch = x
        for layer in self.children():
            branch = layer(branch)
        return branch + x if self.same else branch


class MobileNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, into = [nn.Sequential(conv(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU6())], 32
        rows = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2)]
        for factor, out, depth, stride in [
            *rows,
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]:
            for place in range(depth):
                layers.append(Inverted(into, out, 1 if place else stride, factor))
                into = out
        layers.append(nn.Sequential(conv(320, 1280), nn.BatchNorm2d(1280), nn.ReLU6()))
        self.features, self.classifier = nn.Sequential(*layers), Dense(1280, classes)

    def forward(self, x):
        return self.classifier(self.features(x))


class FeedForward(nn.Module):
    def __init__(self, width, inner, linear=nn.Linear):
        super().__init__()
        layers = linear(width, inner), nn.GELU(), nn.Identity(), linear(inner, width)
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class TokenAttention(nn.Module):
    def __init__(self, dim, heads, width):
        super().__init__()
        self.heads, self.width = heads, width
        self.to_qkv = nn.Linear(dim, 3 * heads * width, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * width, dim))

    def forward(self, x):
        q, k, v = (
            t.unflatten(2, (self.heads, self.width)).transpose(1, 2)
            for t in self.to_qkv(x).chunk(3, -1)
        )
        weights = (q @ k.mT * self.width**-0.5).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, dim, heads, width):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), TokenAttention(dim, heads, width)
        self.norm2, self.ff = nn.LayerNorm(dim), FeedForward(dim, 4 * dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.ff(self.norm2(x))


class Patches(nn.Module):
    """A linear map of the pixels of each patch, numbered by row, column and then channel."""

    def __init__(self, p, dim):
        super().__init__()
        self.p = p
        self.patch_embedding = nn.Sequential(nn.Identity(), nn.Linear(3 * p * p, dim))

    def forward(self, x):
        patches = x.unfold(2, self.p, self.p).unfold(3, self.p, self.p)  # b c i j row column
        return self.patch_embedding(patches.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2))


class Unfolded(nn.Module):
    """A linear map of overlapping patches, numbered by channel, row and then column."""

    def __init__(self, p, stride, dim):
        super().__init__()
        layers = nn.Unfold(p, stride=stride), nn.Identity(), nn.Linear(3 * p * p, dim)
        self.patch_embedding = nn.Sequential(*layers)

    def forward(self, x):
        return self.patch_embedding[2](self.patch_embedding[0](x).mT)


class ClassToken(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))

    def forward(self, x):
        return torch.cat([self.cls_token.expand(len(x), 1, -1), x], 1)


class Positions(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, tokens, dim))

    def forward(self, x):
        return x + self.pos_embedding


class First(nn.Module):
    def forward(self, x):
        return x[:, 0]


class Tokens(nn.Module):
    """Embedding, transformers and a classifier of the class token."""

    def __init__(self, embedding, tokens, first, blocks, last, classes):
        super().__init__()
        parts = embedding, ClassToken(first), Positions(tokens + 1, first)
        self.embedding, self.transformers = nn.Sequential(*parts), nn.Sequential(*blocks)
        self.classifier = nn.Sequential(First(), nn.LayerNorm(last), nn.Linear(last, classes))

    def forward(self, x):
        return self.classifier(self.transformers(self.embedding(x)))


def vit(classes):
    blocks = [Transformer(192, 3, 64) for _ in range(12)]
    return Tokens(Patches(2, 192), 256, 192, blocks, 192, classes)


class Pool(nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.cls_ff, self.downsample = nn.Linear(into, out), nn.Module()
        self.downsample.net = nn.Sequential(nn.Conv2d(into, out, 3, 2, 1, groups=into))

    def forward(self, x):
        side = round((x.shape[1] - 1) ** 0.5)
        grid = self.downsample.net(x[:, 1:].mT.unflatten(2, (side, side)))
        return torch.cat([self.cls_ff(x[:, :1]), grid.flatten(2).mT], 1)


def pit(classes):
    blocks = [Transformer(64, 2, 32) for _ in range(2)]
    blocks += [Pool(64, 128), *(Transformer(128, 4, 32) for _ in range(6))]
    blocks += [Pool(128, 256), *(Transformer(256, 8, 32) for _ in range(4))]
    return Tokens(Unfolded(2, 1, 64), 31**2, 64, blocks, 256, classes)


class MixerBlock(nn.Module):
    def __init__(self, dim, tokens):
        super().__init__()

        def pointwise(into, out):
            return nn.Conv1d(into, out, 1)

        self.norm1, self.ff1 = nn.LayerNorm(dim), FeedForward(tokens, 128, pointwise)
        self.norm2, self.ff2 = nn.LayerNorm(dim), FeedForward(dim, 1024)

    def forward(self, x):
        x = x + self.ff1(self.norm1(x))
        return x + self.ff2(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.embedding = nn.Sequential(Patches(2, 256))
        self.mlps = nn.Sequential(*(MixerBlock(256, 256) for _ in range(8)))
        layers = nn.LayerNorm(256), nn.Identity(), nn.Linear(256, classes)
        self.classifier = nn.Sequential(*layers)

    def forward(self, x):
        x = self.classifier[0](self.mlps(self.embedding(x))).mean(1)
        return self.classifier[2](x)
