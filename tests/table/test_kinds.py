"""Laws of summaries by kind (src/visprism/table/kinds.py)."""

import numpy as np
import pytest
import torch
from maps import results_of

from visprism import Fourier, Variance
from visprism.table.kinds import SCALE_FREE, TO_LOWEST, TO_MEAN, VARIANCE

BLUR = [(0, 0), (0, 1), (1, 0), (1, 1)]


def spectra(kinds, *maps, **options):
    return results_of(Fourier(), *maps, kinds=kinds, **options)


def variances(kinds, *maps, **options):
    return results_of(Variance(), *maps, kinds=kinds, **options)


def rows(summary, kind, quantity):
    i = summary.of_kind(kind)[quantity.id]
    return {name: column[i] for name, column in summary.columns().items()}


def blurred(x):
    return sum(x.roll(shift, dims=(2, 3)) for shift in BLUR) / 4


def test_a_blur_is_low_pass_by_both_references_and_its_inverse_high_pass(noise):
    x = noise(32, 8, 9, 9) + 5  # odd: a blur leaves nothing of an even side's last frequency
    summary = spectra(["stem", "attention"], x, blurred(x))[-1]
    # On the diagonal a 2x2 blur multiplies by cos² of half the frequency.
    highest, lowest = (2 * np.log(np.cos(np.pi * f / 2)) for f in (8 / 9, 2 / 9))
    assert rows(summary, "attention", TO_MEAN)["mean"] == pytest.approx(highest, abs=1e-4)
    expected = pytest.approx(highest - lowest, abs=1e-4)
    assert rows(summary, "attention", TO_LOWEST)["mean"] == expected
    assert {a.reading for a in summary.answers()} == {"low-pass"}
    assert [f.text for f in summary.findings()] == [
        answer.sentence("32 images") for answer in summary.answers()
    ]
    inverse = spectra(["stem", "attention"], blurred(x), x)[-1]
    assert {a.reading for a in inverse.answers()} == {"high-pass"}


def test_a_raised_mean_is_no_low_pass_filter(noise):
    x = noise(32, 8, 8, 8)
    summary = spectra(["stem", "conv"], x + 1, x + 3)[-1]
    assert rows(summary, "conv", TO_MEAN)["mean_high"] < 0  # by the paper it is
    assert rows(summary, "conv", TO_LOWEST)["mean"] == pytest.approx(0, abs=1e-9)
    (reading,) = {a.reading for a in summary.answers()}
    assert reading.startswith("1 of 1 lower, 0 raise (mean \N{MINUS SIGN}")


def test_the_interval_is_that_of_the_mean_over_blocks_by_image(noise):
    maps = [noise(9, 4, 8, 8) for _ in range(4)]
    result = spectra(["stem", "attention", "mlp", "attention"], *maps)
    level = [
        np.log(np.abs(np.fft.fft2(x.numpy())) + 1e-6).mean(1).diagonal(axis1=1, axis2=2)
        for x in maps
    ]
    relative = [images[:, 4] - images[:, 0] for images in level]
    to_lowest = [images[:, 4] - images[:, 1] for images in level]
    for quantity, values in ((TO_MEAN, relative), (TO_LOWEST, to_lowest)):
        by_image = ((values[1] - values[0]) + (values[3] - values[2])) / 2
        row = rows(result[-1], "attention", quantity)
        margin = 2.306004 * by_image.std(ddof=1) / 3  # t with 8 degrees of freedom
        assert row["mean"] == pytest.approx(by_image.mean(), rel=1e-5)
        assert row["mean_low"] == pytest.approx(by_image.mean() - margin, rel=1e-4)
        assert row["blocks"] == 2


def test_the_variance_changes_in_logs_so_that_doubling_and_halving_cancel(noise):
    x = noise(16, 3, 4, 4)
    maps = [x, 2**0.5 * x, x, 2**0.5 * x, x + 0.01 * noise(16, 3, 4, 4)]
    summary = variances(["stem"] + ["mlp"] * 4, *maps)[-1]
    row = rows(summary, "mlp", VARIANCE)
    assert (row["falls"], row["rises"], row["blocks"]) == (2, 2, 4)
    assert row["mean"] == pytest.approx(0, abs=1e-2)
    assert summary.answers()[0].low < 0 < summary.answers()[0].high
    (answer, _) = variances(["stem", "mlp"], x, 3 * x)[-1].answers()
    assert (answer.unit, answer.value) == ("%", pytest.approx(8, rel=1e-3))


def test_a_growing_stream_raises_the_variance_and_not_the_scale_free_one(noise):
    x = noise(32, 3, 6, 6) + 2
    summary = variances(["stem", "attention"], x, 3 * blurred(x))[-1]
    assert rows(summary, "attention", VARIANCE)["mean_low"] > 0
    assert rows(summary, "attention", SCALE_FREE)["mean_high"] < 0
    (reading,) = {a.reading for a in summary.answers()}
    variance, scale_free = reading.split(", ")
    assert variance.startswith("+")
    assert variance.endswith("of variance")
    assert scale_free.startswith("\N{MINUS SIGN}")
    assert scale_free.endswith("of variance / mean square")


def test_blocks_of_opposite_signs_are_counted_and_not_called_by_one_word(noise):
    x = noise(32, 8, 9, 9) + 5
    y = blurred(x)
    summary = spectra(["stem", "conv", "conv"], x, y, x + y)[-1]
    (reading,) = {a.reading for a in summary.answers()}
    assert reading.startswith("1 of 2 lower, 1 raise (mean ")


def test_an_interval_of_a_ratio_stays_among_possible_values(noise):
    x = noise(3, 2, 4, 4)
    maps = [x, x * torch.tensor([0.1, 1.0, 0.3]).double()[:, None, None, None]]
    for answer in variances(["stem", "conv"], *maps)[-1].answers():
        assert -1 < answer.low <= answer.value <= answer.high


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("images", [12, 50])
def test_the_interval_of_the_mean_change_covers_the_truth(images):
    """Two blocks multiply each image by random factors, of known mean in logs."""
    repeats, covered = 600, 0
    generator = torch.Generator().manual_seed(1)
    for _ in range(repeats):
        x = torch.randn(images, 2, 2, 2, generator=generator, dtype=torch.float64)
        factors = 0.1 + 0.4 * torch.randn(2, images, 1, 1, 1, generator=generator).double()
        y = x * factors[0].exp()
        z = y * (0.5 * factors[0] + 0.5 * factors[1]).exp()  # neighbors are not independent
        summary = variances(["stem", "mlp", "mlp"], x, y, z)[-1]
        row = rows(summary, "mlp", VARIANCE)
        covered += row["mean_low"] <= 2 * 0.1 <= row["mean_high"]
    assert 0.92 <= covered / repeats <= 0.975


def test_one_image_has_no_interval(noise):
    summary = variances(["stem", "mlp"], noise(1, 3, 4, 4), noise(1, 3, 4, 4))[-1]
    assert np.isnan(summary.mean.low).all()
    assert summary.directions().tolist() == [0, 0]
    assert "(no interval: a single image" in summary.findings()[0].text


def test_blocks_that_subsample_or_change_the_grid_do_not_count(noise):
    maps = [noise(4, 3, 8, 8), noise(4, 3, 8, 8), noise(4, 3, 4, 4), noise(4, 3, 4, 4)]
    _, counted = variances(["stem", "conv", "conv", "conv"], *maps)
    assert set(counted.blocks) == {2}  # the third has another grid
    assert not counted.falls.any() | counted.rises.any()
    _, none = variances(["stem", "conv", "conv", "conv"], *maps, subsampling=True)
    assert len(none) == 0


def test_a_change_across_blocks_off_the_grid_is_said_and_does_not_count(noise):
    maps = [noise(8, 3, 4, 4) for _ in range(3)]
    kinds, gap = ["stem", "conv", "conv"], {"block2": "mixer, pool"}
    result, summary = variances(kinds, *maps, between=gap)
    assert result.previous.tolist() == ["", "block0", "block1"]
    assert set(summary.blocks) == {1}
    alone = variances(kinds[:2], *maps[:2])[-1]
    np.testing.assert_allclose(summary.mean.low, alone.mean.low)
    (finding,) = result.findings()
    assert finding.text.startswith(
        "the change across block2 refers to block1; it includes mixer"
    )
    assert spectra(kinds, *maps, between=gap)[1].findings() == (finding,)
