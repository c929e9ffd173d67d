"""Tests of values of single images and of paired differences."""

import numpy as np
import pytest
from scipy import stats

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.statistics import mean_interval
from visprism.results.base import Result
from visprism.results.per_image import PerImage, paired_differences


def per_image(values: np.ndarray, quantity: str = "NLL", start: int = 0) -> PerImage:
    n = len(values)
    return PerImage(
        quantity=np.full(n, quantity),
        image=np.arange(start, start + n),
        value=np.asarray(values, dtype=np.float64),
    )


def test_difference_and_interval_are_those_of_the_paired_t_test():
    generator = np.random.default_rng(0)
    a, noise = generator.normal(size=60), 0.3 * generator.normal(size=30)
    b = a + 0.2 + np.concatenate([noise, -noise])  # without skewness, Student's interval
    result = paired_differences(per_image(a), per_image(b))
    test = stats.ttest_rel(b, a)
    error = (result.high[0] - result.low[0]) / (2 * stats.t.ppf(0.975, 59))
    assert result.difference[0] == pytest.approx(b.mean() - a.mean())
    assert result.difference[0] / error == pytest.approx(test.statistic)
    assert result.first[0] == pytest.approx(a.mean())
    assert result.second[0] == pytest.approx(b.mean())
    assert result.significant.tolist() == [test.pvalue < 0.05]


def test_images_are_matched_by_index_in_any_order():
    generator = np.random.default_rng(1)
    a, b = per_image(generator.normal(size=20)), per_image(generator.normal(size=20))
    order = generator.permutation(20)
    assert paired_differences(a, b) == paired_differences(a, b.select(order))


def test_only_common_images_and_quantities_count():
    values = np.arange(10.0) / 7
    first, second = per_image(values), per_image(values + 1, start=4)
    result = paired_differences(first, second)
    assert result.images.tolist() == [6]
    assert result.first[0] == pytest.approx(values[4:].mean())
    both = PerImage(
        quantity=np.concatenate([first.quantity, np.full(10, "entropy")]),
        image=np.tile(np.arange(10), 2),
        value=np.tile(values, 2),
    )
    assert paired_differences(both, first).quantity.tolist() == ["NLL"]
    assert both.quantities == ("NLL", "entropy")


def test_the_interval_of_a_difference_of_means_holds_the_truth_in_95_percent():
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        difficulty = generator.exponential(size=200)
        a = difficulty * generator.uniform(0.5, 1.5, size=200)
        b = difficulty * generator.uniform(0.6, 1.8, size=200)
        result = paired_differences(per_image(a), per_image(b))
        hits += result.low[0] <= 0.2 <= result.high[0]  # E[b] - E[a] = 1.2 - 1.0
    assert 368 <= hits <= 392  # 380 expected, deviation 4.4


@pytest.mark.parametrize(
    ("images", "gain", "loss"), [(50, 0.4, 0.2), (100, 0.2, 0.1), (200, 0.1, 0.1)]
)
def test_the_interval_of_a_difference_of_accuracies_holds_the_truth_in_95_percent(
    images: int, gain: float, loss: float
):
    generator = np.random.default_rng(3)
    hits = 0
    for _ in range(400):
        u = generator.uniform(size=images)
        a = generator.uniform(size=images) < 0.5
        b = (a | (u < gain)) & (u <= 1 - loss)
        result = paired_differences(per_image(a), per_image(b))
        truth = 0.5 * gain - 0.5 * loss
        hits += result.low[0] <= truth <= result.high[0]
    assert 368 <= hits <= 394  # 380 expected, deviation 4.4


def test_models_that_agree_on_every_image_may_still_differ():
    correct = np.ones(100)
    result = paired_differences(per_image(correct), per_image(correct))
    assert result.difference[0] == 0
    # Rule of three: a difference of up to 3 / n may leave no trace in n images.
    assert result.high[0] == pytest.approx(0.03, abs=0.01)
    assert result.low[0] == -result.high[0]
    assert not result.significant[0]


def test_interval_of_a_single_value_is_not_defined():
    assert np.isnan(mean_interval(np.ones(1))).all()


def test_names_of_both_models_stay_with_the_differences():
    a = per_image(np.ones(3)).with_provenance(model="resnet50")
    b = per_image(np.ones(3)).with_provenance(model="vit_ti")
    result = paired_differences(a, b)
    assert (result.first_model, result.second_model) == ("resnet50", "vit_ti")
    assert result.provenance == Provenance(model="resnet50 and vit_ti", images=3)


def test_per_image_values_survive_a_file(tmp_path):
    result = per_image(np.arange(4.0))
    result.save(tmp_path / "values.npz")
    assert Result.load(tmp_path / "values.npz") == result


def test_two_values_of_an_image_are_refused():
    with pytest.raises(InputError, match="one value of 'NLL', got several"):
        PerImage(quantity=np.full(2, "NLL"), image=np.zeros(2, int), value=np.ones(2))


def test_results_without_a_common_quantity_or_image_are_refused():
    with pytest.raises(InputError, match="a quantity in common, got NLL and accuracy"):
        paired_differences(per_image(np.ones(3)), per_image(np.ones(3), "accuracy"))
    with pytest.raises(InputError, match="images in common, got none for NLL"):
        paired_differences(per_image(np.ones(3)), per_image(np.ones(3), start=3))
    with pytest.raises(InputError, match="quantity must be one of NLL, got 'ECE'"):
        per_image(np.ones(3)).values_of("ECE")
