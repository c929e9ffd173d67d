"""Laws of noise in frequency bands, and of the contrast of high and low frequencies."""

import pytest
import torch
from classifiers_by_hand import Waves

from visprism import FrequencyNoise, InputError, Preprocessing, Run
from visprism.analyses.predictions.bands import (
    BAND_CENTERS,
    band,
    basis_image,
    filtered,
    paper_band,
    radius,
    with_rms,
)
from visprism.kit.inputs import subject_of
from visprism.passes.perturbed import PixelSpace
from visprism.results import FrequencyContrasts

SIZES = [(7, 10), (32, 32), (33, 48)]


WAY = Preprocessing((20, 20), mean=(0.5,) * 3, std=(0.25,) * 3)


def noisy(model, batches, **options):
    """The main result of standardized images."""
    run = options.pop("run", Run())
    return FrequencyNoise(**options)(model.eval(), batches, preprocessing=WAY, run=run)


def flat(number, side):
    """Gray images, and targets 0."""
    images = torch.zeros(number, 3, side, side)
    return [(x, torch.zeros(len(x), dtype=torch.long)) for x in images.split(number // 2)]


@pytest.mark.parametrize("size", SIZES)
def test_bands_part_the_plane_and_hold_the_frequencies_about_their_middle(size):
    every = [band(size, i / 10) for i in range(11)]
    assert torch.equal(sum(b.int() for b in every), torch.ones(size, dtype=torch.int32))
    far = radius(size)
    for center in BAND_CENTERS:
        inside = far[band(size, center)]
        assert ((inside - center).abs() <= 0.05 + 1e-6).all()


@pytest.mark.parametrize("size", SIZES)
def test_noise_has_the_same_energy_in_every_band(size):
    noise = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    for center in BAND_CENTERS:
        mask = band(size, center)
        if mask.any():
            scaled = with_rms(filtered(noise, mask), 0.1)
            rms = scaled.double().square().mean((1, 2, 3)).sqrt()
            assert rms == pytest.approx(0.1, rel=1e-3)
            outside = torch.fft.fft2(scaled.double()).abs()[..., ~mask]
            assert outside.max() < 1e-4 if outside.numel() else True


def test_the_papers_noise_grows_with_frequency_as_was_measured():
    # Closed form: white noise of variance 1 through a mask M, of which the real part is kept,
    # has the variance mean(((M(w) + M(-w)) / 2)^2).
    # Theirs is the RMS of one image of the reference's code, whose lowest ring has few waves.
    size = (224, 224)
    for f, theirs in ((0.05, 0.102), (0.75, 0.443)):
        mask = paper_band(size, f).double()
        opposite = mask.flip(0, 1).roll((1, 1), (0, 1))
        expected = ((mask + opposite) / 2).square().mean().sqrt()
        white = torch.randn(16, 3, *size, generator=torch.Generator().manual_seed(1)).sign()
        measured = filtered(white, paper_band(size, f)).square().mean().sqrt()
        assert float(measured) == pytest.approx(float(expected), rel=0.01)
        assert float(measured) == pytest.approx(theirs, rel=0.03)


def test_only_noise_of_the_models_own_frequency_costs_anything():
    wave = basis_image((20, 20), (3, 0))  # 3 cycles of 20 pixels: 0.3 pi
    model = Waves(wave).eval()
    result = noisy(model, flat(20, 20), rms=0.2)
    assert result.frequency[result.drop > 0].tolist() == [0.3]
    assert (result.drop.low[result.drop == 0] < 0).all()
    assert result.clean_accuracy == 1
    assert result.drop == pytest.approx(1 - result.accuracy)
    # Four bands lie below 0.5 π rad/pixel and four above; the one in the middle is of neither.
    every, high, low = (a.value for a in result.answers())
    lost = float(result.drop.max())
    assert (every, high, low) == pytest.approx((lost / 9, 0, lost / 4))
    assert result.contrast == pytest.approx(high - low)
    middle = noisy(Waves(basis_image((20, 20), (5, 0))).eval(), flat(20, 20), rms=0.2)
    assert middle.mean_drop > middle.high_drop == middle.low_drop == middle.contrast == 0


@pytest.mark.parametrize("protocol", ["default", "paper"])
def test_an_images_noise_depends_on_its_number_alone(protocol):
    analysis = FrequencyNoise(protocol=protocol)
    pixels = torch.full((12, 3, 16, 16), 0.5)
    space = PixelSpace((0.5,) * 3, (0.25,) * 3)
    together = analysis.change(pixels, (protocol, 0.3), range(12), 0, space)
    part = analysis.change(pixels[5:8], (protocol, 0.3), range(5, 8), 0, space)
    torch.testing.assert_close(part, together[5:8])


def test_bands_without_a_frequency_are_left_out_and_named():
    model = Waves(basis_image((7, 7), (1, 0))).eval()
    result = noisy(model, flat(4, 7))
    assert result.frequency.tolist() == [0.3, 0.6, 0.9]  # 2/7, 4/7, 6/7
    assert result.left_out == "0.1π, 0.2π, 0.4π, 0.5π, 0.7π, 0.8π"
    with pytest.raises(InputError, match="must include a band that holds frequencies of"):
        noisy(model, flat(4, 7), frequencies=(0.1,))


def test_both_kinds_of_noise_stand_side_by_side():
    model = Waves(basis_image((20, 20), (8, 0))).eval()  # 0.8 pi: a high frequency
    subject = subject_of(model, flat(40, 20), preprocessing=WAY)
    options = {"rms": 0.05}, {"paper_amplitude": 0.5}
    both = FrequencyNoise(protocol="both", **options[0], **options[1])
    rows, result = both.measure(subject, Run())
    assert isinstance(result, FrequencyContrasts)
    assert result.noise.tolist() == ["equal energy", "paper"]
    assert rows.provenance.protocol == "default"
    for i, (protocol, given) in enumerate(zip(("default", "paper"), options, strict=True)):
        alone = noisy(model, flat(40, 20), protocol=protocol, **given)
        assert alone.contrast == pytest.approx(result.contrast[i])
    assert [a.reading for a in result.answers()] == ["high frequencies cost more accuracy"] * 2
