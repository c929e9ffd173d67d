"""Paired differences in the table of a study (src/visprism/report/rows.py)."""

import math

import numpy as np
import pytest
import torch
from classifiers_by_hand import outcomes_by_hand
from timm.models import VisionTransformer

from visprism import Answer, Provenance, Result, examine
from visprism.analyses.predictions.error_consistency import error_consistency
from visprism.core.statistics import mean_interval
from visprism.report.rows import Difference, Row, comparison_rows


def network(seed):
    """A transformer whose blocks change the tokens visibly."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        vit = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=12, depth=2, num_heads=2, num_classes=5
        )
        with torch.no_grad():
            for parameter in vit.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return vit.eval()


@pytest.mark.parametrize(
    ("form", "low", "high", "remark"),
    [("difference", math.nan, math.nan, "no interval"), ("difference", 0.5, 2.0, ""),
     ("difference", -1.0, 2.0, "no difference found"),
     ("ratio", 0.5, 2.0, "no difference found"),
     ("ratio", 1.1, 1.9, "")],
)  # fmt: skip
def test_a_difference_without_an_interval_is_neither_significant_nor_not(
    form, low, high, remark
):
    difference = Difference(1.25, low, high, form).judged(math.nan)
    row = Row("How bright?", "brightness", "", {}, {("a", "b"): difference})
    text = row.difference_text()
    assert difference.remark == remark
    assert text.endswith(f" ({remark})" if remark else "]")


@pytest.mark.parametrize("in_pixels", [True, False])
def test_pixels_of_images_of_different_sizes_are_not_compared(in_pixels):
    def results(side, value):
        values = value + np.linspace(-1, 1, 40)
        answer = Answer("How large?", "width", value, in_pixels=in_pixels, by_unit=values)
        made = type("Answering", (Result,), {"answers": lambda _: (answer,)})
        return [made(provenance=Provenance(image_shape=(3, side, side)))]

    (same,) = comparison_rows({"a": results(32, 1.0), "b": results(32, 3.0)})
    assert same.difference.value == pytest.approx(2)
    (other,) = comparison_rows({"a": results(32, 1.0), "b": results(64, 3.0)})
    if in_pixels:
        text = "it depends on the size of the images, 32x32 and 64x64 pixels"
        assert other.difference_text() == f"undefined ({text})"
    else:
        assert other.difference.value == pytest.approx(2)


IMAGES = torch.rand(32, 3, 32, 32, generator=torch.Generator().manual_seed(5))


def test_it_has_the_paired_difference_of_every_answer_over_images():
    models = {"a": network(0), "b": network(1)}
    study = examine(models, [*IMAGES.split(8)], analyses=["fourier", "variance", "attention"])
    forms = set()
    for row in study.table():
        a, b = (row.cells[name] for name in models)
        if a.by_unit is None:  # costs of the machine, not numbers of images
            continue
        values = b.by_unit - a.by_unit
        expected = np.array([values.mean(), *mean_interval(values)])
        difference = row.difference
        interval = [difference.value, difference.low, difference.high]
        in_logs = difference.form == "ratio"
        np.testing.assert_allclose(interval, np.exp(expected) if in_logs else expected)
        # The difference stands in the unit of the answers beside it.
        beside = (1 + b.value) / (1 + a.value) if in_logs else b.value - a.value
        assert difference.value == pytest.approx(beside, rel=1e-6, abs=1e-9)
        assert in_logs == row.quantity.startswith("variance")
        forms.add(difference.form)
    assert forms == {"difference", "ratio"}


def test_a_kind_of_block_that_one_model_lacks_has_no_difference(net):
    models = {"a": network(0), "b": net()}
    study = examine(models, [IMAGES[:8]], analyses=["variance"])
    rows = [row for row in study.table() if "attention blocks" in row.quantity]
    assert rows
    assert all(row.difference is None for row in rows)


def test_a_number_of_two_models_has_a_row_after_those_of_the_models():
    pair = (
        outcomes_by_hand(0.9, 10 * correct) for correct in ([1, 1, 1, 0, 0], [1, 1, 0, 0, 1])
    )
    result = error_consistency(*pair, names=("cnn", "vit"))
    only, row = comparison_rows({"cnn": [], "vit": []}, {("cnn", "vit"): [result]})
    assert only.difference.value == 20 / 50
    assert only.difference.reading == "10 by cnn only, 10 by vit only"
    assert not row.cells
    assert row.difference.value == result.kappa == pytest.approx(1 / 6)
