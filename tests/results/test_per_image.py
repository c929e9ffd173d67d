"""Tests of values of single images and of paired differences."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from visprism import InputError, PerImage, Provenance, Result
from visprism.core.statistics import mean_interval
from visprism.results.differences import paired_differences


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


@pytest.mark.slow
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


def several(names: list[str], images: int) -> PerImage:
    return PerImage(
        quantity=np.repeat(names, images),
        image=np.tile(np.arange(images), len(names)),
        value=np.arange(images * len(names)) / 7,
    )


def test_a_row_of_a_file_costs_three_numbers_however_long_its_name(tmp_path):
    """A code of one byte, an index and a value of eight; the rest does not grow with rows."""
    sizes = []
    for images in (100, 1100):
        several(["high-frequency amplitude " * 5, "NLL"], images).save(tmp_path / "values.npz")
        sizes.append((tmp_path / "values.npz").stat().st_size)
    assert sizes[1] - sizes[0] == pytest.approx(2 * 1000 * (1 + 8 + 8), rel=0.01)


def test_a_file_of_schema_1_is_read_with_its_names_in_every_row(tmp_path):
    expected = several(["NLL", "accuracy drop"], 3).with_provenance(model="vit")
    np.savez(
        tmp_path / "values.npz",
        quantity=expected.quantity,
        image=expected.image,
        value=expected.value,
        __type__="per-image",
        __schema__=1,
        __provenance__=json.dumps({"model": "vit"}),
    )
    loaded = Result.load(tmp_path / "values.npz")
    assert isinstance(loaded, PerImage)
    assert loaded == expected
    assert loaded.quantity.tolist() == ["NLL"] * 3 + ["accuracy drop"] * 3
    assert (loaded.provenance, loaded.over) == (expected.provenance, "images")


def test_the_table_has_names_and_no_codes(tmp_path):
    result = several(["NLL", "accuracy, drop"], 2)
    assert list(result.columns()) == list(PerImage.infos()) == ["quantity", "image", "value"]
    result.save_csv(tmp_path / "values.csv")
    assert (tmp_path / "values.csv").read_text().splitlines()[:3] == [
        "quantity,image,value",
        "NLL,0,0.0",
        f"NLL,1,{1 / 7}",
    ]


def test_equal_rows_are_equal_results_whatever_names_they_came_from():
    both = several(["NLL", "accuracy"], 4)
    last = both.select(both.quantity == "accuracy")
    assert last.quantities == ("accuracy",)
    assert last == replace(
        PerImage(quantity=last.quantity, image=last.image, value=last.value), over="images"
    )
    assert last != replace(last, over="mini-batches")
    order = np.argsort(-np.arange(8))
    assert both.select(order).quantities == ("accuracy", "NLL")
    assert both.select(order).select(order) == both


def test_without_rows_there_are_no_quantities(tmp_path):
    empty = PerImage(quantity=np.zeros(0, str), image=np.zeros(0, int), value=np.zeros(0))
    assert (empty.quantities, empty.quantity.tolist(), len(empty)) == ((), [], 0)
    empty.save(tmp_path / "values.npz")
    assert Result.load(tmp_path / "values.npz") == empty


@pytest.mark.parametrize("codes", [np.array([0, 2]), np.array([-1, 0]), np.array([0.0, 1.0])])
def test_codes_without_a_name_are_refused(codes):
    with pytest.raises(InputError, match="code must hold indices of 2 names, got values from"):
        PerImage(code=codes, names="NLL\naccuracy", image=np.arange(2), value=np.ones(2))


def test_names_and_codes_together_or_neither_are_refused():
    rows = {"image": np.arange(2), "value": np.ones(2)}
    with pytest.raises(
        InputError, match="either quantity or code must be given, got both or neither"
    ):
        PerImage(**rows)
    with pytest.raises(
        InputError, match="either quantity or code must be given, got both or neither"
    ):
        PerImage(**rows, quantity=np.array(["a", "b"]), code=np.arange(2))
    with pytest.raises(InputError, match=r"must be one line each, got 'a\\nb'"):
        PerImage(**rows, quantity=np.array(["a\nb", "b"]))


def test_values_of_mini_batches_give_intervals_over_mini_batches():
    a, b = (replace(per_image(np.arange(5) * s), over="mini-batches") for s in (1.0, 2.0))
    a = a.with_provenance(images=80)
    result = paired_differences(a, b)
    assert (result.over, result.images.tolist()) == ("mini-batches", [5])
    assert result.provenance.images == 80
    with pytest.raises(InputError, match="values of mini-batches and of images"):
        paired_differences(a, per_image(np.arange(5.0)))


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


def test_few_mini_batches_have_no_interval_whatever_their_values():
    values = [np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0])]
    pair = [
        PerImage(quantity=np.full(3, "NEP"), image=np.arange(3), value=v, over="mini-batches")
        for v in values
    ]
    result = paired_differences(*pair)
    assert result.difference[0] == pytest.approx(2 / 3)
    assert np.isnan(result.low[0])
    assert np.isnan(result.high[0])
