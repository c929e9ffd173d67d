"""Laws of circles around the weights (src/visprism/loss/)."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import Run, landscape, random_planes, rings


def squares(logits, targets):
    """Half the squared error of each example: a loss whose landscape is a parabola."""
    return ((logits - targets) ** 2).sum(1) / 2


@pytest.fixture
def linear():
    """Least squares on a linear model."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    images = torch.randn(7, 3, 2, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    return model, [(images, targets)]


@pytest.fixture
def normalized(convolutional, images, classes):
    """A network with BatchNorm, and its data."""
    return convolutional, [(images, classes)]


# What they measure: closed forms.


@pytest.mark.parametrize("angles", [4, 8, 14])
def test_on_a_quadratic_the_increase_is_exact_at_every_distance(linear, angles):
    """r^2/4 (d1' H d1 + d2' H d2), with H of least squares the second moment of the inputs."""
    model, batches = linear
    radii = (0.03, 0.1, 0.5, 1.0, 3.0)
    result, _ = rings(model, batches, radii=radii, angles=angles, pairs=3, loss=squares)
    x = batches[0][0].flatten(1)
    planes = random_planes(model, pairs=3)
    for pair, plane in enumerate(planes):
        curvature = sum(
            float(((x @ d["1.weight"].T) ** 2).sum()) / len(x)
            for d in (plane.first, plane.second)
        )
        for radius in radii:
            mean = result.pair_means("frozen", radius)[pair]
            assert mean == pytest.approx(radius**2 / 4 * curvature, rel=1e-9)


def test_every_point_is_at_its_distance(linear):
    """Against a surface that has the same point on its grid."""
    model, batches = linear
    result, _ = rings(model, batches, radii=(0.5,), angles=4, pairs=1, loss=squares)
    surface = landscape(model, batches, random_planes(model, points=5), loss=squares)
    for angle, rise in zip(result.angle, result.rise, strict=True):
        a, b = 0.5 * np.cos(angle), 0.5 * np.sin(angle)
        at = np.hypot(surface.a - a, surface.b - b).argmin()
        assert rise == pytest.approx(surface.rise[at], rel=1e-12)


# Treatments of BatchNorm.


def test_a_model_with_batch_norm_has_both_treatments(normalized):
    model, batches = normalized
    result, _ = rings(model, batches, angles=4)
    assert set(result.batch_norm) == {"frozen", "reestimated"}
    assert len(result) == 2 * 3 * 3 * 4
    for treatment in ("frozen", "reestimated"):
        surface = landscape(
            model, batches, random_planes(model, points=5, pairs=3), batch_norm=treatment
        )
        rows = result.select(
            (result.batch_norm == treatment) & (result.radius == 0.5) & (result.pair == 1)
        )
        for angle, rise in zip(rows.angle, rows.rise, strict=True):
            place = surface.a - 0.5 * np.cos(angle), surface.b - 0.5 * np.sin(angle)
            far = np.where(surface.pair == 1, np.hypot(*place), np.inf)
            assert rise == pytest.approx(surface.rise[far.argmin()], rel=1e-9)
    text = str([str(finding) for finding in result.findings()])
    assert "frozen BatchNorm statistics" in text
    assert "re-estimated BatchNorm statistics" in text


def test_a_model_without_batch_norm_has_one_and_answers_for_both(linear):
    model, batches = linear
    result, per_image = rings(model, batches, angles=4, loss=squares)
    assert set(result.batch_norm) == {"frozen"}
    frozen, estimated = result.answers()
    assert frozen.value == estimated.value
    assert frozen.quantity.startswith("NLL increase at distance 0.5 (BatchNorm frozen)")
    label = "NLL increase at distance 1 (BatchNorm re-estimated)"
    assert f"{label}, in the same 3 direction pairs" in per_image.quantities
    assert frozen.quantity in result.per_direction_pair().quantities
    assert "BatchNorm" not in str(result.findings()[0])


# Images.


def test_the_values_of_single_images_average_to_the_increase(normalized):
    model, batches = normalized
    result, per_image = rings(model, batches, angles=4)
    for ring in result.summary():
        name = f"NLL increase at distance {ring.radius:g} (BatchNorm "
        name += "frozen)" if ring.batch_norm == "frozen" else "re-estimated)"
        images, values = per_image.values_of(f"{name}, in the same 3 direction pairs")
        assert values.mean() == pytest.approx(ring.rise, rel=1e-9)
        assert len(images) == 10


# What leaves them unchanged.


def test_the_batch_size_does_not_matter(normalized):
    model, batches = normalized
    one, other = (
        rings(model, cut, angles=4)[0]
        for cut in (batches, list(zip(*(part.split(3) for part in batches[0]), strict=True)))
    )
    np.testing.assert_allclose(one.rise, other.rise, rtol=1e-9)


def test_the_model_is_restored(normalized):
    model, batches = normalized
    before = {n: (t.data_ptr(), t.clone()) for n, t in model.state_dict().items()}
    rings(model, batches, angles=4)
    for n, t in model.state_dict().items():
        assert (t.data_ptr(), True) == (before[n][0], torch.equal(t, before[n][1]))


def test_a_seed_gives_the_same_directions(linear):
    model, batches = linear
    one, same, other = (
        rings(model, batches, angles=4, loss=squares, run=Run(seed=seed))[0].rise
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


# Contracts and errors.
