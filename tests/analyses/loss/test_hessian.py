"""Laws of Hessian spectra of mini-batches: NEP, APE, their intervals and differences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from spectra import spectrum_of

from visprism.estimates.answers import difference

FIELDS = ("nep", "ape", "ape_log_mean", "largest")


def differences(first, second):
    """The differences of two spectra by field."""
    one, other = (
        {a.id.split(":")[0]: a for a in s.summary().answers()} for s in (first, second)
    )
    pairs = {name: (one[name], other[name]) for name in one if name in other}
    return {k.split(".")[1]: difference(*pair) for k, pair in pairs.items()}


def test_nep_and_ape_are_shares_and_means_of_the_leading():
    summary = spectrum_of([[4, -3, 2], [8, 6, -1], [10, -9, -8]]).summary()
    assert summary.nep[0] == pytest.approx(4 / 9)
    assert summary.ape[0] == pytest.approx((4 + 2 + 8 + 6 + 10) / 5)
    assert summary.largest[0] == pytest.approx((4 + 8 + 10) / 3)
    assert summary.smallest[0] == pytest.approx((-3 - 1 - 9) / 3)
    assert summary.nll[0] == pytest.approx(2)
    median = spectrum_of([[4, -3, 2], [8, 1, -1]]).summary()
    assert median.ape_median[0] == 3
    assert median.ape_log_mean[0] == pytest.approx((4 * 2 * 8 * 1) ** 0.25)


def test_few_mini_batches_have_no_interval_and_the_reason_is_given():
    values = np.exp(np.random.default_rng(0).normal(size=(32, 5)))
    for n, present in ((32, FIELDS), (31, ("nep", "ape_log_mean")), (9, ())):
        summary = spectrum_of(values[:n]).summary()
        for field in FIELDS:
            number = getattr(summary, field)[0]
            assert np.isfinite(number.low) == (field in present)
            fewest = 32 if field in ("ape", "largest") else 10
            reason = "" if field in present else f"fewer than {fewest} mini-batches"
            assert number.missing == reason


def test_equal_spectra_without_negative_eigenvalues_have_an_interval_of_nep_around_0():
    spectrum = spectrum_of(np.ones((12, 5)))
    made = differences(spectrum, spectrum)["nep"]
    assert made == 0
    # Wilson's upper end of 0 of 12 mini-batches, with the t quantile of 11 degrees of freedom
    t2 = stats.t.ppf(0.975, 11) ** 2
    assert (-made.low, made.high) == pytest.approx([t2 / (12 + t2)] * 2)


def test_unconverged_largest_eigenvalues_are_no_answer():
    spectrum = spectrum_of(np.exp(np.random.default_rng(3).normal(size=(20, 5))))
    vague = replace(spectrum, converged=(spectrum.which != "LA") | (spectrum.batch != 3))
    assert "largest" in differences(spectrum, spectrum)
    assert "largest" not in differences(spectrum, vague)


def test_a_negative_ritz_value_proves_negative_curvature_and_a_positive_one_excludes_none():
    both, one, positive = (
        spectrum_of([[4, middle, 2], [8, 6, last]])
        for middle, last in ((-3, -1), (-3, 1), (3, 1))
    )
    rounded = spectrum_of([[4, 3, -1e-6]])
    rounded = rounded.select((rounded.rank == 0) | (rounded.value > 0))
    bounds, open_ = (replace(s, converged=s.which != "SA") for s in (both, positive))
    readings = []
    for spectrum in (both, one, positive, rounded, bounds, open_):
        answers = {a.id.split(":")[0]: a for a in spectrum.summary().answers()}
        smallest = answers.pop("hessian-summary.smallest")
        readings.append((smallest.reading, smallest.symbol))
        assert not any(a.reading for a in answers.values())
    exact, bound = "smallest eigenvalue", "smallest eigenvalue at most"
    assert [reading for reading, _ in readings] == [
        "yes", "yes in 1 of 2 mini-batches", "no", "no", "yes", "can't tell",
    ]  # fmt: skip
    assert [symbol for _, symbol in readings] == [exact] * 4 + [bound] * 2


def test_negative_curvature_without_a_negative_leading_eigenvalue_is_a_finding():
    spectrum = spectrum_of([[40, 30, -1]] * 10)
    hidden = spectrum.select((spectrum.rank == 0) | (spectrum.value > 0))
    codes = [f.code for f in hidden.summary().findings()]
    assert codes[-1] == "VP111"


def test_densities_have_the_area_of_their_signs():
    values = np.random.default_rng(0).normal(3, 5, size=(200, 5))
    curves = spectrum_of(values).curves()
    areas = {}
    for sign in (-1, 1):
        rows = curves.select(curves.sign == sign)
        areas[sign] = abs(np.trapezoid(rows.density, np.log10(np.abs(rows.value))))
    assert sum(areas.values()) == pytest.approx(1, abs=0.01)
    assert areas[-1] == pytest.approx((values < 0).mean(), abs=0.01)


def test_sharpness_above_the_limit_of_stability_is_a_finding():
    spectrum = spectrum_of([[50.0, 40.0]] * 10)
    codes = [
        [f.code for f in replace(spectrum, learning_rate=rate).summary().findings()]
        for rate in (0.05, 0.03)
    ]
    assert ["VP110" in of_rate for of_rate in codes] == [True, False]  # 2 / 0.05 = 40
