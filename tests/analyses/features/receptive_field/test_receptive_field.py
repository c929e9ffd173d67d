"""Laws of the effective receptive field (src/visprism/analyses/features/receptive_field.py).

Linear networks of one channel whose weights are known have fields in closed form.
"""

from math import sqrt

import numpy as np
import pytest
import torch
from maps import classifier
from torch import nn

from visprism import InputError, assert_results_equal, dissect, receptive_field


def box(kernel=3, **options):
    """A convolution whose weights are all one."""
    conv = nn.Conv2d(1, 1, kernel, bias=False, **options)
    nn.init.ones_(conv.weight)
    return conv


def plain(*layers):
    return classifier(*layers).double()


class UniformAttention(nn.Module):
    """Attention of tokens whose queries are zero, so that it looks everywhere alike."""

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        out = nn.functional.scaled_dot_product_attention(0 * tokens, tokens, tokens)
        return x + out.transpose(1, 2).reshape(x.shape)


class Branch(nn.Module):
    """A residual branch."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def test_a_stack_of_boxes_has_the_box_folded_with_itself(fields, noise):
    sizes, maps = fields(plain(*(box(padding=1) for _ in range(4))), noise(2, 1, 15, 15))
    line = np.eye(15)[7]
    for k, field in enumerate(maps.values(), 1):
        line = np.convolve(line, np.ones(3) / 3, mode="same")
        np.testing.assert_allclose(field, np.outer(line, line), atol=1e-15)
        support = np.flatnonzero(field.sum(0))
        assert support[-1] - support[0] + 1 == 2 * k + 1
        assert sizes.sigma[k - 1] == pytest.approx(sqrt(k * 8 / 12))  # Luo et al., all ones
    assert len(maps) == 4
    np.testing.assert_allclose([sizes.row, sizes.column], 7)


def test_the_squares_of_a_box_by_hand(fields, noise):
    sizes, _ = fields(plain(box(5, padding=2)), noise(1, 1, 15, 15))
    # 25 equal pixels: rings of 1, 8 and 16; 50% and 95% need the third, 30% the second.
    assert (sizes.side_50.item(), sizes.side_95.item()) == pytest.approx((5, 5))
    assert sizes.area_20.item() == sizes.area_30.item() == pytest.approx(9 / 225)
    assert sizes.area_50.item() == sizes.area_99.item() == pytest.approx(25 / 225)


def test_strides_and_dilation_by_hand(fields, noise):
    layers = box(3, stride=2, padding=1), box(3, dilation=2, padding=2)
    _, maps = fields(plain(*layers), noise(1, 1, 15, 15))
    first, second = maps.values()
    # Position 4 of 8 stands at pixel 8; the dilated kernel reaches 4 pixels further.
    assert np.flatnonzero(first.sum(0)).tolist() == [7, 8, 9]
    assert np.flatnonzero(second.sum(0)).tolist() == [3, 4, 5, 7, 8, 9, 11, 12, 13]
    np.testing.assert_allclose(second[second > 0], 1 / 81)


def test_a_mean_over_all_positions_adds_a_flat_field(fields, noise):
    _, maps = fields(plain(box(1), UniformAttention()), noise(2, 1, 9, 7))
    expected = np.full((9, 7), 1 / 63)
    expected[4, 3] += 1
    np.testing.assert_allclose(list(maps.values())[-1], expected / 2, rtol=1e-12)


def test_a_flat_field_has_the_flat_sigma(fields, noise):
    sizes, _ = fields(plain(box((11, 7), padding=(5, 3))), noise(1, 1, 11, 7))
    assert sizes.sigma.item() == pytest.approx(sizes.uniform_sigma)
    assert sizes.area_99.item() == pytest.approx(1)


def test_other_batches_do_not_change_it(network, noise):
    layers = nn.Conv2d(3, 4, 3, padding=1), Branch(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
    images = noise(5, 3, 9, 9)
    anatomy = dissect(network(*layers, channels=4), images[:2])
    uncut = receptive_field(anatomy, [images])
    assert uncut[1].relative.reshape(2, -1).max(1).tolist() == [1, 1]
    for one, other in zip(uncut, receptive_field(anatomy, images.split(2)), strict=True):
        assert_results_equal(one, other)


def test_a_hook_on_gradients_does_not_change_it(noise):
    class Pooled(Branch):
        def forward(self, x):
            return super().forward(x).mean((2, 3))

    images = noise(2, 3, 9, 9)
    model = Pooled(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh()).double().eval()
    anatomy = dissect(model, images)
    before = receptive_field(anatomy, [images])
    model.layers.register_full_backward_hook(lambda *_: None)
    for one, other in zip(before, receptive_field(anatomy, [images]), strict=True):
        assert_results_equal(one, other)


def test_a_norm_over_channels_has_a_field(fields, noise):
    class Normed(nn.Module):
        """A sum over its channels is constant."""

        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    model, images = classifier(Normed(), channels=8), noise(4, 3, 9, 9)
    in_single = fields(model, images.float())[1]["stem"]
    in_double = fields(model.double(), images)[1]["stem"]
    assert (in_double > 0).sum() == 9
    # The gradient of the plain sum is rounding, of which no digit would be the same.
    np.testing.assert_allclose(in_single, in_double, rtol=1e-3)


def test_agrees_with_finite_differences(fields, network, noise):
    layers = nn.Conv2d(2, 1, 3, padding=1), Branch(nn.Tanh(), nn.Conv2d(1, 1, 3, padding=1))
    model = network(*layers)
    images = noise(3, 2, 6, 6)
    _, maps = fields(model, images)
    stages = model[:1], model[:2]
    step = 1e-6
    for field, part in zip(maps.values(), stages, strict=True):
        expected = torch.zeros(6, 6, dtype=torch.float64)
        for c, i, j in np.ndindex(2, 6, 6):
            nudge = torch.zeros_like(images)
            nudge[:, c, i, j] = step
            with torch.no_grad():
                change = part(images + nudge) - part(images - nudge)
            expected[i, j] += (change[:, 0, 3, 3] / (2 * step)).abs().sum()
        np.testing.assert_allclose(field, expected / expected.sum(), atol=1e-8)


def test_a_later_change_in_place_is_not_in_it(fields, noise):
    x = noise(2, 1, 9, 9)
    expected = fields(plain(box(padding=1), nn.ReLU(), box(padding=1)), x)[1]
    in_place = fields(plain(box(padding=1), nn.ReLU(inplace=True), box(padding=1)), x)[1]
    assert list(in_place) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(in_place[name], array)


def test_a_dead_block_has_no_field(fields, noise):
    dead = box(padding=1)
    nn.init.zeros_(dead.weight)
    sizes, maps = fields(plain(box(padding=1), dead, box(padding=1)), noise(2, 1, 9, 9))
    for column in (sizes.sigma, sizes.side_95, sizes.area_50, sizes.row):
        assert np.isnan(column[1:]).all()
        assert np.isfinite(column[0])
    assert np.isnan(maps[sizes.block[-1]]).all()


class Detached(nn.Module):
    def forward(self, x):
        return x.detach() * 2


def test_a_model_that_detaches_its_images_is_refused(noise):
    images = noise(2, 1, 9, 9)
    anatomy = dissect(plain(box(padding=1), Detached(), box(1)), images)
    with pytest.raises(InputError, match=r"block '.*' has no .* field \(element 0 of"):
        receptive_field(anatomy, [images])
