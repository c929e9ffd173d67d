"""Laws of out-of-distribution scores."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.distance import mahalanobis
from small_models import StemAndHead

import visprism as vp
from visprism.analyses.predictions.out_of_distribution import (
    ENERGY,
    MAHALANOBIS,
    MAX_LOGIT,
    MSP,
    NEIGHBOR,
    auroc,
    false_positives,
    scores,
)
from visprism.images.images import ordered
from visprism.passes.pooled import PooledFeatures, halves


@pytest.fixture(scope="module")
def anatomy():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return vp.dissect(StemAndHead().eval(), torch.zeros(2, 3, 8, 8))


def features(anatomy, shift=0.0, number=40, seed=0):
    generator = np.random.default_rng(seed)
    targets = np.arange(number) % 3
    x = 3 * np.eye(3, 5)[targets] + generator.normal(size=(number, 5)) + shift
    logits = generator.normal(size=(number, 3)) + 4 * np.eye(3)[targets] / (1 + abs(shift))
    return PooledFeatures(
        {anatomy[0]: x.astype(np.float32)},
        targets,
        logits.astype(np.float32),
    )


def by_score(fitted, test, other, neighbors=4):
    """AUROC of each score, and its values."""
    rows = list(scores(fitted, test, other, neighbors, with_logits=True))
    return {name: auroc(*v)[0] for name, _, v in rows}, {name: v for name, _, v in rows}


def test_area_and_error_are_those_of_all_pairs():
    generator = np.random.default_rng(0)
    inside, outside = generator.integers(0, 9, 30) + 1.0, generator.integers(0, 9, 25) + 0.0
    wins = np.array([[(a > b) + (a == b) / 2 for b in outside] for a in inside])
    area, error = auroc(inside, outside)
    assert area == pytest.approx(wins.mean())
    rows, columns = wins.mean(1), wins.mean(0)  # DeLong et al. (1988), eq. 5 and 6
    assert error**2 == pytest.approx(rows.var(ddof=1) / 30 + columns.var(ddof=1) / 25)


def test_scores_of_logits_are_those_of_the_papers(anatomy):
    test, other = features(anatomy), features(anatomy, shift=2.0, seed=1)
    areas, _ = by_score(features(anatomy, seed=2), test, other, 5)
    for name, score in (
        (MSP, lambda z: torch.from_numpy(z).softmax(1).amax(1).numpy()),
        (ENERGY, lambda z: np.log(np.exp(z.astype(float)).sum(1))),
        (MAX_LOGIT, lambda z: z.max(1)),
    ):
        expected, _ = auroc(*(score(p.logits).astype(float) for p in (test, other)))
        assert areas[name] == pytest.approx(expected), name
    assert 0.5 < areas[MSP] < 1


def test_confidences_that_round_to_one_keep_their_order(anatomy):
    test, other = features(anatomy), features(anatomy, seed=1)
    saturated = [
        PooledFeatures(p.features, p.targets, np.array([[0, -z, -z]] * 40, np.float32))
        for p, z in ((test, 90.0), (other, 60.0))
    ]
    areas, _ = by_score(test, *saturated, 5)
    assert areas[MSP] == 1


def test_distances_are_those_of_single_images(anatomy):
    fitted, test = features(anatomy, seed=2), features(anatomy)
    other = features(anatomy, shift=0.7, seed=1, number=31)
    areas, values_by_score = by_score(fitted, test, other)
    x, targets = fitted.features[anatomy[0]].astype(float), fitted.targets
    means = [x[targets == c].mean(0) for c in range(3)]
    rest = np.stack([v - means[c] for v, c in zip(x, targets, strict=True)])
    covariance = np.cov(rest.T, bias=True)
    inverse = np.linalg.inv(covariance + 1e-3 * np.trace(covariance) / 5 * np.eye(5))

    def nearest(v):
        units = [w / np.linalg.norm(w) for w in x]
        return -sorted(np.linalg.norm(v / np.linalg.norm(v) - w) for w in units)[3]

    def to_mean(v):
        return -min(mahalanobis(v, mean, inverse) ** 2 for mean in means)

    for name, score in ((NEIGHBOR, nearest), (MAHALANOBIS, to_mean)):
        values = [np.array([score(v.astype(float)) for v in p.features[anatomy[0]]])
                  for p in (test, other)]  # fmt: skip
        assert areas[name] == pytest.approx(auroc(*values)[0]), name
        threshold = np.sort(values[0])[2]  # 38 of 40 images reach it
        assert false_positives(*values_by_score[name]) == (values[1] >= threshold).mean()


def test_without_labels_there_is_no_mahalanobis_distance(anatomy, tmp_path):
    generator = np.random.default_rng(0)
    for i in range(6):
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    images = ordered(vp.load_data(f"folder:{tmp_path}"))
    analysis = vp.OutOfDistribution(ood_data="shapes?size=8", neighbors=3)
    assert analysis(anatomy, images).score.tolist() == [NEIGHBOR]


def test_halves_share_no_image(anatomy):
    pooled = features(anatomy, number=7)
    even, odd = halves(pooled)
    assert (len(even), len(odd)) == (4, 3)
    rows = np.concatenate([even.features[anatomy[0]], odd.features[anatomy[0]]])
    assert len(np.unique(rows, axis=0)) == 7
    assert odd.targets.tolist() == pooled.targets[1::2].tolist()


def test_images_far_from_the_data_are_detected(anatomy):
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(60) % 3
    images = 9 + torch.randn(60, 3, 8, 8, generator=generator)
    analysis = vp.OutOfDistribution(ood_data="shapes?size=8", neighbors=3)
    way = vp.Preprocessing((8, 8), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    result = analysis(anatomy, [(images, targets)], preprocessing=way)
    areas = dict(zip(result.score.tolist(), result.auroc.tolist(), strict=True))
    assert areas[MAHALANOBIS] == 1
    assert set(areas) == {MSP, ENERGY, MAX_LOGIT, NEIGHBOR, MAHALANOBIS}
    (answer,) = result.answers()
    assert (answer.value, answer.subject) == (areas[MSP], "shapes?size=8")
    assert 0 <= answer.low < answer.high <= 1
