"""Laws of the intrinsic dimension and of feature files."""

import json

import numpy as np
import pytest
import torch
from rounding import assert_equal_up_to_rounding
from small_models import StemAndHead

import visprism as vp
from visprism.analyses.features.intrinsic_dimension import twonn_dimension
from visprism.passes.pooled import pooled_features


def torus(number, dimension, width=12, seed=0):
    """Uniform points on a flat torus of this dimension in 2 x dimension coordinates."""
    generator = np.random.default_rng(seed)
    angles = 2 * np.pi * generator.random((number, dimension))
    points = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    rotation = np.linalg.qr(generator.normal(size=(width, width)))[0]
    return points @ rotation[: points.shape[1]]


@pytest.mark.parametrize("dimension", [1, 4])
def test_the_dimension_is_that_of_the_manifold_and_not_of_the_space(dimension):
    estimate, low, high = twonn_dimension(torus(2000, dimension))
    assert low < estimate < high
    assert estimate == pytest.approx(dimension, rel=0.08)


@pytest.mark.slow
def test_the_interval_covers_the_dimension_of_a_simulation():
    covered = 0
    for seed in range(300):
        _, low, high = twonn_dimension(torus(300, 2, seed=30000 + seed))
        covered += low <= 2 <= high
    assert 0.92 <= covered / 300 <= 0.97


def test_it_is_the_maximum_likelihood_of_a_loop_over_points():
    points = torus(60, 2)
    logs = []
    for i, point in enumerate(points):
        others = np.delete(points, i, axis=0)
        first, second = sorted(np.linalg.norm(others - point, axis=1))[:2]
        logs.append(np.log(second / first))
    assert twonn_dimension(points)[0] == pytest.approx(59 / sum(logs))
    assert np.isnan(twonn_dimension(np.eye(20))).all()  # all points are equally far apart


def test_a_study_writes_a_file_for_each_model_with_the_place_of_each_row(tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file

    with torch.random.fork_rng():
        torch.manual_seed(0)
        anatomy = vp.dissect(StemAndHead().eval(), torch.zeros(2, 3, 8, 8))
        batches = [(torch.randn(24, 3, 8, 8), torch.arange(24) % 3)]
    features = pooled_features(anatomy, batches, pooling="mean", run=vp.Run())
    analysis = vp.IntrinsicDimension(features=tmp_path / "f.safetensors")
    study = vp.examine({"net": anatomy.model}, batches, analyses=[analysis])
    result = study["net"]["intrinsic-dimension"]
    stored = load_file(tmp_path / "f.net.safetensors")
    assert set(stored) == {"stem", "targets", "positions"}
    assert np.array_equal(stored["targets"], features.targets[stored["positions"]])
    with safe_open(tmp_path / "f.net.safetensors", framework="np") as file:
        assert json.loads(file.metadata()["provenance"])["images"] == 24
    assert stored["positions"].tolist() != list(range(24))
    expected = next(iter(features.features.values()))[stored["positions"]]
    assert_equal_up_to_rounding(stored["stem"], expected)
    assert result.width.tolist() == [5]
    twice = vp.IntrinsicDimension()(anatomy, 2 * batches)
    assert twice.distinct.tolist() == result.distinct.tolist() == [24]
    assert twice.dimension[0] == pytest.approx(result.dimension[0])
    with pytest.raises(vp.InputError, match="it needs at least 20 images, got 8"):
        analysis(anatomy, [(batches[0][0][:8], batches[0][1][:8])])
