"""Laws of the Fourier spectrum (src/visprism/analyses/features/fourier.py, profiles.py)."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from maps import error_of, measure

from visprism import Fourier

FLOOR = 1e-6  # inside the logarithm, in the paper's code


def diagonal_wave(h, w, k, side):
    """cos(2 pi k (u + v) / side): all its energy lies at frequency 2k/side of the diagonal."""
    u, v = torch.arange(h, dtype=torch.float64), torch.arange(w, dtype=torch.float64)
    return torch.cos(2 * math.pi * k * (u[:, None] + v) / side)[None, None]


def blurred(x):
    """A circular box blur of 2x2 pixels."""
    return sum(x.roll((i, j), dims=(2, 3)) for i in (0, 1) for j in (0, 1)) / 4


@pytest.mark.parametrize(("h", "w", "k"), [(8, 8, 2), (8, 12, 1), (7, 14, 3)])
def test_a_diagonal_wave_has_half_of_all_positions_at_its_frequency(h, w, k):
    side = math.gcd(h, w)
    result = measure(Fourier(), diagonal_wave(h, w, k, side))
    assert len(result) == side // 2 + 1
    peak = np.nanargmax(result.log_amplitude)
    assert result.frequency[peak] == pytest.approx(2 * k / side)
    assert np.exp(result.log_amplitude[peak]) == pytest.approx(h * w / 2, rel=1e-6)


@pytest.mark.parametrize("profile", ["diagonal", "radial"])
def test_a_constant_map_has_nothing_but_its_mean(profile):
    result = measure(Fourier(profile), torch.full((2, 3, 6, 6), -5.0))
    np.testing.assert_allclose(result.log_amplitude[0], math.log(6 * 6 * 5.0), rtol=1e-6)
    assert np.isnan(result.relative[1:]).all()


def test_a_frequency_that_is_exactly_zero_has_no_log_amplitude(noise):
    coarse = noise(4, 3, 8, 8) + 1
    doubled = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)  # nearest upsampling
    result = measure(Fourier(), doubled)
    assert np.isnan(result.relative[-1])
    assert np.isfinite(result.relative[:-1]).all()


@pytest.mark.parametrize("profile", ["diagonal", "radial"])
def test_channels_that_are_zero_everywhere_have_no_say(noise, profile):
    live = noise(4, 6, 8, 8)
    live[1, 2:] = 0  # dead in one image only
    dead = torch.cat([live, torch.zeros(4, 5, 8, 8)], dim=1)
    alone, among = (measure(Fourier(profile), x).log_amplitude for x in (live, dead))
    np.testing.assert_allclose(among, alone, rtol=1e-6)
    first = measure(Fourier(profile), live[1:2, :2]).log_amplitude
    np.testing.assert_allclose(measure(Fourier(profile), dead[1:2]).log_amplitude, first)


def test_in_the_paper_they_count_as_flat_spectra(noise):
    live = noise(4, 6, 8, 8)
    half_dead = torch.cat([live, torch.zeros_like(live)], dim=1)
    alone, among = (measure(Fourier(protocol="paper"), x).relative for x in (live, half_dead))
    np.testing.assert_allclose(among, alone / 2, rtol=1e-5)


def test_a_box_blur_adds_twice_log_cos_of_half_the_frequency(noise):
    x = 1e3 * noise(2, 3, 7, 7)  # large, so that the floor counts for nothing
    result = measure(Fourier(), x, blurred(x))
    change = result.select(result.block == "block1")
    expected = 2 * np.log(np.cos(np.pi * change.frequency / 2))
    np.testing.assert_allclose(change.change, expected, atol=1e-6)


@pytest.mark.parametrize("grid", [(8, 8), (7, 14), (1, 5)])
def test_the_radial_profile_agrees_with_rings_over_the_whole_plane(noise, grid):
    x = noise(3, 2, *grid)
    level = np.log(np.abs(np.fft.fft2(x.numpy())) + FLOOR).mean((0, 1))
    radius = np.hypot(*np.meshgrid(*[2 * np.fft.fftfreq(n) for n in grid], indexing="ij"))
    edges = 2 * np.arange(min(grid) // 2 + 1) / min(grid)
    rings = [radius == 0] + [
        (low + 1e-9 < radius) & (radius < high + 1e-9) for low, high in pairwise(edges)
    ]
    result = measure(Fourier("radial"), x)
    np.testing.assert_allclose(result.log_amplitude, [level[r].mean() for r in rings])
    np.testing.assert_allclose(result.frequency, [radius[r].mean() for r in rings])


@pytest.mark.parametrize("profile", ["diagonal", "radial"])
def test_float32_keeps_its_digits_beside_a_mean_a_million_times_as_large(noise, profile):
    waves = noise(2, 3, 14, 14)
    x = (waves + 1e6 * torch.sign(waves.mean((2, 3), keepdim=True))).float()
    result = measure(Fourier(profile), x)
    exact = measure(Fourier(profile), x.double())
    # The map itself is rounded to 1/16 here; what is left of it must not be lost.
    np.testing.assert_allclose(result.log_amplitude, exact.log_amplitude, atol=1e-4)


def test_errors_are_those_of_the_mean_over_images(noise):
    x, y = noise(9, 4, 8, 8), noise(9, 4, 8, 8) + 1
    level = [
        np.log(np.abs(np.fft.fft2(m.numpy())) + FLOOR).mean(1).diagonal(axis1=1, axis2=2)[:, :5]
        for m in (x, y)
    ]
    before, after = (images - images[:, :1] for images in level)
    result = measure(Fourier(), x, y)
    rows = result.select(result.block == "block1")
    np.testing.assert_allclose(rows.relative, after.mean(0), rtol=1e-5)
    np.testing.assert_allclose(error_of(rows.relative, 9), after.std(0, ddof=1) / 3, rtol=1e-5)
    to_lowest = (level[1] - level[1][:, 1:2]).mean(0)
    np.testing.assert_allclose(rows.relative_lowest, to_lowest, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(rows.change, (after - before).mean(0), rtol=1e-5)
    error = (after - before).std(0, ddof=1) / 3  # paired: images are the same
    np.testing.assert_allclose(error_of(rows.change, 9), error, rtol=1e-5)


def test_a_diagonal_without_frequencies_points_to_the_radial_profile(noise):
    with pytest.raises(
        ValueError, match=r"common divisor for the diagonal profile, got 4x7.*'radial'"
    ):
        Fourier().extract(noise(1, 1, 4, 7))
