"""Laws of neighborhood attention (src/visprism/models/zoo/sasa_resnet.py)."""

import pytest
import torch

from visprism.core.run import stream
from visprism.models.zoo.sasa_resnet import NeighborhoodAttention


def made(*arguments, **options):
    layer = NeighborhoodAttention(*arguments, **options).double()
    for name, parameter in layer.named_parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=stream(0, name))
    return layer


def images(*shape):
    return torch.randn(*shape, generator=stream(0, "images"), dtype=torch.float64)


def by_loop(layer, x):
    """Pixel by pixel, with keys looked up by their coordinates."""
    height, width = x.shape[2:]
    q, k, v = layer.qkv(x).unflatten(1, (3, layer.num_heads, -1)).unbind(1)
    reach = layer.kernel // 2
    out = torch.zeros_like(v)
    for r in range(height):
        for c in range(width):
            near = [
                (i, j)
                for i in range(r - reach, r + reach + 1)
                for j in range(c - reach, c + reach + 1)
                if 0 <= i < height and 0 <= j < width
            ]
            for head in range(layer.num_heads):
                scores = []
                for i, j in near:
                    place = [
                        layer.rows[head, i - r + reach],
                        layer.columns[head, j - c + reach],
                    ]
                    key = k[:, head, :, i, j] + torch.cat(place)
                    scores.append((q[:, head, :, r, c] * key).sum(-1))
                weights = torch.stack(scores).softmax(0)
                values = torch.stack([v[:, head, :, i, j] for i, j in near])
                out[:, head, :, r, c] = (weights[..., None] * values).sum(0)
    return out.flatten(1, 2)


@pytest.mark.parametrize(("size", "kernel"), [((4, 4), 1), ((2, 5), 3), ((1, 3), 5)])
def test_equals_a_loop_over_pixels(size, kernel):
    layer, x = made(3, 8, kernel=kernel, num_heads=2), images(2, 3, *size)
    torch.testing.assert_close(layer(x), by_loop(layer, x))


def test_a_stride_averages_what_the_attention_gives():
    layer, x = made(3, 8, 2, kernel=3, num_heads=2), images(1, 3, 4, 6)
    attended = by_loop(layer, x).unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    torch.testing.assert_close(layer(x), attended)
