"""Laws of similarities beyond CKA: mutual k-NN, Procrustes and RSA."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.spatial import procrustes as scipy_procrustes
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from small_models import Given, OneBlock

import visprism as vp
from visprism.kit.inputs import subject_of

MEASURES = ("mutual_knn", "procrustes", "rsa")
RUN = vp.Run()


@cache
def anatomy_of(width):
    return vp.dissect(Given(width).eval(), torch.zeros(2, width, 2, 2))


def of_features(x):
    x = torch.from_numpy(x)
    images = x[:, :, None, None].expand(-1, -1, 2, 2)
    return vp.Measured(subject_of(anatomy_of(x.shape[1]), [images]), ())


def compared(x, y, **options):
    """All measures of two blocks of features, and the result."""
    analysis = vp.FeatureSimilarity(**{"neighbors": 5} | options)
    (result,) = analysis.compare(of_features(x), of_features(y), RUN)
    return {name: getattr(result, name).item() for name in MEASURES}, result


def random_features(n=40, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def test_agree_with_scipy_and_with_neighbors_one_by_one():
    x = random_features().astype(np.float32)
    y = (x @ random_features(6, 6, 3) + 0.5 * random_features(seed=4)).astype(np.float32)
    values, _ = compared(x, y)
    _, _, disparity = scipy_procrustes(x.astype(float), y.astype(float))  # 1 - nuclear^2
    assert values["procrustes"] == pytest.approx(np.sqrt(1 - disparity))
    rsa = spearmanr(
        pdist(x.astype(float), "correlation"), pdist(y.astype(float), "correlation")
    )
    assert values["rsa"] == pytest.approx(rsa.statistic)

    def nearest(rows, i):
        cosine = [rows[i] @ r / np.linalg.norm(rows[i]) / np.linalg.norm(r) for r in rows]
        return set(sorted((j for j in range(40) if j != i), key=lambda j: -cosine[j])[:5])

    shared = [len(nearest(x, i) & nearest(y, i)) / 5 for i in range(40)]
    assert values["mutual_knn"] == pytest.approx(np.mean(shared))


def test_more_channels_than_images_change_nothing_but_the_memory():
    x, y = random_features(12, 30), random_features(12, 40, 1)
    values, _ = compared(x, y)
    a, b = (v.astype(float) - v.mean(0, dtype=float) for v in (x, y))
    nuclear = np.linalg.svd(a.T @ b, compute_uv=False).sum()
    expected = nuclear / np.linalg.norm(a) / np.linalg.norm(b)
    assert values["procrustes"] == pytest.approx(expected)


def test_the_error_of_rsa_is_that_of_the_jackknife_over_images():
    n = 100
    x = random_features(n)
    y = x + random_features(n, seed=1)
    _, result = compared(x, y, permutations=1)
    replicates = []
    for i in range(n):
        first, second = (np.delete(v, i, axis=0) for v in (x, y))
        pairs = (pdist(v, "correlation") for v in (first, second))
        replicates.append(spearmanr(*pairs).statistic)
    jackknife = np.std(replicates) * np.sqrt(n - 1)
    half = (result.rsa.high - result.rsa.low).item() / 2
    assert half == pytest.approx(1.984 * jackknife, rel=0.15)
    assert np.isnan(compared(x[:99], y[:99], permutations=1)[1].rsa.low).all()


def test_unrelated_features_are_at_their_null():
    x, y = random_features(200, 8), random_features(200, 8, 1)
    values, result = compared(x, y, permutations=20)
    assert result.mutual_knn_null.item() == pytest.approx(5 / 199, rel=0.15)
    assert result.rsa_null.item() == pytest.approx(0, abs=0.01)
    # Three standard deviations; that of the nuclear norm is at most 1 / sqrt(n d).
    for name, spread in {"mutual_knn": 0.01, "procrustes": 0.075, "rsa": 0.05}.items():
        null = getattr(result, f"{name}_null").item()
        assert values[name] == pytest.approx(null, abs=spread)


def test_two_models_are_compared_on_the_same_images():
    images = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    analysis = vp.FeatureSimilarity(permutations=1)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        models = {"a": OneBlock().eval(), "b": OneBlock(4).eval()}
    subjects = [subject_of(model, [images], name=name) for name, model in models.items()]
    (alone,) = analysis.measure(subjects[0], RUN)
    same = [vp.Measured(subjects[0], (alone,))] * 2
    (again,) = analysis.compare(*same, RUN)
    for name in MEASURES:
        np.testing.assert_allclose(getattr(again, name), getattr(alone, name))
    (both,) = analysis.compare(same[0], vp.Measured(subjects[1], ()), RUN)
    assert both.other_model == "b"
    assert len(both) == 4
