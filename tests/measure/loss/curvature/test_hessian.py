"""Laws of Hessian spectra of mini-batches (src/visprism/measure/loss/curvature/hessian_spectrum.py)."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from visprism.core.errors import InputError
from visprism.measure.loss import Objective
from visprism.measure.loss.curvature import (
    HessianSpectrum,
    hessian_curves,
    hessian_spectrum,
    hessian_tally,
    joined,
    product_cost,
    top_eigenvalues,
)


@pytest.fixture
def batches(images, classes):
    """Two mini-batches of 4 and a last one of 2."""
    return list(zip(images.split(4), classes.split(4), strict=True))


def of(spectrum, **wanted):
    """Rows with these entries."""
    keep = np.ones(len(spectrum), dtype=bool)
    for name, value in wanted.items():
        keep &= getattr(spectrum, name) == value
    return spectrum.select(keep)


# What it computes.
def test_each_mini_batch_has_its_own_eigenvalues(network, batches):
    found = hessian_spectrum(network, batches, k=3, tol=1e-9)
    for number, batch in enumerate(batches):
        own = top_eigenvalues(Objective(network, [batch]), k=3, tol=1e-9)
        here = of(found, batch=number, which="LM")
        np.testing.assert_allclose(here.value, own.value, rtol=1e-8)
        np.testing.assert_array_equal(here.rank, [1, 2, 3])
        assert here.nll[0] == pytest.approx(own.nll, rel=1e-12)
    assert found.provenance.images == 10
    assert found.provenance.batch_size == 4


def test_weight_decay_gives_a_second_objective_that_is_shifted(network, batches):
    found = hessian_spectrum(network, batches, k=3, tol=1e-9, weight_decay=0.5)
    for number, batch in enumerate(batches):
        own = top_eigenvalues(Objective(network, [batch], weight_decay=0.5), k=3, tol=1e-9)
        here = of(found, batch=number, which="LM", weight_decay=0.5)
        np.testing.assert_allclose(here.value, own.value, rtol=1e-8)


def test_the_ends_are_there_too(network, batches):
    found = hessian_spectrum(network, batches, k=2, tol=1e-6)
    for number, batch in enumerate(batches):
        top, bottom = (
            top_eigenvalues(Objective(network, [batch]), k=1, which=which, tol=1e-9)
            for which in ("LA", "SA")
        )
        for exact, which in ((top, "LA"), (bottom, "SA")):
            here = of(found, batch=number, which=which, rank=0)
            assert abs(here.value[0] - exact.value[0]) <= here.residual[0] + 1e-8


def test_data_are_kept_apart_by_name(network, batches):
    found = hessian_spectrum(network, {"clean": batches, "other": batches[1:]}, k=2, tol=1e-9)
    clean, other = (of(found, data=name, which="LM") for name in ("clean", "other"))
    np.testing.assert_allclose(other.value, clean.value[2:], rtol=1e-8)


def spectrum_of(values):
    """A spectrum of hand-made eigenvalues, a row of numbers for each mini-batch."""
    values = np.array(values, dtype=float)
    n, k = values.shape
    full = np.concatenate([values, values.max(1)[:, None], values.min(1)[:, None]], 1)
    rows = n * (k + 2)
    return HessianSpectrum(
        phase=np.full(rows, "end"),
        data=np.full(rows, ""),
        weight_decay=np.zeros(rows),
        batch=np.repeat(np.arange(n), k + 2),
        nll=np.repeat(np.arange(n) + 1.0, k + 2),
        which=np.tile([*["LM"] * k, "LA", "SA"], n),
        rank=np.tile([*range(1, k + 1), 0, 0], n),
        value=full.ravel(),
        residual=np.zeros(rows),
        converged=np.ones(rows, dtype=bool),
        k=k,
        tol=1e-2,
        parameters=100,
        products=1,
    )


def test_nep_and_ape_are_shares_and_means_of_the_foremost():
    tally = hessian_tally(spectrum_of([[4, -3, 2], [8, 6, -1], [10, -9, -8]]))
    assert tally.nep[0] == pytest.approx(4 / 9)
    assert tally.ape[0] == pytest.approx((4 + 2 + 8 + 6 + 10) / 5)
    assert tally.largest[0] == pytest.approx((4 + 8 + 10) / 3)
    assert tally.smallest[0] == pytest.approx((-3 - 1 - 9) / 3)
    assert tally.nll[0] == pytest.approx(2)
    assert np.isnan(tally.nep_low[0])  # of 3 mini-batches there is no interval


def test_the_interval_of_like_mini_batches_is_a_point():
    tally = hessian_tally(spectrum_of([[4, -3, 2]] * 5))
    assert (tally.nep_low[0], tally.nep_high[0]) == pytest.approx((1 / 3, 1 / 3))
    assert (tally.ape_low[0], tally.ape_high[0]) == pytest.approx((3, 3))


def test_the_bootstrap_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        values = rng.normal(1.0, 2.0, size=(40, 4)) + rng.normal(size=(40, 1))
        tally = hessian_tally(spectrum_of(values), resamples=300)
        inside += tally.nep_low[0] <= 0.3274 <= tally.nep_high[0]  # P(N(1, 5) < 0)
    assert 0.88 < inside / 200 < 0.99


def test_without_a_positive_eigenvalue_there_is_no_mean_of_them():
    tally = hessian_tally(spectrum_of([[-4, -3]]))
    assert tally.nep[0] == 1
    assert np.isnan(tally.ape[0])


def test_the_two_parts_of_a_curve_have_the_area_one():
    curves = hessian_curves(spectrum_of(np.random.default_rng(0).normal(3, 5, size=(30, 5))))
    areas = {}
    for sign in (-1, 1):
        part = curves.select(curves.sign == sign)
        areas[sign] = np.trapezoid(part.density, np.log10(sign * part.value))
    assert sum(areas.values()) == pytest.approx(1, abs=0.01)
    assert areas[-1] == pytest.approx(0.27, abs=0.05)  # P(N(3, 25) < 0)


def test_a_loss_without_curvature_has_no_curve():
    flat = spectrum_of([[0.0, 0.0]])
    assert len(hessian_curves(flat)) == 0
    assert hessian_tally(flat).nep[0] == 0


def test_the_sentence_names_the_objective_and_what_has_not_converged():
    spectrum = spectrum_of([[4, -3, 2, 1]])
    doubtful = replace(spectrum, converged=np.arange(len(spectrum)) > 0)
    (sentence,) = hessian_tally(doubtful).sentences()
    assert sentence.startswith(
        "end, NLL alone: 25% of the foremost Hessian eigenvalues are neg"
    )
    assert sentence.endswith("over 1 mini-batch, of which 25% have not converged")


# What leaves it unchanged.
def test_mini_batches_solved_together_have_the_same_eigenvalues(network, images, classes):
    alike = list(zip(images.split(2), classes.split(2), strict=True))
    alone = hessian_spectrum(network, alike, k=3, tol=1e-9)
    together = hessian_spectrum(network, alike, k=3, tol=1e-9, together=3)  # 3 and 2
    np.testing.assert_array_equal(of(together, which="LM").batch, np.repeat(range(5), 3))
    lm = [of(found, which="LM") for found in (alone, together)]
    np.testing.assert_allclose(lm[1].value, lm[0].value, rtol=1e-8)
    np.testing.assert_allclose(lm[1].nll, lm[0].nll, rtol=1e-12)


def test_phases_are_joined_in_their_order(network, batches):
    spectra = [hessian_spectrum(network, batches, k=2, phase=p) for p in ("init", "end")]
    found = joined(spectra)
    assert len(found) == 2 * len(spectra[0])
    assert list(dict.fromkeys(found.phase)) == ["init", "end"]
    assert found.products == sum(s.products for s in spectra)


def test_in_no_time_each_data_has_one_mini_batch(network, batches):
    found = hessian_spectrum(network, {"one": batches, "two": batches}, k=2, seconds=1e-9)
    assert sorted(zip(found.data, found.batch, found.rank, strict=True)) == sorted(
        (data, 0, rank) for data in ("one", "two") for rank in (0, 0, 1, 2)
    )
    assert len(hessian_spectrum(network, batches, k=2, seconds=1e9)) == 3 * 4


def test_the_cost_of_products_is_told_before_they_are_made(network, batches):
    cost = product_cost(Objective(network, batches))
    assert cost.seconds(1) == cost.first > 0
    assert cost.seconds(21) == pytest.approx(cost.first + 20 * cost.each)
    assert cost.bytes > sum(images.nbytes for images, _ in batches)


# Contracts and errors.
def test_refuses_two_phases_of_one_name(network, batches):
    spectra = [hessian_spectrum(network, batches, k=1, phase="end") for _ in range(2)]
    with pytest.raises(InputError, match="phases 'end', 'end'; give each a name of its own"):
        joined(spectra)


def test_refuses_to_solve_none_at_once(network, batches):
    with pytest.raises(InputError, match="together is 0; wants at least 1"):
        hessian_spectrum(network, batches, together=0)


def test_refuses_spectra_of_two_models(network, batches, regression):
    spectra = [
        hessian_spectrum(model, batches, k=2, phase=phase)
        for model, phase in ((network, "one"), (regression, "other"))
    ]
    with pytest.raises(InputError, match="cannot join 2 spectra with"):
        joined(spectra)


@pytest.mark.parametrize("decay", [-1.0, float("nan"), float("inf")])
def test_refuses_a_weight_decay_without_sense(network, batches, decay):
    with pytest.raises(InputError, match=rf"weight_decay is {decay}; wants 0 or more"):
        hessian_spectrum(network, batches, weight_decay=decay)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_refuses_a_limit_of_time_without_sense(network, batches, seconds):
    with pytest.raises(InputError, match=rf"seconds must be at least 0, got {seconds}"):
        hessian_spectrum(network, batches, seconds=seconds)
    with pytest.raises(InputError, match=rf"seconds must be at least 0, got {seconds}"):
        top_eigenvalues(Objective(network, batches), k=1, seconds=seconds)


def test_refuses_no_data(network):
    with pytest.raises(InputError, match="no mini-batch was seen; is the data empty"):
        hessian_spectrum(network, [])


def test_says_that_a_model_cannot_run_for_several_at_once(images, classes):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(72, 3)

        def forward(self, images):
            logits = self.linear(images.flatten(1))
            return -logits if bool(logits.sum() > 1e6) else logits

    alike = list(zip(images.split(2), classes.split(2), strict=True))
    with pytest.raises(InputError, match=r"several mini-batches at once .* together=1"):
        hessian_spectrum(Branching().double().eval(), alike, together=2)
    assert len(hessian_spectrum(Branching().double().eval(), alike, k=1))
