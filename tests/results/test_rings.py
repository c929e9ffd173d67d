"""Laws of results on circles around the weights (results/landscape.py)."""

from dataclasses import replace

import numpy as np
import pytest

from visprism import Provenance
from visprism.results.landscape import Rings


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


def test_findings_name_the_split_and_points_that_are_not_finite():
    result = rings_of({"frozen": [[1, np.inf], [4, 4], [8, 10]]}).with_provenance(split="train")
    texts = [str(finding) for finding in result.findings()]
    assert texts[0].startswith("NLL of training images rises by inf at distance 0.5")
    assert texts[1] == "the NLL is not finite at 1 of 6 points"
    assert str(replace(result, rise=np.ones(6)).findings()[0]).startswith("NLL of training")
