"""Paired differences in the table of a study (src/visprism/study/table.py)."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from internals import Difference, Estimated, Row, comparison_rows, error_consistency, mean
from scipy import optimize, stats
from timm.models import VisionTransformer

from visprism import Answer, Provenance, Result, examine
from visprism.results import BandAccuracy, Outcomes

HIGH_ACCURACY, HIGH_DROP, LOW_DROP = (
    BandAccuracy.estimates()[name].label for name in ("high_accuracy", "high_drop", "low_drop")
)
SIDE = 4  # of the token grid


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
    ("low", "high", "remark"),
    [(math.nan, math.nan, "no interval"), (-1.0, 2.0, "not significant"), (1.5, 2.0, "")],
)
def test_a_difference_without_an_interval_is_neither_significant_nor_not(low, high, remark):
    difference = Difference(1.25, low, high)
    row = Row("How bright?", "brightness", "", {}, {("a", "b"): difference})
    text = row.difference_text()
    assert difference.remark == remark
    assert text.endswith(f" ({remark})" if remark else "]")


def drops(mixing, *, drop, clean_accuracy=0.9, seed=0):
    """Accuracy drops of one model under noise, with the values of its 200 images."""
    lost = np.zeros(200)
    lost[np.random.default_rng(seed).permutation(200)[: int(200 * drop)]] = 1.0
    rows = BandAccuracy(
        frequency=np.array([0.1, 0.9]), rms=np.full(2, 0.1),
        accuracy=Estimated(np.full(2, 0.5)), drop=Estimated(np.full(2, drop)),
        nll=np.ones(2), nll_rise=Estimated(np.zeros(2)),
        low_drop=mean(lost), high_drop=mean(lost), clean_accuracy=clean_accuracy,
        classes=4, mixing=mixing, provenance=Provenance(images=200),
    )  # fmt: skip
    return [rows]


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        (("conv", 0.2), ("attention", 0.6), "supports", "contradicts"),
        (("conv", 0.6), ("attention", 0.2), "contradicts", "supports"),
        (("attention", 0.2), ("conv", 0.6), "contradicts", "supports"),  # in either order
        (("conv", 0.4), ("attention", 0.4), "undecided", "undecided"),
        (("conv", 0.2), ("conv", 0.6), "", ""),
        (("conv", 0.2), ("", 0.6), "", ""),
    ],
)
def test_claim_c7_is_decided_by_the_difference_of_an_attention_and_a_conv_model(
    first, second, low, high
):
    results = {
        name: drops(mixing, drop=drop, seed=seed)
        for seed, (name, (mixing, drop)) in enumerate({"a": first, "b": second}.items())
    }
    rows = {row.quantity: row for row in comparison_rows(results)}
    assert rows[LOW_DROP].difference.verdict == low
    assert rows[HIGH_DROP].difference.verdict == high
    text = rows[HIGH_DROP].difference_text()
    assert text.endswith("claim C7)") if high else "C7" not in text
    untrained = rows[HIGH_DROP].without_verdicts(["b"])
    assert untrained.difference.verdict == ""


def test_claim_c7_is_undecided_where_accuracy_and_its_drop_disagree():
    results = {"a": drops("conv", drop=0.2), "b": drops("attention", drop=0.6, seed=1)}
    for rows, accuracy in zip(results.values(), (0.3, 0.8), strict=True):
        correct = np.arange(200) < 200 * accuracy
        rows[0] = replace(rows[0], high_accuracy=mean(correct.astype(float)))
    rows = {row.quantity: row for row in comparison_rows(results)}
    assert rows[HIGH_DROP].difference.verdict == "undecided"  # alone it contradicts
    assert rows[HIGH_ACCURACY].difference.verdict == "undecided"  # alone it supports
    assert rows[LOW_DROP].difference.verdict == "supports"


def test_claim_c7_says_nothing_about_a_pair_with_a_model_at_chance():
    results = {
        "a": drops("conv", drop=0.1, clean_accuracy=0.25),
        "b": drops("attention", drop=0.6),
    }
    rows = comparison_rows(results)
    assert {row.difference.verdict for row in rows if row.difference} == {""}


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


def test_a_model_with_random_weights_has_no_verdict():
    cells = {
        n: Answer("Low-pass?", "change", -1.0, claim="C6", verdict="supports") for n in "ab"
    }
    row = Row("Low-pass?", "change", "", cells, {}).without_verdicts(["b"])
    assert {name: answer.verdict for name, answer in row.cells.items()} == {
        "a": "supports", "b": "",
    }  # fmt: skip


IMAGES = torch.rand(32, 3, 32, 32, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def by_hand(vit, images):
    x = vit._pos_embed(vit.patch_embed(images))
    distances, changes = [], {"attention": [], "mlp": []}
    for block in vit.blocks:
        distances.append(distance(block.attn, block.norm1(x)))
        mixed = x + block.attn(block.norm1(x))
        changes["attention"].append((x, mixed))
        x = mixed + block.mlp(block.norm2(mixed))
        changes["mlp"].append((mixed, x))
    values = {"mean attention distance, mean over heads": np.mean(distances, axis=0)}
    for kind, pairs in changes.items():
        steps = [numbers(after) - numbers(earlier) for earlier, after in pairs]
        names = (
            "high-frequency log amplitude relative to the mean",
            "high-frequency log amplitude relative to the lowest frequency",
            "variance",
            "variance over mean square",
        )
        for name, value in zip(names, np.mean(steps, axis=0), strict=True):
            values[f"{name}, mean change across {kind} blocks"] = value
    return values


def numbers(tokens):
    """Both high-frequency amplitudes and both log variances of each image."""
    maps = tokens[:, 1:].double().mT.unflatten(2, (SIDE, SIDE)).numpy()
    level = np.log(np.abs(np.fft.fft2(maps)) + 1e-6).mean(1)
    variance, square = maps.var(axis=(2, 3)).mean(1), (maps**2).mean((1, 2, 3))
    highest = level[:, 2, 2]
    return np.stack(
        [
            highest - level[:, 0, 0],
            highest - level[:, 1, 1],
            np.log(variance),
            np.log(variance / square),
        ]
    )


def distance(attention, x):
    """Mean distance of patches in pixels, by weight, of each image."""
    q, k, _ = attention.qkv(x).unflatten(2, (3, attention.num_heads, -1)).unbind(2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    weights = scores.softmax(-1)[:, :, 1:, 1:].double().numpy()
    places = 8.0 * np.array(list(np.ndindex(SIDE, SIDE)))
    away = np.linalg.norm(places[:, None] - places[None], axis=-1)
    return ((weights * away).sum(-1) / weights.sum(-1)).mean((1, 2))


def hall_interval(d):
    """Ends at which Hall's cubic of the studentized mean has quantiles of Student's t."""
    n, s = len(d), d.std(ddof=1)
    b = ((d - d.mean()) ** 3).mean() / s**3 / np.sqrt(n)

    def root(t):
        return optimize.brentq(lambda u: u + b * u**2 / 3 + b**2 * u**3 / 27 + b / 6 - t, -9, 9)

    excess = (((d - d.mean()) / s) ** 4).mean() - 3 - n * b**2 / 2
    t = stats.t.ppf(0.975, 2 / (max(excess, 0) / n + 2 / (n - 1)))
    return [d.mean() - root(q) * s / np.sqrt(n) for q in (t, -t)]


def test_it_has_the_paired_difference_of_every_answer_over_images():
    models = {"a": network(0), "b": network(1)}
    study = examine(models, IMAGES.split(8), analyses=["fourier", "variance", "attention"])
    rows = {row.quantity: row for row in study.table()}
    first, second = (by_hand(model, IMAGES) for model in models.values())
    assert set(first) < set(rows)
    for quantity, values in first.items():
        d = second[quantity] - values
        expected = np.array([d.mean(), *hall_interval(d)])
        in_logs = quantity.startswith("variance")
        expected = np.exp(expected) if in_logs else expected
        row = rows[quantity]
        difference = row.difference
        interval = [difference.value, difference.low, difference.high]
        np.testing.assert_allclose(interval, expected, rtol=1e-3, atol=1e-5, err_msg=quantity)
        assert difference.form == ("ratio" if in_logs else "difference")
        # The difference stands in the unit of the answers beside it.
        a, b = (row.cells[name].value for name in "ab")
        beside = (1 + b) / (1 + a) if in_logs else b - a
        assert difference.value == pytest.approx(beside, rel=1e-6, abs=1e-9)
    assert all(row.difference is not None for row in rows.values())


def test_a_kind_of_block_that_one_model_lacks_has_no_difference(net):
    models = {"a": network(0), "b": net()}
    study = examine(models, [IMAGES[:8]], analyses=["variance"])
    rows = [row for row in study.table() if "attention blocks" in row.quantity]
    assert rows
    assert all(row.difference is None for row in rows)


def consistency(first, second):
    """Kappa of two models with these correct predictions, as a study compares them."""
    n = len(first)
    pair = (
        Outcomes(
            target=np.zeros(n, int), predicted=1 - np.array(correct),
            correct=np.array(correct, bool), top5=np.ones(n, bool),
            confidence=np.full(n, 0.9, np.float32), nll=np.zeros(n), brier=np.zeros(n),
            classes=2,
        )
        for correct in (first, second)
    )  # fmt: skip
    return error_consistency(*pair, names=("cnn", "vit"))


def test_a_number_of_two_models_has_a_row_after_those_of_the_models():
    result = consistency([1, 1, 1, 0, 0] * 10, [1, 1, 0, 0, 1] * 10)
    only, row = comparison_rows({"cnn": [], "vit": []}, {("cnn", "vit"): [result]})
    assert only.difference.value == 20 / 50
    assert only.difference.reading == "10 by cnn only, 10 by vit only"
    assert not row.cells
    assert row.difference.value == result.kappa == pytest.approx(1 / 6)
    question, text = row.lines(["cnn", "vit"])
    assert question.endswith("(error consistency (Cohen's kappa))")
    assert text == f"  {result.answers()[1]} of both models (not significant)"
    others = {pair: [result] for pair in (("a", "b"), ("a", "c"), ("b", "c"))}
    _, of_three = comparison_rows({name: [] for name in "abc"}, others)
    assert of_three.difference_text().startswith("a and b: 0.167 [")
