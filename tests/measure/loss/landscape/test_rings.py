"""Laws of circles around the weights (src/visprism/measure/loss/landscape/rings.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, Provenance, Run, landscape, random_planes, rings
from visprism.results.landscape import Rings


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


def rings_of(values, **fields):
    """Hand-made circles: an array of (pairs, angles) for each treatment at distance 0.5."""
    parts = [np.asarray(v, dtype=float) for v in values.values()]
    pairs, angles = parts[0].shape
    n = pairs * angles
    rise = np.concatenate([part.ravel() for part in parts])
    return Rings(
        batch_norm=np.repeat(list(values), n),
        radius=np.full(len(rise), 0.5),
        pair=np.tile(np.repeat(np.arange(pairs), angles), len(values)),
        angle=np.tile(np.arange(angles) * 2 * np.pi / angles, pairs * len(values)),
        nll=rise + 1,
        rise=rise,
        rise_error=np.full(len(rise), 0.01),
        accuracy=np.full(len(rise), 0.5),
        **{"has_batch_norm": len(values) > 1} | fields,
    )


def test_the_spread_is_that_of_the_pairs():
    (ring,) = rings_of({"frozen": [[1, 3], [4, 4], [8, 10]]}).summary()
    assert (ring.rise, ring.pairs) == (5, 3)
    assert ring.spread == pytest.approx(np.std([2, 4, 9], ddof=1))


def test_two_pairs_give_no_interval():
    (ring,) = rings_of({"frozen": [[1, 3], [4, 4]]}).summary()
    assert np.isnan(ring.low)
    assert np.isfinite(ring.spread)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [3, 5])
def test_the_interval_over_pairs_covers_the_mean_over_all_directions(pairs):
    """Random quadratics, of which the mean over directions is r^2 tr(H) / 2."""
    rng, inside, simulations = np.random.default_rng(0), 0, 1000
    eigenvalues = rng.exponential(size=200)
    for _ in range(simulations):
        d = rng.normal(size=(pairs, 2, 200))
        curvature = (d**2 * eigenvalues).sum((1, 2))
        result = rings_of({"frozen": np.repeat(0.5**2 / 4 * curvature[:, None], 4, axis=1)})
        (ring,) = result.summary()
        inside += ring.low <= 0.5**2 / 2 * eigenvalues.sum() <= ring.high
    assert 0.92 <= inside / simulations <= 0.97


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


@pytest.mark.parametrize(
    ("factor", "codes"), [(10.0, ["VP105"]), (1.6, ["VP105"]), (1.5, []), (1.2, []), (1.0, [])]
)
def test_treatments_that_disagree_are_a_finding(factor, codes):
    frozen = np.array([[1.0, 3], [4, 4], [8, 10]])
    result = rings_of({"frozen": factor * frozen, "reestimated": frozen})
    assert [f.code for f in result.findings() if f.code] == codes


@pytest.mark.parametrize("scale", [0.0, 1e-4, np.inf])
def test_increases_of_zero_or_without_a_finite_value_do_not_disagree(scale):
    rises = np.array([[1.0, 3], [4, 4], [8, 10]])
    result = rings_of({"frozen": scale * rises, "reestimated": 0 * rises})
    assert [f.code for f in result.findings() if f.code] == []


def test_the_largest_disagreement_is_reported_with_what_it_is_over():
    rises = {
        "frozen": {0.1: 2.0, 0.5: 9.0, 1.0: 3.0},
        "reestimated": dict.fromkeys([0.1, 0.5, 1.0], 1.0),
    }
    result = rings_of({name: np.ones((3, 2)) for name in rises})
    parts = [
        replace(part, radius=np.full(len(part), radius), rise=np.full(len(part), rise))
        for name, by_radius in rises.items()
        for radius, rise in by_radius.items()
        for part in (result.select(result.batch_norm == name),)
    ]
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name, values in vars(result).items()
        if isinstance(values, np.ndarray)
    }
    result = replace(result, **columns, provenance=Provenance(images=64, split="test"))
    (finding,) = (f for f in result.findings() if f.code)
    assert (
        "at 3 of 3 distances, by ratio most at 0.5: 9 [9, 9] with frozen, 1 [1, 1]"
        in finding.text
    )
    assert "over 3 direction pairs and 64 test images" in finding.text


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


def test_the_batch_size_does_not_matter_with_frozen_statistics(normalized):
    model, batches = normalized
    one, other = (
        rings(model, batches, angles=4, treatments=("frozen",), batch_size=size)[0]
        for size in (10, 3)
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


def test_findings_name_the_split_and_points_that_are_not_finite():
    result = rings_of({"frozen": [[1, np.inf], [4, 4], [8, 10]]}).with_provenance(split="train")
    texts = [str(finding) for finding in result.findings()]
    assert texts[0].startswith("NLL of training images rises by inf at distance 0.5")
    assert texts[1] == "the NLL is not finite at 1 of 6 points"
    assert str(replace(result, rise=np.ones(6)).findings()[0]).startswith("NLL of training")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"radii": (0.1, -1.0)}, "radii must be positive, got"),
        ({"radii": ()}, "radii must be positive, got"),
        ({"angles": 5}, "angles must be even and at least 4, got 5"),
        ({"pairs": 0}, "pairs must be at least 1, got 0"),
        ({"treatments": ("batch",)}, "batch_norm must be 'frozen' or 'reestimated' for"),
    ],
)
def test_invalid_options_are_refused(linear, options, said):
    model, batches = linear
    with pytest.raises(InputError, match=said):
        rings(model, batches, loss=squares, **options)
