"""Laws of window attention (src/visprism/models/layers/window_attention.py)."""

import math

import pytest
import torch
from internals import WindowAttention, stream


def made(seed=0, *arguments, **options):
    """A layer in float64 with random weights, its tables large enough to matter."""
    layer = WindowAttention(*arguments, **options).double()
    for name, parameter in layer.named_parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=stream(seed, name))
    return layer


def by_loop(layer, x):
    """Pixel by pixel: each looks at those of its window, found by arithmetic on coordinates."""
    height, width = x.shape[2:]
    heads, p = layer.num_heads, layer.window
    qkv = layer.qkv(x.permute(0, 2, 3, 1))
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(3)
    out = torch.zeros_like(q)
    pixels = [(r, c) for r in range(height) for c in range(width)]
    for r, c in pixels:
        seen = [(i, j) for i, j in pixels if (i // p, j // p) == (r // p, c // p)]
        for head in range(heads):
            table = layer.relative_bias[head % len(layer.relative_bias)]
            scores = torch.stack(
                [
                    (q[:, r, c, head] * k[:, i, j, head]).sum(-1) / math.sqrt(q.shape[-1])
                    + table[i - r + p - 1, j - c + p - 1]
                    for i, j in seen
                ]
            )
            weights = scores.softmax(0)
            values = torch.stack([v[:, i, j, head] for i, j in seen])
            out[:, r, c, head] = (weights[..., None] * values).sum(0)
    return layer.proj(out.flatten(-2)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("size", [(5, 7), (2, 3), (8, 3)])
def test_equals_a_loop_over_pixels_on_any_map(size):
    layer = made(0, 6, 5, num_heads=2, head_dim=3, window=4)
    x = torch.randn(2, 6, *size, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(layer(x), by_loop(layer, x))


def test_equals_the_loop_with_one_table_for_all_heads():
    layer = made(0, 6, num_heads=3, head_dim=None, window=3, shared_bias=True, qkv_bias=True)
    x = torch.randn(1, 6, 4, 3, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(layer(x), by_loop(layer, x))


def test_gradients_are_those_of_the_loop():
    layer = made(0, 4, num_heads=2, head_dim=2, window=3)
    x = torch.randn(1, 4, 4, 5, generator=stream(0, "x"), dtype=torch.float64)
    ours = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(by_loop(layer, x).square().sum(), list(layer.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_equals_timms_window_attention():
    from timm.models.swin_transformer import WindowAttention as Timms

    ours = made(0, 12, num_heads=3, head_dim=None, window=4, qkv_bias=True)
    timms = Timms(12, num_heads=3, window_size=4).double()
    timms.qkv.load_state_dict(ours.qkv.state_dict())
    timms.proj.load_state_dict(ours.proj.state_dict())
    with torch.no_grad():  # timm's table counts from the key to the query, and has heads last
        turned = ours.relative_bias.flip(1, 2)
        timms.relative_position_bias_table.copy_(turned.flatten(1).T)
    x = torch.randn(2, 12, 4, 4, generator=stream(0, "x"), dtype=torch.float64)
    theirs = timms(x.flatten(2).mT).mT.unflatten(2, (4, 4))
    torch.testing.assert_close(ours(x), theirs)
