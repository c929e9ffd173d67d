"""Laws of class separability: NC1 to NC4."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.linalg import pinv
from small_models import Given

import visprism as vp
from visprism.kit.inputs import subject_of


@cache
def anatomy_of(width, classes):
    return vp.dissect(Given(width, classes).eval(), torch.zeros(2, width, 2, 2))


def measured(x, targets, weights=None):
    """The result of given features of one block."""
    x = torch.from_numpy(np.asarray(x, np.float32))
    anatomy = anatomy_of(x.shape[1], int(max(targets)) + 1)
    if weights is not None:
        anatomy.model.head.weight.data = torch.from_numpy(np.float32(weights))
    images = x[:, :, None, None].expand(-1, -1, 2, 2)
    subject = subject_of(anatomy, [(images, torch.as_tensor(np.asarray(targets)))])
    return vp.ClassSeparability().measure(subject, vp.Run())[0]


def simplex(k):
    """k points at equal distances from their mean 0 and from each other."""
    return np.eye(k) - 1 / k


def clusters(n=60, k=4, width=7, seed=0, apart=2):
    generator = np.random.default_rng(seed)
    targets = np.arange(n) % k
    centers = apart * np.random.default_rng(1000).normal(size=(k, width))
    x = centers[targets] + generator.normal(size=(n, width)) + 3
    return x.astype(np.float32), targets


def test_one_image_of_each_class_has_no_neural_collapse():
    with pytest.raises(vp.InputError, match="must have several images, got 6 of one each"):
        measured(np.random.default_rng(0).normal(size=(6, 20)), np.arange(6))


def test_classes_that_do_not_differ_have_no_nc1_but_its_level():
    n = 100
    result = measured(*clusters(n=n, apart=0))
    assert np.isnan(result.nc1).all()
    others = [measured(*clusters(n=n, apart=0, seed=seed)).nc1 for seed in range(20)]
    assert np.isfinite(others).sum() <= 4  # 5% by chance
    # W is 1 along each of the k - 1 axes, B is 1 / images of a class.
    assert result.nc1_shuffled.item() == pytest.approx(3 * n / 4 / 4, rel=0.6)


def test_in_the_collapse_everything_is_zero():
    targets = np.arange(100) % 5
    result = measured(3 * simplex(5)[targets] + 2, targets, simplex(5))
    for name in ("nc1", "equinorm", "equiangularity", "maximal_angle", "disagreement"):
        assert getattr(result, name).item() == pytest.approx(0, abs=1e-6), name
    assert result.self_duality == pytest.approx(0, abs=1e-6)
    assert result.accuracy.item() == 1


def test_agrees_with_the_paper_term_by_term():
    x, targets = clusters()
    w = np.random.default_rng(2).normal(size=(4, 7)).astype(np.float32)
    result = measured(x, targets, w)
    x, w = x.astype(float), w.astype(float)
    logits = x @ w.T
    means = np.stack([x[targets == c].mean(0) for c in range(4)])
    centered = means - x.mean(0)
    rest = x - means[targets]
    within = sum(np.outer(v, v) for v in rest) / 60
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
    difference = w / np.linalg.norm(w) - centered / np.linalg.norm(centered)
    assert result.self_duality == pytest.approx(np.linalg.norm(difference) ** 2)


@pytest.mark.slow
def test_intervals_are_as_wide_as_repeated_samples_are_apart():
    repeated = [measured(*clusters(n=1000, seed=seed), np.eye(4, 7)) for seed in range(20)]
    for name, transform in (("nc1", np.log), ("equinorm", float), ("self_duality", float)):
        numbers = [getattr(result, name) for result in repeated]
        numbers = [n if isinstance(n, float) else n[0] for n in numbers]
        spread = np.std([transform(n) for n in numbers], ddof=1)
        half = [(transform(n.high) - transform(n.low)) / 2 for n in numbers]
        # 2.09: Student's quantile for 20 groups
        assert np.mean(half) / 2.09 == pytest.approx(spread, rel=0.4), name


def test_intervals_are_given_where_they_hold():
    for n, width, given in ((96, 7, False), (1000, 7, True)):
        collapse = measured(*clusters(n=n, width=width))
        assert np.isfinite(collapse.nc1.low[0]) == given
    assert collapse.answers()[0].low == collapse.nc1.low[0] > 0
