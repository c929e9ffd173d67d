"""Laws of noise in bands and of Fourier sensitivity (src/visprism/measure/outputs)."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, Result, fourier_sensitivity, frequency_noise
from visprism.analyses.predictions.bands import (
    BAND_CENTERS,
    band,
    filtered,
    paper_band,
    radius,
    with_rms,
)
from visprism.analyses.predictions.fourier_sensitivity import basis_image
from visprism.measure.outputs.fourier_sensitivity import half_plane
from visprism.results.perturbations import HIGH_DROP, LOW_DROP

SIZES = [(7, 7), (33, 33), (224, 224), (225, 225), (32, 48), (7, 10)]
GRAY = {"mean": (0.5,) * 3, "std": (0.25,) * 3}


class Waves(nn.Module):
    """Tells whether there is more of a wave in the image than a little: class 1, or else 0."""

    def __init__(self, wave):
        super().__init__()
        self.register_buffer("wave", wave)

    def forward(self, x):
        strength = (x * self.wave).sum((2, 3)).abs().amax(1)
        return torch.stack([torch.full_like(strength, 0.5), strength], dim=1)


def flat(number=16, size=(16, 16), level=0.5):
    """Images of one gray, standardized as `GRAY` says, and targets 0."""
    images = torch.full((number, 3, *size), (level - 0.5) / 0.25)
    return [
        (x, torch.zeros(len(x), dtype=torch.long)) for x in images.split(max(1, number // 2))
    ]


# Bands.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("band_shape", "last"), [("square", 10), ("round", 14)])
def test_bands_part_the_plane(size, band_shape, last):
    every = [band(size, i / 10, band_shape=band_shape) for i in range(last + 1)]
    assert torch.equal(sum(b.int() for b in every), torch.ones(size, dtype=torch.int32))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("band_shape", ["square", "round"])
def test_a_band_holds_the_frequencies_about_its_middle(size, band_shape):
    far = radius(size, band_shape)
    for center in BAND_CENTERS:
        inside = far[band(size, center, band_shape=band_shape)]
        assert ((inside - center).abs() <= 0.05 + 1e-6).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("band_shape", ["square", "round"])
def test_a_band_holds_the_opposite_of_each_frequency(size, band_shape):
    height, width = size
    i, j = np.indices(size)
    for center in BAND_CENTERS:
        mask = band(size, center, band_shape=band_shape).numpy()
        assert (mask == mask[-i % height, -j % width]).all()


@pytest.mark.parametrize("size", SIZES)
def test_what_a_band_lets_pass_is_real(size):
    noise = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    for center in BAND_CENTERS:
        mask = band(size, center)
        passed = torch.fft.ifft2(torch.fft.fft2(noise) * mask)
        assert passed.imag.abs().max() < 1e-6
        torch.testing.assert_close(filtered(noise, mask), passed.real)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_noise_has_the_same_energy_in_every_band(size, channels):
    noise = torch.randn(2, channels, *size, generator=torch.Generator().manual_seed(0))
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
    size = (224, 224)
    for f in (0.05, 0.35, 0.75):
        mask = paper_band(size, f).double()
        opposite = mask.flip(0, 1).roll((1, 1), (0, 1))
        expected = ((mask + opposite) / 2).square().mean().sqrt()
        white = torch.randn(16, 3, *size, generator=torch.Generator().manual_seed(1)).sign()
        measured = filtered(white, paper_band(size, f)).square().mean().sqrt()
        assert float(measured) == pytest.approx(float(expected), rel=0.01)
    # As one image of the reference's own code gives it, whose lowest ring holds few waves, so
    # that its RMS varies by about 2% from image to image.
    signs = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0)).sign()
    rms = [
        filtered(signs, paper_band((224, 224), f)).square().mean().sqrt() for f in (0.05, 0.75)
    ]
    assert [float(x) for x in rms] == pytest.approx([0.102, 0.443], rel=0.03)


# What it costs.


def test_only_noise_of_the_models_own_frequency_costs_anything():
    wave = basis_image((20, 20), (3, 0))  # 3 cycles of 20 pixels: 0.3 pi
    model = Waves(wave).eval()
    result, images = frequency_noise(model, flat(20, (20, 20)), **GRAY, rms=0.2)
    assert result.frequency[result.drop > 0].tolist() == [0.3]
    assert (result.drop_low[result.drop == 0] < 0).all()
    assert result.clean_accuracy == 1
    assert result.drop == pytest.approx(1 - result.accuracy)
    assert "largest drop of 9 at 0.3 π rad/pixel" in result.findings()[0].text
    # Four bands lie below 0.5 π rad/pixel and four above; the one in the middle is of neither.
    every, high, high_accuracy, low, low_accuracy = (a.value for a in result.answers())
    lost = float(result.drop.max())
    assert (every, high, low) == pytest.approx((lost / 9, 0, lost / 4))
    assert (high_accuracy, low_accuracy) == pytest.approx((1, 1 - lost / 4))
    assert result.contrast == pytest.approx(high - low)
    values = {q: images.value[images.quantity == q] for q in (HIGH_DROP, LOW_DROP)}
    assert [v.mean() for v in values.values()] == pytest.approx([high, low])


def test_a_single_band_has_the_same_interval_alone_and_as_a_mean():
    model = Waves(basis_image((20, 20), (3, 0))).eval()
    result, _ = frequency_noise(
        model, flat(40, (20, 20)), **GRAY, rms=0.1, frequencies=[0.3, 0.7, 0.8]
    )
    *_, low, _ = result.answers()
    assert (low.low, low.high) == (result.drop_low[0], result.drop_high[0])
    assert np.isfinite(low.low)


def test_the_noise_that_is_added_has_the_strength_that_is_said():
    seen = []

    class Looking(nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.mean((2, 3))

    result, _ = frequency_noise(
        Looking().eval(), flat(4, (33, 33)), mean=(0.5,) * 3, std=(0.2, 0.25, 0.4), rms=0.05
    )
    assert result.rms == pytest.approx(0.05, rel=1e-3)
    std = torch.tensor([0.2, 0.25, 0.4])[:, None, None]
    clean, *noisy = seen[:10]
    for x in noisy:
        assert float(((x - clean) * std).square().mean().sqrt()) == pytest.approx(
            0.05, rel=1e-3
        )


@pytest.mark.parametrize("protocol", ["default", "paper"])
def test_an_images_noise_depends_on_its_number_alone(protocol):
    model = Waves(basis_image((16, 16), (4, 1))).eval()
    images, targets = flat(20)[0][0].repeat(2, 1, 1, 1), torch.zeros(20, dtype=torch.long)
    results = [
        frequency_noise(
            model,
            list(zip(images.split(size), targets.split(size), strict=True)),
            **GRAY,
            protocol=protocol,
            paper_amplitude=0.3,
        )[0]
        for size in (20, 7, [3, 12, 5])  # the last grows before it shrinks
    ]
    for name in ("accuracy", "nll_rise", "nll_rise_error", "rms"):
        one, *cuts = (getattr(r, name) for r in results)
        for cut in cuts:
            assert one == pytest.approx(cut, abs=1e-6)
    assert results[0].provenance.protocol == protocol


def test_bands_without_a_frequency_are_left_out_and_named():
    model = Waves(basis_image((7, 7), (1, 0))).eval()
    result, _ = frequency_noise(model, flat(4, (7, 7)), **GRAY)
    assert result.frequency.tolist() == [0.3, 0.6, 0.9]  # 2/7, 4/7, 6/7
    assert result.left_out == "0.1π, 0.2π, 0.4π, 0.5π, 0.7π, 0.8π"
    with pytest.raises(
        InputError, match="frequencies must include a band that holds frequencies of 7x7 images"
    ):
        frequency_noise(model, flat(4, (7, 7)), **GRAY, frequencies=[0.1])


# Contracts and errors.


def test_results_are_saved_and_read(tmp_path):
    model = Waves(basis_image((16, 16), (2, 3))).eval()
    result, _ = frequency_noise(model, flat(), **GRAY, frequencies=[0.3])
    result.save(tmp_path / "a.npz")
    assert Result.load(tmp_path / "a.npz").band_shape == "square"


def test_what_a_user_can_get_wrong():
    model, good = Waves(basis_image((16, 16), (4, 1))).eval(), flat()
    with pytest.raises(
        InputError, match=r"pixels must be between 0 and 1 .* got -0\.25 to -0\.25"
    ):
        frequency_noise(model, flat(level=-0.25), **GRAY)
    with pytest.raises(
        InputError, match="must have one value for each of 3 channels, got 1 and 1"
    ):
        frequency_noise(model, good, mean=(0.5,), std=(0.5,))
    with pytest.raises(InputError, match=r"frequency must be between 0 and 1 .* got 3.0"):
        frequency_noise(model, good, **GRAY, frequencies=[3.0])
    with pytest.raises(InputError, match=r"width must be positive and at most 2 .* got 0.0"):
        band((8, 8), 0.5, width=0.0)
    with pytest.raises(InputError, match="band_shape must be one of square, round, got 'oval'"):
        frequency_noise(model, good, **GRAY, band_shape="oval")
    with pytest.raises(InputError, match="protocol must be 'default' or 'paper', got 'papers'"):
        frequency_noise(model, good, **GRAY, protocol="papers")
    with pytest.raises(InputError, match=r"rms must be finite and positive, got 0\.0"):
        frequency_noise(model, good, **GRAY, rms=0.0)
    with pytest.raises(InputError, match="this measurement needs targets"):
        frequency_noise(model, [good[0][0]], **GRAY)
    with pytest.raises(InputError, match="targets must be labels"):
        frequency_noise(model, [(good[0][0], good[0][1] - 1)], **GRAY)
    with pytest.raises(InputError, match=r"images must be one tensor .* got dict"):
        frequency_noise(model, [({"x": good[0][0]}, good[0][1])], **GRAY)
    for rms, message in ((0.0, "positive"), (float("nan"), "number"), (float("inf"), "number")):
        with pytest.raises(InputError, match=f"rms must be .*{message}"):
            frequency_noise(model, good, **GRAY, rms=rms)
    with pytest.raises(InputError, match=r"evaluation mode. Call model.eval\(\) first"):
        frequency_noise(model.train(), good, **GRAY)
