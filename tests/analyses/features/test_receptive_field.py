"""Laws of the effective receptive field (src/visprism/analyses/features/receptive_field.py).

Linear networks of one channel whose weights are known have fields in closed form.
"""

from math import sqrt

import numpy as np
import pytest
import torch
from maps import classifier, error_of
from timm.layers import LayerNorm2d
from torch import nn

from visprism import InputError, ReceptiveField, assert_results_equal, dissect


def receptive_field(anatomy, batches, **options):
    return ReceptiveField(**options).of(anatomy, batches)


def network(*layers, channels=1):
    """The layers and a head in float64, the same weights every time."""
    model = classifier(*layers, channels=channels).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def fields(model, images):
    """Sizes, and the map of each block by its name, of sum 1."""
    sizes, maps = receptive_field(dissect(model, images[:2]), [images], num_blocks=99)
    return sizes, {n.split()[0]: x / x.sum() for n, x in maps.pictures().items()}


def box(kernel=3, **options):
    """A convolution whose weights are all one."""
    conv = nn.Conv2d(1, 1, kernel, bias=False, **options)
    nn.init.ones_(conv.weight)
    return conv


def plain(*layers):
    return classifier(*layers).double()


class Branch(nn.Module):
    """A residual branch."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def test_a_stack_of_boxes_has_the_box_folded_with_itself(noise):
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


def test_the_squares_of_a_box_by_hand(noise):
    sizes, _ = fields(plain(box(5, padding=2)), noise(1, 1, 15, 15))
    # 25 equal pixels: rings of 1, 8 and 16; 50% and 95% need the third, 30% the second.
    assert (sizes.side_50.item(), sizes.side_95.item()) == pytest.approx((5, 5))
    assert sizes.area_20.item() == sizes.area_30.item() == pytest.approx(9 / 225)
    assert sizes.area_50.item() == sizes.area_99.item() == pytest.approx(25 / 225)


def test_a_flat_field_has_the_flat_sigma(noise):
    sizes, _ = fields(plain(box((11, 7), padding=(5, 3))), noise(1, 1, 11, 7))
    assert sizes.sigma.item() == pytest.approx(sizes.uniform_sigma)
    assert sizes.area_99.item() == pytest.approx(1)


def test_other_batches_do_not_change_it(noise):
    layers = nn.Conv2d(3, 4, 3, padding=1), Branch(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
    images = noise(5, 3, 9, 9)
    anatomy = dissect(network(*layers, channels=4), images[:2])
    uncut = receptive_field(anatomy, [images])
    assert uncut[1].relative.reshape(2, -1).max(1).tolist() == [1, 1]
    for one, other in zip(uncut, receptive_field(anatomy, images.split(2)), strict=True):
        assert_results_equal(one, other)


def test_a_norm_over_channels_has_a_field(noise):
    # A sum over channels of the norm is constant.
    layers = nn.Conv2d(3, 8, 3, padding=1), LayerNorm2d(8)
    model, images = classifier(*layers, channels=8), noise(4, 3, 9, 9)
    in_single = fields(model, images.float())[1]["stem"]
    in_double = fields(model.double(), images)[1]["stem"]
    assert (in_double > 0).sum() == 9
    # The gradient of the plain sum is rounding, of which no digit would be the same.
    np.testing.assert_allclose(in_single, in_double, rtol=1e-3)


def test_agrees_with_finite_differences(noise):
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


def test_a_dead_block_has_no_field(noise):
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


def test_values_are_those_of_the_jackknife_to_first_order(noise):
    """n sigma - (n - 1) sigma without the image, of a second measurement without it."""
    # The field of the last block depends on the image.
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
    images = noise(14, 3, 9, 9)
    anatomy = dissect(network(*layers, channels=4), images[:2])

    def sigma_of(rows):
        return receptive_field(anatomy, images[rows].split(4))[0].sigma[-1]

    sigma = sigma_of(slice(None))
    assert sigma.by_unit.mean() == pytest.approx(sigma, rel=1e-12)
    error = sigma.by_unit.std(ddof=1) / np.sqrt(14)
    assert error == pytest.approx(error_of(sigma, 14), rel=1e-9)
    rest = [[j for j in range(14) if j != i] for i in range(14)]
    without = np.array([sigma_of(rows) for rows in rest])
    expected = 14 * sigma - (14 - 1) * without
    np.testing.assert_allclose(sigma.by_unit - sigma, expected - sigma, rtol=0.15, atol=2e-3)
