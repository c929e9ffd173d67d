"""Laws of noise in frequency bands, and of the contrast of high and low frequencies."""

import pytest
import torch
from classifiers_by_hand import Waves
from internals import (
    BAND_CENTERS,
    PixelSpace,
    band,
    basis_image,
    filtered,
    paper_band,
    radius,
    subject_of,
    with_rms,
)
from torch import nn

from visprism import FrequencyNoise, InputError, Preprocessing, Run, frequency_noise
from visprism.results import FrequencyContrasts

SIZES = [(7, 10), (32, 32), (33, 48)]


def standardized(channels, side):
    return Preprocessing((side, side), mean=(0.5,) * channels, std=(0.25,) * channels)


def noisy(model, batches, **options):
    """The main result of standardized images."""
    channels, side, _ = batches[0][0].shape[1:]
    way = standardized(channels, side)
    return frequency_noise(model.eval(), batches, preprocessing=way, **options)


def flat(number, side):
    """Gray images, and targets 0."""
    images = torch.zeros(number, 3, side, side)
    return [(x, torch.zeros(len(x), dtype=torch.long)) for x in images.split(number // 2)]


@pytest.mark.parametrize("size", SIZES)
def test_bands_part_the_plane(size):
    every = [band(size, i / 10) for i in range(11)]
    assert torch.equal(sum(b.int() for b in every), torch.ones(size, dtype=torch.int32))


@pytest.mark.parametrize("size", SIZES)
def test_a_band_holds_the_frequencies_about_its_middle(size):
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


def high_pass():
    """Classifies an image as 1 where neighboring pixels differ more than a little."""
    convolutions = [nn.Conv2d(c, 2, 3, padding=1, bias=False) for c in (1, 2)]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)
    laplace = torch.tensor([[0.0, -1, 0], [-1, 4, -1], [0, -1, 0]])
    convolutions[0].weight.data = torch.stack([laplace, -laplace])[:, None]
    nn.init.dirac_(convolutions[1].weight)
    head[2].weight.data = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    head[2].bias.data = torch.tensor([0.0, -0.72])
    return nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), *head).eval()


def images(number: int = 48):
    """Smooth images of different contrast, all of class 0."""
    generator = torch.Generator().manual_seed(0)
    ramp = torch.linspace(-1, 1, 16).expand(1, 1, 16, 16)
    x = ramp * torch.rand(number, 1, 1, 1, generator=generator)
    return [(part, torch.zeros(len(part), dtype=torch.long)) for part in x.split(16)]


@pytest.fixture(scope="module")
def measured():
    subject = subject_of(high_pass(), images(), preprocessing=standardized(1, 16))
    analysis = FrequencyNoise(rms=0.05, paper_amplitude=0.6, protocol="both")
    return analysis.measure(subject, Run())


def test_a_model_that_looks_at_high_frequencies_loses_accuracy_there(measured):
    _, result = measured
    assert (result.contrast > 0.2).all()
    assert [a.reading for a in result.answers()] == ["high frequencies cost more accuracy"] * 2


def test_both_kinds_of_noise_stand_side_by_side(measured):
    rows, result = measured
    assert isinstance(result, FrequencyContrasts)
    assert result.noise.tolist() == ["equal energy", "paper"]
    default, paper = result.contrast.tolist()
    alone = noisy(high_pass(), images(), rms=0.05)
    assert alone.contrast == pytest.approx(default)
    alone = noisy(high_pass(), images(), paper_amplitude=0.6, protocol="paper")
    assert alone.contrast == pytest.approx(paper)
    assert rows.provenance.protocol == "default"
