"""Laws of Fourier sensitivity (src/visprism/analyses/predictions/fourier_sensitivity.py)."""

import pytest
import torch
from attacked import SPACE
from classifiers_by_hand import Waves

from visprism import FourierSensitivity, Preprocessing
from visprism.analyses.predictions.bands import basis_image
from visprism.core.statistics import paired_proportions_interval

GRAY = Preprocessing((16, 16), mean=(0.5,) * 3, std=(0.25,) * 3)


def measured(**options):
    """The errors of a model that sees the frequency (2, 3), on 16 gray images of class 0."""
    model = Waves(basis_image((16, 16), (2, 3))).eval()
    batches = [(torch.zeros(8, 3, 16, 16), torch.zeros(8, dtype=torch.long))] * 2
    return FourierSensitivity(**options)(model, batches, preprocessing=GRAY)


@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
def test_directions_are_a_basis(size):
    analysis = FourierSensitivity(frequency_step=1)
    frequencies = analysis.conditions(size)
    waves = torch.stack([basis_image(size, k).flatten() for k in frequencies]).double()
    torch.testing.assert_close(
        waves @ waves.T, torch.eye(len(waves)).double(), atol=1e-6, rtol=0
    )
    for k, wave in zip(frequencies, waves, strict=True):
        nonzero = torch.fft.fft2(wave.view(size)).abs() > 1e-5
        both = torch.zeros(size, dtype=torch.bool)
        both[k[0] % size[0], k[1] % size[1]] = True
        both[-k[0] % size[0], -k[1] % size[1]] = True
        assert torch.equal(nonzero, both)


def test_the_wave_has_the_strength_that_is_said():
    pixels = torch.full((3, 3, 16, 12), 0.5)
    changed = FourierSensitivity(rms=0.05).change(pixels, (2, 4), range(3), 0, SPACE)
    assert (changed - pixels).square().mean((2, 3)).sqrt() == pytest.approx(0.05)


@pytest.mark.parametrize(("size", "highest"), [((32, 40), 8), ((5, 9), 2)])
def test_the_highest_frequency_fits_the_images(size, highest):
    frequencies = FourierSensitivity(frequency_step=1).conditions(size)
    assert max(max(map(abs, k)) for k in frequencies) == highest


def test_the_map_is_bright_at_the_models_own_frequency_and_its_opposite():
    result = measured(max_frequency=4, frequency_step=1, rms=0.05)
    assert len(result) == 81
    bright = result.error > 0
    places = set(zip(result.vertical[bright], result.horizontal[bright], strict=True))
    assert places == {(2, 3), (-2, -3)}
    assert (result.error_rise == result.error).all()
    assert (result.error[bright] == 1).all()
    # Without a change in any of 16 images, the interval still has a length.
    low, high = paired_proportions_interval(0, 0, 16)
    assert set(result.error_rise.low[~bright]) == {low}
    assert set(result.error_rise.high[~bright]) == {high}
    assert result.clean_error == 0
    assert result.mean_rise == pytest.approx(2 / 81)
