"""Laws of the summary of Hessian spectra: NEP, APE and intervals (results/hessian*.py)."""

from dataclasses import replace

import numpy as np
import pytest
from spectra import spectrum_of

from visprism.results.hessian_statistics import (
    average_positive,
    average_positive_difference,
    geometric_mean,
    negative_proportion,
)


def spectrum_at_end(values):
    return spectrum_of(values, phase="end")


def test_nep_and_ape_are_shares_and_means_of_the_foremost():
    summary = spectrum_at_end([[4, -3, 2], [8, 6, -1], [10, -9, -8]]).summary()
    assert summary.nep[0] == pytest.approx(4 / 9)
    assert summary.ape[0] == pytest.approx((4 + 2 + 8 + 6 + 10) / 5)
    assert summary.largest[0] == pytest.approx((4 + 8 + 10) / 3)
    assert summary.smallest[0] == pytest.approx((-3 - 1 - 9) / 3)
    assert summary.nll[0] == pytest.approx(2)
    assert np.isnan(summary.nep_low[0])  # of 3 mini-batches there is no interval


def clustered(rng, p, correlation, n, k=5):
    """Eigenvalues of which a fraction p is negative, correlated within mini-batches."""
    shape = 1 / correlation - 1
    q = rng.beta(p * shape, (1 - p) * shape, size=(n, 1))
    return np.where(rng.random((n, k)) < q, -1.0, 1.0)


@pytest.mark.parametrize("p", [0.01, 0.05, 0.2, 0.5])
def test_the_interval_of_nep_covers_the_truth_also_near_zero(p):
    """Mean over numbers and correlations of mini-batches; counts make single cases uneven."""
    rng, inside = np.random.default_rng(0), []
    for n in (10, 16, 32):
        for correlation in (0.1, 0.4, 0.8):
            for _ in range(300):
                values = list(clustered(rng, p, correlation, n))
                _, low, high = negative_proportion(values)
                inside.append(low <= p <= high)
    assert 0.93 <= np.mean(inside) <= 0.98


@pytest.mark.parametrize(
    ("n", "k", "p", "correlation"),
    [(32, 10, 0.02, 0.5), (32, 5, 0.05, 0.4), (16, 10, 0.05, 0.4)],
)
def test_the_interval_of_nep_covers_the_truth_in_single_cases(n, k, p, correlation):
    """Cases in which few mini-batches hold all negative eigenvalues."""
    rng = np.random.default_rng(3)
    ends = np.array(
        [
            negative_proportion(list(clustered(rng, p, correlation, n, k)))[1:]
            for _ in range(600)
        ]
    )
    assert ((ends[:, 0] <= p) & (p <= ends[:, 1])).mean() >= 0.92


@pytest.mark.parametrize("n", [32])
@pytest.mark.parametrize("spread", [0.2, 1.2, 2.0])
def test_the_intervals_of_positive_eigenvalues_cover_the_truth(n, spread):
    """Log-normal mini-batches, also heavy-tailed ones."""
    rng, within = np.random.default_rng(1), 0.4
    hits, geometric, simulations = 0, 0, 400
    truth = np.exp((spread**2 + within**2) / 2)
    for _ in range(simulations):
        logs = spread * rng.normal(size=(n, 1)) + within * rng.normal(size=(n, 5))
        values = list(np.exp(logs))
        (_, low, high), (_, log_low, log_high) = (
            average_positive(values),
            geometric_mean(values),
        )
        hits += low <= truth <= high
        geometric += log_low <= 1 <= log_high
    assert 0.92 <= geometric / simulations <= 0.97
    assert hits / simulations >= 0.93  # deviation 0.01


def test_the_interval_of_ape_covers_the_truth_where_few_mini_batches_are_sharp():
    """One in ten is ten times as sharp."""
    rng, hits, simulations = np.random.default_rng(1), 0, 500
    truth = (0.9 + 0.1 * 10) * np.exp(0.3**2 / 2)
    for _ in range(simulations):
        sharp = np.where(rng.random((32, 1)) < 0.1, 10.0, 1.0)
        _, low, high = average_positive(list(sharp * np.exp(0.3 * rng.normal(size=(32, 5)))))
        hits += low <= truth <= high
    assert 0.92 <= hits / simulations <= 0.98


@pytest.mark.parametrize("spread", [0.2, 1.0, 1.5])
@pytest.mark.parametrize("n", [32])
def test_the_interval_of_a_difference_of_ape_covers_the_truth(n, spread):
    """The second model is 1.35 times as sharp, with mini-batches that are sharp for both."""
    rng, hits, simulations = np.random.default_rng(4), 0, 300
    truth = np.exp((spread**2 + 0.16) / 2) * (np.exp(0.3 + 0.045) - 1)
    for _ in range(simulations):
        common = spread * rng.normal(size=(n, 1))
        first, second = (
            list(np.exp(common + shift + 0.4 * rng.normal(size=(n, 5))))
            for shift in (0, 0.3 + 0.3 * rng.normal(size=(n, 1)))
        )
        low, high = average_positive_difference(first, second)
        hits += low <= truth <= high
    assert hits / simulations >= 0.92


def test_no_negative_eigenvalue_has_an_upper_end_as_by_the_rule_of_three():
    summary = spectrum_at_end(np.ones((16, 5))).summary()
    assert summary.nep[0] == summary.nep_low[0] == 0
    assert 3 / 16 < summary.nep_high[0] < 5 / 16


def test_fewer_than_ten_mini_batches_have_no_interval():
    summary = spectrum_at_end(np.random.default_rng(0).normal(1, 2, size=(9, 5))).summary()
    for name in ("nep", "ape", "ape_log_mean"):
        assert np.isnan(getattr(summary, f"{name}_low")[0])
    assert "too few for an interval (at least 10)" in str(summary.findings()[0])


def test_ape_has_an_interval_from_32_mini_batches_on_and_the_sentence_says_so():
    values = np.exp(np.random.default_rng(0).normal(size=(32, 5)))
    assert np.isfinite(spectrum_at_end(values).summary().ape_low[0])
    few = spectrum_at_end(values[:31]).summary()
    assert np.isnan(few.ape_low[0])
    assert np.isfinite(few.nep_low[0])
    text = "(APE, without an interval: fewer than 32 mini-batches; geometric"
    assert text in str(few.findings()[0])


def test_median_and_geometric_mean_are_those_of_the_positive_eigenvalues():
    summary = spectrum_at_end([[4, -3, 2], [8, 1, -1]]).summary()
    assert summary.ape_median[0] == 3
    assert summary.ape_log_mean[0] == pytest.approx((4 * 2 * 8 * 1) ** 0.25)


def test_the_smallest_eigenvalue_is_a_bound_where_it_did_not_converge():
    spectrum = spectrum_at_end([[4, -3, 2], [8, 6, -1]])
    bound = replace(spectrum, converged=~((spectrum.which == "SA") & (spectrum.batch == 1)))
    for summary, converged in ((spectrum.summary(), 1), (bound.summary(), 0.5)):
        assert summary.smallest[0] == -2
        assert summary.smallest_converged[0] == converged
        assert summary.negative_batches[0] == 2


def test_a_negative_ritz_value_proves_negative_curvature_and_a_positive_one_excludes_none():
    both = spectrum_at_end([[4, -3, 2], [8, 6, -1]])
    one = spectrum_at_end([[4, -3, 2], [8, 6, 1]])
    positive = spectrum_at_end([[4, 3, 2], [8, 6, 1]])
    rounded = spectrum_at_end([[4, 3, -1e-6]])
    rounded = rounded.select((rounded.rank == 0) | (rounded.value > 0))
    bounds, open_ = (replace(s, converged=s.which != "SA") for s in (both, positive))
    spectra = (both, one, positive, rounded, bounds, open_)
    assert [s.summary().answers()[-1].reading for s in spectra] == [
        "yes (smallest eigenvalue -2, mean of 2 mini-batches)",
        "yes in 1 of 2 mini-batches (smallest eigenvalue -1, mean of 2 mini-batches)",
        "no (smallest eigenvalue 1.5, mean of 2 mini-batches)",
        "no (smallest eigenvalue -1e-06, 1 mini-batch)",
        "yes (smallest eigenvalue at most -2, mean of 2 mini-batches)",
        "open (smallest eigenvalue not converged)",
    ]


def test_negative_curvature_beside_positive_leading_eigenvalues_has_a_code():
    spectrum = spectrum_at_end([[4, 3, -1]])
    hidden = spectrum.select((spectrum.rank == 0) | (spectrum.value > 0)).summary()
    assert hidden.nep[0] == 0
    assert str(hidden.findings()[1]) == (
        "negative curvature of the NLL, end: yes (smallest eigenvalue -1, 1 mini-batch) [VP111]"
    )
    assert spectrum.summary().findings()[1].code == ""


def test_without_a_positive_eigenvalue_there_is_no_mean_of_them():
    summary = spectrum_at_end([[-4, -3]]).summary()
    assert summary.nep[0] == 1
    assert np.isnan(summary.ape[0])


def test_the_two_parts_of_a_curve_have_the_area_one():
    curves = spectrum_at_end(np.random.default_rng(0).normal(3, 5, size=(30, 5))).curves()
    areas = {}
    for sign in (-1, 1):
        part = curves.select(curves.sign == sign)
        areas[sign] = np.trapezoid(part.density, np.log10(sign * part.value))
    assert sum(areas.values()) == pytest.approx(1, abs=0.01)
    assert areas[-1] == pytest.approx(0.27, abs=0.05)  # P(N(3, 25) < 0)


def test_few_eigenvalues_have_no_density():
    values = [5.0, 3.0, -1.0]
    curves = spectrum_at_end([values]).curves()
    assert sorted(curves.value) == sorted(values)
    assert np.isnan(curves.density).all()


def test_a_loss_without_curvature_has_no_curve():
    flat = spectrum_at_end([[0.0, 0.0]])
    assert len(flat.curves()) == 0
    assert flat.summary().nep[0] == 0


def test_findings_name_objective_and_split_and_what_did_not_converge():
    spectrum = spectrum_at_end([[4, -3, 2, 1]])
    vague = replace(spectrum, converged=np.arange(len(spectrum)) > 0)
    vague = vague.with_provenance(split="train", batch_size=16)
    first, _, second = vague.summary().findings()
    assert str(first).startswith(
        "leading Hessian eigenvalues of the NLL of training images, end: 25% are negative (NEP)"
    )
    assert "; 1 mini-batch of 16 images, too few for an interval" in str(first)
    assert (second.code, second.severity) == ("VP106", "warning")
    assert second.text.startswith("25% of the leading Hessian eigenvalues")


def test_answers_have_intervals_over_mini_batches():
    values = np.random.default_rng(0).normal(2, 2, size=(16, 5))
    answers = {a.quantity.split(",")[0]: a for a in spectrum_at_end(values).summary().answers()}
    nep = answers["negative leading Hessian eigenvalues (NEP)"]
    assert nep.value == pytest.approx((values < 0).mean())
    assert nep.low < nep.value < nep.high
    assert nep.over == "mini-batches"


def test_sharpness_above_the_limit_of_stability_is_a_finding():
    spectrum = spectrum_at_end([[50.0, 40.0]] * 10)
    codes = [
        [f.code for f in replace(spectrum, learning_rate=rate).summary().findings()]
        for rate in (0.05, 0.03)
    ]
    assert codes == [["", "", "VP110"], ["", ""]]  # 2 / 0.05 = 40
