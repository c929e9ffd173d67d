"""Laws of attention to neighbors, and in windows (src/visprism/models)."""

import pytest
import torch
from timm.layers import Attention
from timm.models import swin_transformer

from visprism.core.run import stream
from visprism.models.layers.window_attention import WindowAttention
from visprism.models.zoo.conv_vit import LocalAttention


def tokens(height, width, channels=12, batch=2):
    shape = (batch, height, width, channels)
    return torch.randn(shape, generator=stream(0, "tokens"), dtype=torch.float64)


def layer(kind, *arguments, **options):
    """A layer in float64, with weights large enough that attention is far from uniform."""
    made = kind(*arguments, **options).double()
    for name, parameter in made.named_parameters():
        torch.nn.init.normal_(parameter, generator=stream(0, name))
    return made


def by_hand(attention, x, near, bias=None):
    """The definition: for every head and token, a softmax over the tokens that are near."""
    height, width = x.shape[1:3]
    places = [(y, x_) for y in range(height) for x_ in range(width)]
    qkv = attention.qkv(x).flatten(1, 2).unflatten(-1, (3, attention.num_heads, -1))
    out = torch.zeros_like(qkv[:, :, 0])
    for i, (y, x_) in enumerate(places):
        keys = [j for j, place in enumerate(places) if near((y, x_), place)]
        offsets = [(places[j][0] - y, places[j][1] - x_) for j in keys]
        for head in range(attention.num_heads):
            q, k, v = qkv[:, i, 0, head], qkv[:, keys, 1, head], qkv[:, keys, 2, head]
            scores = torch.einsum("bd,bkd->bk", q, k) / q.shape[1] ** 0.5
            if bias is not None:
                scores = scores + torch.stack([bias[head][offset] for offset in offsets])
            out[:, i, head] = torch.einsum("bk,bkd->bd", scores.softmax(1), v)
    return attention.proj(out.flatten(-2)).unflatten(1, (height, width))


@pytest.mark.parametrize(("kernel", "grid"), [(1, (5, 6)), (3, (5, 6)), (7, (9, 3))])
def test_local_attention_is_its_definition(kernel, grid):
    attention = layer(LocalAttention, 6, 2, kernel=kernel, head_dim=2)
    x = tokens(*grid, channels=6, batch=1)

    def near(query, key):
        return max(abs(a - b) for a, b in zip(query, key, strict=True)) <= kernel // 2

    torch.testing.assert_close(attention(x), by_hand(attention, x, near), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", [None, 13])
def test_a_neighborhood_of_the_whole_grid_is_global_attention(kernel):
    attention = layer(LocalAttention, 12, 3, kernel=kernel, qkv_bias=True)
    other = Attention(12, 3, qkv_bias=True).double()
    other.load_state_dict(attention.state_dict())
    x = tokens(7, 6)
    expected = other(x.flatten(1, 2)).view_as(x)
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [{"head_dim": 3}, {"head_dim": None, "shared_bias": True, "qkv_bias": True}],
    ids=["tables", "one table"],
)
def test_attention_in_the_windows_of_a_map_is_its_definition(options):
    attention = layer(WindowAttention, 6, 5, num_heads=2, window=4, **options)
    table = attention.relative_bias.expand(2, -1, -1)
    center = torch.roll(table, (-3, -3), dims=(1, 2))

    def near(query, key):
        return [place // 4 for place in query] == [place // 4 for place in key]

    x = tokens(5, 7, channels=6)
    out = attention(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    torch.testing.assert_close(out, by_hand(attention, x, near, bias=center))


def test_attention_in_the_windows_of_a_map_equals_timms():
    ours = layer(WindowAttention, 12, num_heads=3, head_dim=None, window=4, qkv_bias=True)
    timms = swin_transformer.WindowAttention(12, num_heads=3, window_size=4).double()
    timms.qkv.load_state_dict(ours.qkv.state_dict())
    timms.proj.load_state_dict(ours.proj.state_dict())
    with torch.no_grad():  # timm's table counts from the key to the query, and has heads last
        turned = ours.relative_bias.flip(1, 2)
        timms.relative_position_bias_table.copy_(turned.flatten(1).T)
    x = tokens(4, 4)
    theirs = timms(x.flatten(1, 2)).view_as(x)
    torch.testing.assert_close(ours(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), theirs)
