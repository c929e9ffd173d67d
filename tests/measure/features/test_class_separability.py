"""Laws of class separability (src/visprism/measure/features/class_separability.py)."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.linalg import pinv
from torch import nn

from visprism import ANALYSES, InputError, dissect
from visprism.core.run import DEFAULT_RUN
from visprism.measure.features.class_separability import class_separability
from visprism.analyses.features.class_separability import classifier_of
from visprism.measure.features.separability_errors import error_of_class_means
from visprism.passes.pooled import PooledFeatures


class Net(nn.Module):
    """One block on a grid, and a linear head on its mean."""

    def __init__(self, width=3, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))


@cache
def anatomy_of_net():
    return dissect(Net().eval(), torch.zeros(2, 3, 4, 4))


def measured(x, targets, *, logits=None, inputs=None, classifier=None):
    """Both results of given features of one block."""
    anatomy = anatomy_of_net()
    pooled = PooledFeatures(
        {anatomy[0]: np.asarray(x, np.float32)}, np.asarray(targets), logits, 2, inputs
    )
    return class_separability(
        anatomy,
        pooled,
        pooling="mean",
        classifier=classifier,
        predicts_targets=logits is not None,
        run=DEFAULT_RUN,
    )


def simplex(k):
    """k points at equal distances from their mean 0 and from each other."""
    return np.eye(k) - 1 / k


def clusters(n=60, k=4, width=7, seed=0):
    generator = np.random.default_rng(seed)
    targets = np.arange(n) % k
    x = 2 * generator.normal(size=(k, width))[targets] + generator.normal(size=(n, width)) + 3
    return x.astype(np.float32), targets


# What cannot be known.


def test_one_image_of_each_class_has_no_variation_within_it():
    generator = np.random.default_rng(0)
    result, _ = measured(generator.normal(size=(6, 20)), np.arange(6))
    assert np.isnan(result.nc1).all()
    assert not any("nan" in finding.text for finding in result.findings())


def test_two_classes_have_no_angles_to_compare():
    generator = np.random.default_rng(0)
    result, _ = measured(generator.normal(size=(40, 20)), np.arange(40) % 2)
    assert np.isnan(result.equinorm).all()
    assert np.isnan(result.maximal_angle).all()
    assert "two classes have no NC2" in result.findings()[-1].text


# Closed forms.


def test_in_the_collapse_everything_is_zero():
    targets = np.arange(20) % 5
    head = nn.Linear(5, 5)
    head.weight.data = torch.from_numpy(simplex(5)).float()
    x = (3 * simplex(5)[targets]).astype(np.float32)
    result, _ = measured(x + 2, targets, logits=x, inputs=x + 2, classifier=head)
    for name in ("nc1", "equinorm", "equiangularity", "maximal_angle", "disagreement"):
        assert getattr(result, name).item() == pytest.approx(0, abs=1e-6), name
    assert result.self_duality == pytest.approx(0, abs=1e-6)
    assert result.accuracy.item() == 1


def test_nc1_of_two_classes_is_half_the_ratio_of_their_variances():
    x = np.array([[0.0, 0], [2, 0], [10, 1], [12, -1]])  # within 1 along the means, 5 apart
    result, _ = measured(x, [0, 0, 1, 1])
    assert result.nc1.item() == pytest.approx(1 / 25 / 2)


def test_the_head_against_its_class_means_is_farthest_apart():
    head = nn.Linear(3, 3)
    head.weight.data = -torch.from_numpy(simplex(3)).float()
    x = simplex(3).astype(np.float32)
    result, _ = measured(x, np.arange(3), inputs=x, classifier=head)
    assert result.self_duality == pytest.approx(4)


@pytest.mark.parametrize("rank", [2, 5])
def test_equal_singular_values_have_their_number_as_rankme(rank):
    x = 4 * np.linalg.qr(np.random.default_rng(0).normal(size=(30, 8)))[0][:, :rank]
    _, ranks = measured(np.pad(x, ((0, 0), (0, 8 - rank))), np.arange(30) % 2)
    assert ranks.rankme.item() == pytest.approx(rank, rel=1e-4)
    assert ranks.dimension.item() == 8


def test_a_mean_lowers_rankme_only_where_it_is_not_subtracted():
    x, targets = clusters()
    first, second = (measured(x + shift, targets)[1] for shift in (0, 1000))
    assert second.rankme.item() < 1.2 < first.rankme.item()
    assert second.rankme_centered.item() == pytest.approx(
        first.rankme_centered.item(), rel=1e-3
    )


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_a_power_law_of_the_spectrum_has_its_exponent(alpha):
    generator = np.random.default_rng(0)
    axes = generator.normal(size=(200, 60))
    axes = np.linalg.qr(axes - axes.mean(0))[0]
    x = axes * np.arange(1, 61.0) ** (-alpha / 2)
    _, ranks = measured(
        x @ np.linalg.qr(generator.normal(size=(60, 60)))[0], np.arange(200) % 2
    )
    assert ranks.alpha.item() == pytest.approx(alpha, abs=1e-3)


# Invariances.


def test_shift_scale_and_rotation_change_no_number_of_the_collapse():
    x, targets = clusters()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 7)))[0]
    first, second = (measured(f, targets)[0] for f in (x, 5 * x @ turn - 2))
    for name in ("nc1", "equinorm", "equiangularity", "maximal_angle", "accuracy"):
        expected = getattr(first, name).item()
        assert getattr(second, name).item() == pytest.approx(expected, rel=1e-3), name


# Against another implementation.


def test_agrees_with_the_paper_term_by_term():
    x, targets = clusters()
    logits = np.random.default_rng(2).normal(size=(60, 4)).astype(np.float32)
    head = nn.Linear(7, 4)
    result, ranks = measured(x, targets, logits=logits, inputs=x, classifier=head)
    x = x.astype(float)
    means = np.stack([x[targets == c].mean(0) for c in range(4)])
    centered = means - x.mean(0)
    within = sum(np.outer(v - means[c], v - means[c]) for v, c in zip(x, targets)) / 60  # noqa: B905
    between = sum(np.outer(m, m) for m in centered) / 4
    assert result.nc1.item() == pytest.approx(np.trace(within @ pinv(between, rtol=1e-8)) / 4)
    norms = np.linalg.norm(centered, axis=1)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    cosines = np.array([centered[i] @ centered[j] / norms[i] / norms[j] for i, j in pairs])
    assert result.equinorm.item() == pytest.approx(norms.std() / norms.mean())
    assert result.equiangularity.item() == pytest.approx(cosines.std())
    assert result.maximal_angle.item() == pytest.approx(abs(cosines + 1 / 3).mean())
    nearest = [min(range(4), key=lambda c: np.linalg.norm(v - means[c])) for v in x]
    assert result.disagreement.item() == np.mean(np.array(nearest) != logits.argmax(1))
    assert result.accuracy.item() == np.mean(np.array(nearest) == targets)
    w = head.weight.detach().double().numpy()
    difference = w / np.linalg.norm(w) - centered / np.linalg.norm(centered)
    assert result.self_duality == pytest.approx(np.linalg.norm(difference) ** 2)
    for name, rows in (("rankme", x), ("rankme_centered", x - x.mean(0))):
        p = np.linalg.svd(rows, compute_uv=False)
        p = p / p.sum() + 1e-7
        assert getattr(ranks, name).item() == pytest.approx(np.exp(-(p * np.log(p)).sum()))


# Standard errors.


def test_the_error_of_the_mean_of_class_means_is_that_of_a_stratified_sample():
    x, index = clusters(n=50)
    x = x.astype(np.float64)
    error = error_of_class_means(lambda means: means[:, 0].mean(), x, index)
    variances = [x[index == c, 0].var(ddof=1) / (index == c).sum() for c in range(4)]
    assert error == pytest.approx(np.sqrt(sum(variances)) / 4)


def test_errors_are_those_of_the_jackknife_over_images():
    n = 240
    x, targets = clusters(n=n)
    head = nn.Linear(7, 4)
    options = {"inputs": x, "classifier": head}
    collapse, ranks = measured(x, targets, **options)
    names = ("nc1", "equinorm", "equiangularity", "maximal_angle", "self_duality")
    replicates = {name: [] for name in (*names, "rankme", "rankme_centered", "alpha")}
    for i in range(n):
        others = np.delete(np.arange(n), i)
        part = {"inputs": x[others], "classifier": head}
        for result in measured(x[others], targets[others], **part):
            for name in replicates:
                if hasattr(result, name):
                    replicates[name].append(np.ravel(getattr(result, name))[0])
    for name, values in replicates.items():
        result = collapse if hasattr(collapse, name) else ranks
        error = np.ravel(getattr(result, f"{name}_error"))[0]
        assert error == pytest.approx(np.std(values) * np.sqrt(n - 1), rel=0.15), name


def test_an_exponent_has_an_error_from_100_images_and_a_rank_from_enough_for_its_features():
    for n, width, alpha, rank in (
        (60, 7, False, True),
        (100, 7, True, True),
        (100, 70, True, False),
    ):
        _, ranks = measured(*clusters(n=n, width=width))
        assert np.isfinite(ranks.alpha_error[0]) == alpha
        assert np.isfinite(ranks.rankme_error[0]) == rank


def test_the_interval_of_nc1_is_positive():
    x, targets = clusters(n=40)
    collapse, _ = measured(x / 50 + np.random.default_rng(1).normal(size=x.shape), targets)
    low, high = collapse.intervals
    assert 0 < low[0] < collapse.nc1[0] < high[0]
    assert low[0] * high[0] == pytest.approx(collapse.nc1[0] ** 2)


# The whole analysis.


def test_the_head_is_the_last_linear_layer_of_the_classes():
    model = nn.Sequential(nn.Linear(4, 10), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3))
    assert classifier_of(model, 10) is model[1]
    assert classifier_of(model, 7) is None


def test_features_of_the_last_block_are_the_heads_input():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = Net(classes=3).eval(), torch.randn(60, 3, 4, 4)
    targets = torch.arange(60) % 3
    analysis = ANALYSES["class-separability"]()
    result = analysis(model, [(images[:40], targets[:40]), (images[40:], targets[40:])])
    with torch.no_grad():
        x = model.stem(images).mean((2, 3)).numpy()
        logits = model(images).numpy()
    expected, _ = measured(x, targets.numpy(), logits=logits, inputs=x, classifier=model.head)
    assert result.nc1.item() == pytest.approx(expected.nc1.item())
    assert result.disagreement.item() == expected.disagreement.item()
    assert result.self_duality == pytest.approx(expected.self_duality)


def test_one_class_is_refused():
    with pytest.raises(InputError, match="targets must be of at least 2 classes, got 1"):
        measured(np.ones((4, 2)), np.zeros(4, int))
