"""Kinds follow from what positions do, however a mixing is written."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import dissect

DIM = 24


class Mixer(nn.Module):
    """Three maps of each token, as queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(DIM, DIM) for _ in range(3)])
        self.decay = nn.Parameter(torch.rand(DIM))

    def forward(self, x):
        return self.mix(*(of(x) for of in self.maps))


class AttentionFree(Mixer):
    def mix(self, q, k, v):
        return q.sigmoid() * (k.exp() * v).cumsum(1) / k.exp().cumsum(1)


class Retention(Mixer):
    def mix(self, q, k, v):
        number = torch.arange(q.shape[1])
        decay = (0.9 ** (number[:, None] - number)).tril()
        return (q @ k.mT * decay) @ v


class RecurrentRetention(Mixer):
    def mix(self, q, k, v):
        state, out = torch.zeros(len(q), DIM, DIM), []
        for t in range(q.shape[1]):
            state = 0.9 * state + k[:, t, :, None] * v[:, t, None]
            out.append((q[:, t, None] @ state)[:, 0])
        return torch.stack(out, 1)


class LinearAttention(Mixer):
    def mix(self, q, k, v):
        return q.relu() @ (k.relu().mT @ v)


class CausalAttention(Mixer):
    def mix(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class HandMadeRecurrence(Mixer):
    def mix(self, q, k, v):
        h, out = torch.zeros_like(q[:, 0]), []
        for t in range(q.shape[1]):
            h = torch.tanh(v[:, t] + self.maps[0](h))
            out.append(h)
        return torch.stack(out, 1)


class Gate(Mixer):
    """Squeeze and excitation: all positions get the same."""

    def mix(self, q, k, v):
        return v * k.mean(1, keepdim=True).sigmoid()


class Scan(nn.Module):
    """A selective scan behind a short convolution (Mamba), in one of three spellings."""

    def __init__(self, spelling, *, both_ways=False, states=4):
        super().__init__()
        self.conv = nn.Conv1d(DIM, DIM, 3, padding=2, groups=DIM)
        self.of_token = nn.Linear(DIM, 1 + 2 * states)
        self.a = nn.Parameter(torch.rand(DIM, states))
        self.spelling, self.both_ways, self.states = spelling, both_ways, states

    def scan(self, x):
        dt, b, c = self.of_token(x).split([1, self.states, self.states], -1)
        h, out = 0, []
        for t in range(x.shape[1]):
            step = functional.softplus(dt[:, t])
            h = (-step[..., None] * self.a).exp() * h
            h = h + (step * x[:, t])[..., None] * b[:, t, None]
            if self.spelling == "matmul":
                out.append((h @ c[:, t, :, None])[..., 0])
            elif self.spelling == "einsum":
                out.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
            else:
                out.append((h * c[:, t, None]).sum(-1))
        return torch.stack(out, 1)

    def forward(self, x):
        x = self.conv(x.mT)[..., : x.shape[1]].mT
        return self.scan(x) + (self.scan(x.flip(1)).flip(1) if self.both_ways else 0)


class Gru(nn.GRU):
    def forward(self, x):
        return super().forward(x)[0]


class OverTokens(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Linear(64, 64)
        self.point = nn.Linear(DIM, DIM)
        self.norm, self.conv = nn.GroupNorm(1, DIM), nn.Conv1d(DIM, DIM, 3, padding=1)

    def forward(self, x):
        return self.function(self, x)


def of_tokens(function):
    return lambda: OverTokens(function)


def on_grid(function):
    def moved(_module, x):
        return function(x.mT.unflatten(2, (8, 8))).flatten(2).mT

    return of_tokens(moved)


class Residual(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.norm, self.branch = nn.LayerNorm(DIM), branch

    def forward(self, x):
        return x + self.branch(self.norm(x))


class Network(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.patch, self.mixing = nn.Conv2d(3, DIM, 4, 4), Residual(branch)
        self.mlp = Residual(nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM)))
        self.head = nn.Linear(DIM, 5)

    def forward(self, x):
        x = self.mlp(self.mixing(self.patch(x).flatten(2).mT))
        return self.head(x.mean(1))


SCAN = ("token-mixing", "scan", "causal")
CASES = {
    "attention free": (AttentionFree, SCAN),
    "retention, in parallel": (Retention, SCAN),
    "retention, step by step": (RecurrentRetention, SCAN),
    "linear attention": (LinearAttention, ("attention", "attention", "global")),
    "causal attention": (CausalAttention, ("attention", "attention", "causal")),
    "scan with matmul": (lambda: Scan("matmul"), SCAN),
    "scan with einsum": (lambda: Scan("einsum"), SCAN),
    "scan with sums": (lambda: Scan("sum"), SCAN),
    "scan both ways": (
        lambda: Scan("matmul", both_ways=True),
        ("token-mixing", "scan", "global"),
    ),
    "recurrence by hand": (HandMadeRecurrence, ("token-mixing", "recurrence", "causal")),
    "recurrence of torch": (
        lambda: Gru(DIM, DIM // 2, batch_first=True, bidirectional=True),
        ("token-mixing", "recurrence", "global"),
    ),
    "Fourier": (
        of_tokens(lambda _, x: torch.fft.fft2(x).real),
        ("token-mixing", "Fourier transform", "global"),
    ),
    "MLP over tokens": (
        of_tokens(lambda m, x: m.weight(x.mT).mT),
        ("token-mixing", "MLP over tokens", "global"),
    ),
    "shift": (
        of_tokens(lambda m, x: m.point(x.roll(1, 1))),
        ("token-mixing", "local mixing", "local"),
    ),
    "pooling": (
        on_grid(lambda x: functional.avg_pool2d(x, 3, 1, 1)),
        ("token-mixing", "pooling", "local"),
    ),
    "gate": (Gate, ("mlp", "", "none")),
    "convolution and a norm over positions": (
        of_tokens(lambda m, x: m.norm(m.conv(x.mT)).mT),
        ("conv", "convolution", "local"),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_a_mixing_is_named_for_what_positions_do(name, scale):
    make, expected = CASES[name]
    torch.manual_seed(0)
    model = Network(make()).eval()
    if scale == 0:  # a branch that is still switched off, as networks begin with
        model.mixing.register_forward_hook(lambda _m, args, out: args[0] + 0 * (out - args[0]))
    anatomy = dissect(model, torch.randn(2, 3, 32, 32))
    mixing = next(b for b in anatomy if b.name.startswith("mixing"))
    found = (mixing.kind, mixing.operator, mixing.reach)
    if scale == 0:  # how far is not known of all that is inside, but the kind is
        found, expected = mixing.kind, expected[0]
        if name == "retention, in parallel":
            pytest.skip("the scores in it know later positions")
    assert found == expected
    assert next(b for b in anatomy if b.name == "mlp").reach == "none"
