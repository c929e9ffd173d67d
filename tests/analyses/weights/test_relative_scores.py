"""Laws of relative scores (src/visprism/analyses/weights/relative_scores.py)."""

from functools import partial

import numpy as np
import pytest
import timm
import torch
from timm.models.swin_transformer import WindowAttention as WindowOfTimm
from torch import nn
from torchvision.models import maxvit, swin_transformer

import visprism as vp
from visprism import relative_score_tables
from visprism.models.layers.window_attention import WindowAttention


def test_heads_of_a_convolution_look_at_one_offset_each():
    attention = vp.attention_from_convolution(nn.Conv2d(2, 3, 3, padding=1))
    result = vp.relative_scores(attention.scores)
    seen = result.select(result.weight > 0)
    assert seen.weight.tolist() == [1] * 9
    offsets = list(zip(seen.dy.tolist(), seen.dx.tolist(), strict=True))
    assert offsets == [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]


def test_window_attention_looks_where_its_table_says():
    """Raise one entry: each query then takes the value of the key at that offset."""
    layer = WindowAttention(8, num_heads=1, head_dim=8, window=4)
    torch.nn.init.zeros_(layer.relative_bias)
    with torch.no_grad():
        layer.relative_bias[:, 3 + 1, 3 - 2] = 100.0  # the key a row below, two columns left
        layer.qkv.weight[:16] = 0
        x = torch.randn(1, 8, 4, 4)
        value = layer.proj(layer.qkv(x.permute(0, 2, 3, 1))[..., 16:])
        out = layer(x).permute(0, 2, 3, 1)
    torch.testing.assert_close(out[0, 0, 2], value[0, 1, 0], rtol=1e-4, atol=1e-5)
    result = vp.relative_scores(layer.relative_bias)
    best = result.weight.argmax()
    assert (result.dy[best], result.dx[best]) == (1, -2)


OF_TIMM = {
    "swin_tiny_patch4_window7_224": dict(
        img_size=56, window_size=(7, 7), depths=(2, 2), num_heads=(2, 4), embed_dim=24
    ),
    "beit_base_patch16_224": dict(img_size=(64, 48), depth=2, embed_dim=24, num_heads=2),
    "maxvit_tiny_tf_224": dict(img_size=64),
    "maxvit_tiny_rw_224": dict(img_size=64),
}


BUILDERS = {name: partial(timm.create_model, name, **o) for name, o in OF_TIMM.items()} | {
    "torchvision's Swin": lambda: swin_transformer.ShiftedWindowAttention(8, [2, 3], [0, 0], 2),
    "torchvision's MaxViT": lambda: maxvit.RelativePositionalMultiHeadAttention(8, 4, 9),
}
BIAS = (
    "get_bias", "_get_rel_pos_bias", "get_relative_position_bias",
    "get_relative_positional_bias",
)  # fmt: skip


@pytest.mark.parametrize("name", BUILDERS)
def test_tables_are_the_bias_of_the_attention_by_offset_of_the_key(name):
    torch.manual_seed(0)
    model = BUILDERS[name]()
    tables = relative_score_tables(model)
    assert list(tables) == [
        n for n, m in model.named_modules() if hasattr(m, "relative_position_bias_table")
    ]
    for place in tables:
        attention = model.get_submodule(place)
        nn.init.normal_(attention.relative_position_bias_table)
        table = relative_score_tables(attention)[""]
        rows, columns = (1 + side // 2 for side in table.shape[1:])
        bias = next(getattr(attention, n) for n in BIAS if hasattr(attention, n))()
        bias = bias.reshape(-1, *bias.shape[-2:])  # heads, queries, keys
        bias = bias[:, -rows * columns :, -rows * columns :]  # without a class token
        y, x = (k.ravel() for k in np.divmod(np.arange(rows * columns), columns))
        dy, dx = (k[None, :] - k[:, None] for k in (y, x))  # of the key from the query
        torch.testing.assert_close(table[:, dy + rows - 1, dx + columns - 1], bias)


def test_tables_of_layers_are_found_in_forward_order():
    layers = {
        "first": WindowAttention(8, num_heads=2, head_dim=4, window=4),
        "second": WindowOfTimm(8, 4, window_size=(2, 4)),
    }
    tables = relative_score_tables(nn.ModuleDict(layers))
    assert {name: tuple(table.shape) for name, table in tables.items()} == {
        "first": (2, 7, 7),
        "second": (4, 3, 7),
    }
    offsets = vp.relative_scores(tables["second"])
    for offset, reach in ((offsets.dy, 1), (offsets.dx, 3)):
        assert set(offset) == set(range(-reach, reach + 1))
