"""Hessians by mini-batch: differences between two models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from spectra import spectrum_of
from torch import nn

from visprism import examine
from visprism.core.statistics import heavy_tailed_difference
from visprism.results.hessian_differences import hessian_differences
from visprism.results.hessian_statistics import negative_proportion_difference

NAMES = {
    "negative leading Hessian eigenvalues (NEP)": "nep",
    "geometric mean of positive leading Hessian eigenvalues": "ape_log_mean",
    "largest Hessian eigenvalue, mean over mini-batches": "largest",
    "mean of positive leading Hessian eigenvalues (APE)": "ape",
}


def eigenvalues(rng, difficulty, scale, negative):
    """Five of each mini-batch: its difficulty scales them, and some are negative."""
    shape = (len(difficulty), 5)
    signs = np.where(rng.random(shape) < negative, -1.0, 1.0)
    return signs * scale * difficulty[:, None] * np.exp(0.2 * rng.normal(size=shape))


def differences(first, second):
    table = hessian_differences(first, second)
    assert table.over == "mini-batches"
    fields = [f for q in table.quantity for name, f in NAMES.items() if q.startswith(name)]
    return dict(
        zip(fields, zip(table.difference, table.low, table.high, strict=True), strict=True)
    )


def test_differences_are_those_of_the_numbers_of_the_summary():
    rng = np.random.default_rng(0)
    a, b = (spectrum_of(eigenvalues(rng, rng.uniform(1, 2, 12), s, 0.3)) for s in (1, 2))
    table, answers = hessian_differences(a, b), [s.summary().answers() for s in (a, b)]
    assert table.images.tolist() == [12] * 4
    first, second = ({x.quantity: x.value for x in by_model} for by_model in answers)
    assert sorted(table.quantity) == sorted(first)
    for quantity, difference in zip(table.quantity, table.difference, strict=True):
        assert difference == pytest.approx(second[quantity] - first[quantity], rel=1e-12)


def test_the_error_of_a_difference_of_geometric_means_is_that_of_the_bootstrap():
    rng = np.random.default_rng(1)
    difficulty = rng.uniform(1, 2, 200)
    pair = [eigenvalues(rng, difficulty, scale, 0.3) for scale in (1.0, 1.5)]
    _, low, high = differences(*(spectrum_of(v) for v in pair))["ape_log_mean"]
    draws = []
    for rows in rng.integers(200, size=(2000, 200)):
        means = [np.exp(np.log(v[rows][v[rows] > 0]).mean()) for v in pair]
        draws.append(means[1] - means[0])
    assert (high - low) / (2 * stats.t.ppf(0.975, 199)) == pytest.approx(
        np.std(draws), rel=0.07
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "first", "second"),
    [(10, 0.2, 0.3), (32, 0.2, 0.3), (10, 0.0, 0.04), (16, 0.01, 0.05)],
)
def test_the_interval_of_a_difference_of_nep_covers_the_truth(n, first, second):
    """Mini-batches whose negative eigenvalues occur together, also rare ones."""
    rng, inside, simulations = np.random.default_rng(2), 0, 500
    for _ in range(simulations):
        common = rng.random((n, 1))
        u = np.where(rng.random((n, 5)) < 0.4, common, rng.random((n, 5)))
        pair = (list(np.where(u < p, -1.0, 1.0)) for p in (first, second))
        low, high = negative_proportion_difference(*pair)
        inside += low <= second - first <= high
    assert inside / simulations >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.5, 1.2])
def test_the_interval_of_a_difference_of_largest_eigenvalues_covers_the_truth(spread):
    rng, inside, simulations = np.random.default_rng(7), 0, 400
    truth = np.exp((spread**2 + 0.09) / 2) * (np.exp(0.3) - 1)
    for _ in range(simulations):
        common = spread * rng.normal(size=32)
        pair = (np.exp(shift + common + 0.3 * rng.normal(size=32)) for shift in (0, 0.3))
        low, high = heavy_tailed_difference(*pair)
        inside += low <= truth <= high
    assert inside / simulations >= 0.92


def test_equal_spectra_without_negative_eigenvalues_have_an_interval_of_nep_around_0():
    spectrum = spectrum_of(np.ones((12, 5)))
    difference, low, high = differences(spectrum, spectrum)["nep"]
    assert difference == 0
    # Wilson's upper end of 0 of 12 mini-batches, with the t quantile of 11 degrees of freedom
    t2 = stats.t.ppf(0.975, 11) ** 2
    assert (-low, high) == (pytest.approx(t2 / (12 + t2)), pytest.approx(t2 / (12 + t2)))


def test_the_difference_of_ape_is_narrower_than_that_of_other_mini_batches():
    rng = np.random.default_rng(5)
    difficulty = rng.uniform(1, 4, 32)
    a = spectrum_of(eigenvalues(rng, difficulty, 1.0, 0.2))
    b = spectrum_of(eigenvalues(rng, difficulty, 1.3, 0.3))
    (difference, low, high), alone = differences(a, b)["ape"], [s.summary() for s in (a, b)]
    assert low <= difference <= high
    apart = sum(((s.ape_high - s.ape_low)[0] ** 2) for s in alone) ** 0.5
    assert high - low < 0.8 * apart
    back, paired = hessian_differences(b, a), hessian_differences(a, b)
    np.testing.assert_allclose([back.low, back.high], [-paired.high, -paired.low])


def test_few_common_mini_batches_have_no_interval_and_the_reason_is_given():
    rng = np.random.default_rng(6)
    a, b = (spectrum_of(eigenvalues(rng, rng.uniform(1, 2, 32), 1.0, 0.2)) for _ in range(2))
    complete = hessian_differences(a, b)
    assert np.isfinite(complete.low).all()
    assert complete.missing.tolist() == [""] * 4
    for batches, present in ((31, ["nep", "ape_log_mean"]), (9, [])):
        table = hessian_differences(a, b.first(batches))
        assert np.isfinite(table.difference).all()
        for quantity, low, missing in zip(
            table.quantity, table.low, table.missing, strict=True
        ):
            field = next(f for name, f in NAMES.items() if quantity.startswith(name))
            assert np.isfinite(low) == (field in present)
            fewest = 32 if field in ("ape", "largest") else 10
            reason = "" if field in present else f"fewer than {fewest} mini-batches"
            assert missing == reason


def test_unconverged_largest_eigenvalues_are_not_paired():
    rng = np.random.default_rng(3)
    spectrum = spectrum_of(eigenvalues(rng, np.ones(20), 1.0, 0.2))
    vague = replace(spectrum, converged=(spectrum.which != "LA") | (spectrum.batch != 3))
    table = hessian_differences(spectrum, vague)
    assert not any(q.startswith("largest") for q in table.quantity)
    assert not any(a.quantity.startswith("largest") for a in vague.summary().answers())


@pytest.fixture(scope="module")
def study():
    """Two classifiers and 24 images, each of which is a mini-batch."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(24, 3, 6, 6, generator=generator)
    targets = torch.randint(4, (24,), generator=generator)

    def network(seed):
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(64, 4)
        return nn.Sequential(*layers).eval()

    models = {"a": network(0), "b": network(1)}
    made = examine(
        models,
        [(images, targets)],
        analyses=["hessian"],
        options={"hessian": {"mini_batch": 1, "k": 3}},
        minutes=None,
    )
    return made, models, images, targets


def test_both_models_are_measured_on_the_same_mini_batches(study):
    made, models, images, targets = study
    data = list(zip(images.split(1), targets.split(1), strict=True))
    orders = []
    for name, model in models.items():
        spectrum = made.model(name).results("hessian")[2]
        nll = {b: spectrum.nll[spectrum.batch == b][0] for b in np.unique(spectrum.batch)}
        with torch.no_grad():
            expected = [float(nn.functional.cross_entropy(model(x), y)) for x, y in data]
        orders.append([int(np.argmin(np.abs(np.array(expected) - v))) for v in nll.values()])
        np.testing.assert_allclose(sorted(nll.values()), sorted(expected), rtol=1e-5)
    assert orders[0] == orders[1]


def test_the_table_of_a_study_has_the_differences_over_mini_batches(study):
    made, *_ = study
    rows = {row.quantity.partition(",")[0]: row for row in made.table()}
    assert len([row for row in rows.values() if row.differences]) >= 2
    for row in rows.values():
        a, b = (row.cells[name].value for name in "ab")
        assert row.difference.value == pytest.approx(b - a, rel=1e-6, abs=1e-9)
        assert row.difference.over == "mini-batches"
        assert " over mini-batches" in row.difference_text()
        few = "APE" in row.quantity or "largest" in row.quantity  # 24 are too few for these
        assert np.isnan(row.difference.low) == few
        if few:
            assert row.difference_text().endswith("(no interval: fewer than 32 mini-batches)")
