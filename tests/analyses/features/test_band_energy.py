"""Laws of the energy in the high band (src/visprism/analyses/features/band_energy.py)."""

import numpy as np
import pytest
import torch
from maps import error_of, measure

from visprism import BandEnergy


@pytest.mark.parametrize("grid", [(8, 8), (7, 5)])
def test_agrees_with_the_full_plane_in_numpy(noise, grid):
    x, y = noise(9, 3, *grid) + 2, noise(9, 3, *grid) * torch.linspace(1, 2, grid[1]).double()
    radius = np.hypot(*np.meshgrid(*[2 * np.fft.fftfreq(n) for n in grid], indexing="ij"))
    by_image = []
    for maps in (x, y):
        power = (np.abs(np.fft.fft2(maps.numpy())) ** 2).mean(1)
        by_image.append((power[:, radius > 0.5].sum(1), power[:, radius > 0].sum(1)))
    fractions = [high.sum() / total.sum() for high, total in by_image]
    parts = [
        (high - fraction * total) / total.mean()
        for fraction, (high, total) in zip(fractions, by_image, strict=True)
    ]
    result = measure(BandEnergy(), x, y)
    np.testing.assert_allclose(result.high, fractions)
    assert result.change[1] == pytest.approx(fractions[1] - fractions[0])
    assert error_of(result.high, 9)[0] == pytest.approx(parts[0].std(ddof=1) / 3)
    assert error_of(result.change, 9)[1] == pytest.approx((parts[1] - parts[0]).std(ddof=1) / 3)
    assert np.isnan(result.change[0])


def test_a_map_that_does_not_vary_has_no_energy():
    assert np.isnan(measure(BandEnergy(), torch.ones(2, 3, 4, 4)).high).all()
