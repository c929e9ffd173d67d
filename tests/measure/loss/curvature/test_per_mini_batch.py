"""Hessians by mini-batch: values by which two models are paired."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from spectra import spectrum_of
from torch import nn

from visprism.results import paired_differences
from visprism.results.hessian_differences import ape_differences
from visprism.study import examine

NAMES = {
    "negative leading Hessian eigenvalues (NEP)": "nep",
    "geometric mean of positive leading Hessian eigenvalues": "ape_log_mean",
    "largest Hessian eigenvalue, mean over mini-batches": "largest",
}


def eigenvalues(rng, difficulty, scale, negative):
    """Five of each mini-batch: its difficulty scales them, and some are negative."""
    shape = (len(difficulty), 5)
    signs = np.where(rng.random(shape) < negative, -1.0, 1.0)
    return signs * scale * difficulty[:, None] * np.exp(0.2 * rng.normal(size=shape))


def differences(first, second):
    table = paired_differences(first.per_mini_batch(), second.per_mini_batch())
    assert table.over == "mini-batches"
    fields = [f for q in table.quantity for name, f in NAMES.items() if q.startswith(name)]
    return dict(
        zip(fields, zip(table.difference, table.low, table.high, strict=True), strict=True)
    )


def test_means_over_mini_batches_are_the_numbers_of_the_summary():
    rng = np.random.default_rng(0)
    spectrum = spectrum_of(eigenvalues(rng, rng.uniform(1, 2, 12), 1.0, 0.3))
    summary, values = spectrum.summary(), spectrum.per_mini_batch()
    answers = {a.quantity: a for a in summary.answers()}
    assert len(values.quantities) == len(NAMES)
    for quantity in values.quantities:
        answer = answers[quantity]
        batches, of_batches = values.values_of(quantity)
        assert batches.tolist() == list(range(12))
        assert of_batches.mean() == pytest.approx(answer.value, rel=1e-12)


def test_the_spread_of_linearized_values_is_that_of_the_bootstrap():
    rng = np.random.default_rng(1)
    values = eigenvalues(rng, rng.uniform(1, 2, 200), 1.0, 0.3)
    per_batch = spectrum_of(values).per_mini_batch()
    for statistic, start in (
        (lambda v: (v < 0).mean(), "negative"),
        (lambda v: np.exp(np.log(v[v > 0]).mean()), "geometric mean"),
    ):
        (quantity,) = [q for q in per_batch.quantities if q.startswith(start)]
        draws = [statistic(values[rng.integers(200, size=200)]) for _ in range(2000)]
        _, linearized = per_batch.values_of(quantity)
        error = linearized.std(ddof=1) / np.sqrt(200)
        assert error == pytest.approx(np.std(draws), rel=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 32])
def test_the_interval_of_a_difference_covers_the_truth_in_95_percent(n):
    """Mini-batches that are hard for both; the second model has more negative ones."""
    rng = np.random.default_rng(2)
    inside, simulations = 0, 600
    for _ in range(simulations):
        difficulty = rng.uniform(1, 2, n)
        a = spectrum_of(eigenvalues(rng, difficulty, 1.0, 0.2))
        b = spectrum_of(eigenvalues(rng, difficulty, 1.3, 0.3))
        _, low, high = differences(a, b)["nep"]
        inside += low <= 0.1 <= high
    assert 0.92 <= inside / simulations <= 0.98


def test_the_difference_of_ape_is_narrower_than_that_of_other_mini_batches():
    rng = np.random.default_rng(5)
    difficulty = rng.uniform(1, 4, 32)
    a = spectrum_of(eigenvalues(rng, difficulty, 1.0, 0.2))
    b = spectrum_of(eigenvalues(rng, difficulty, 1.3, 0.3))
    paired, alone = ape_differences(a, b), [s.summary() for s in (a, b)]
    assert paired.quantity.tolist() == [
        q.quantity for q in alone[0].answers() if "APE" in q.quantity
    ]
    assert paired.difference[0] == pytest.approx(alone[1].ape[0] - alone[0].ape[0])
    assert paired.low[0] <= paired.difference[0] <= paired.high[0]
    apart = sum(((s.ape_high - s.ape_low)[0] ** 2) for s in alone) ** 0.5
    assert paired.high[0] - paired.low[0] < 0.8 * apart
    back = ape_differences(b, a)
    np.testing.assert_allclose([back.low, back.high], [-paired.high, -paired.low])


def test_fewer_than_sixteen_common_mini_batches_have_no_difference_of_ape():
    rng = np.random.default_rng(6)
    a, b = (spectrum_of(eigenvalues(rng, np.ones(20), 1.0, 0.2)) for _ in range(2))
    assert len(ape_differences(a, b)) == 1
    assert ape_differences(a, b).images.tolist() == [20]
    assert len(ape_differences(a, b.first(15))) == 0


def test_what_has_no_interval_is_not_paired():
    rng = np.random.default_rng(3)
    few = spectrum_of(eigenvalues(rng, np.ones(9), 1.0, 0.2))
    assert few.per_mini_batch().quantities == ()
    spectrum = spectrum_of(eigenvalues(rng, np.ones(20), 1.0, 0.2))
    vague = replace(spectrum, converged=(spectrum.which != "LA") | (spectrum.batch != 3))
    assert not any(q.startswith("largest") for q in vague.per_mini_batch().quantities)
    assert not any(a.quantity.startswith("largest") for a in vague.summary().answers())


def test_fewer_than_ten_common_mini_batches_have_no_interval():
    rng = np.random.default_rng(4)
    a, b = (spectrum_of(eigenvalues(rng, np.ones(12), 1.0, 0.2)) for _ in range(2))
    first, second = a.per_mini_batch(), b.per_mini_batch()
    common = paired_differences(first, second.select(second.image < 8))
    assert common.images.tolist() == [8] * len(NAMES)
    assert np.isfinite(common.difference).all()
    assert np.isnan(common.low).all()
    assert np.isnan(common.high).all()
    assert not common.significant.any()


@pytest.fixture(scope="module")
def study():
    """Two classifiers and 24 images, of which each pair is a mini-batch."""
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
        options={"hessian": {"mini_batch": 2, "k": 3}},
        minutes=None,
    )
    return made, models, images, targets


def test_both_models_are_measured_on_the_same_mini_batches(study):
    made, models, images, targets = study
    data = list(zip(images.split(2), targets.split(2), strict=True))
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
        if "APE" in row.quantity:  # 12 mini-batches are too few for its interval
            assert not row.differences
            continue
        a, b = (row.cells[name].value for name in "ab")
        assert row.difference.value == pytest.approx(b - a, rel=1e-6, abs=1e-9)
        assert row.difference.over == "mini-batches"
        assert " over mini-batches" in row.difference_text()
        assert np.isfinite(row.difference.low)
