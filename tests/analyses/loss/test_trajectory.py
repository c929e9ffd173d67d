"""Laws of trajectories."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, plane_along, principal_plane, project, trajectory


class Point(nn.Module):
    """A model whose weights are one point in space, and a buffer."""

    def __init__(self, *place):
        super().__init__()
        self.head = nn.Parameter(torch.tensor(place[:2], dtype=torch.float64))
        self.rest = nn.Parameter(torch.tensor(place[2:], dtype=torch.float64))
        self.register_buffer("steps", torch.tensor(float(len(place))))


def path(*places):
    return Point(*places[-1]), [Point(*place).state_dict() for place in places]


@pytest.fixture
def walk():
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(9, 6, generator=generator, dtype=torch.float64).cumsum(0)
    return path(*steps.tolist())


def test_agrees_with_a_singular_value_decomposition(walk):
    result = trajectory(*walk)
    places = np.stack([np.append(s["head"].numpy(), s["rest"].numpy()) for s in walk[1]])
    u, s, _ = np.linalg.svd(places - places.mean(0), full_matrices=False)
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    np.testing.assert_allclose(result.step[1:], steps)
    assert result.distance == pytest.approx(np.linalg.norm(places[-1] - places[0]))
    assert max(result.first[0], result.second[0]) < 0  # the signs
    for i, (ours, share) in enumerate(
        ((result.first, result.first_share), (result.second, result.second_share))
    ):
        np.testing.assert_allclose(abs(ours), abs(u[:, i] * s[i]), atol=1e-9)
        assert share == pytest.approx(s[i] ** 2 / (s**2).sum())


def test_projections_are_those_of_least_squares(walk):
    model, snapshots = walk
    first = {"head": torch.tensor([1.0, 2.0])}
    second = {"head": torch.tensor([0.0, 1.0]), "rest": torch.tensor([1.0, 0.0, 1.0, 0.0])}
    projection = project(model, plane_along(model, first, second), snapshots)
    axes = np.array([[1, 2, 0, 0, 0, 0], [0, 1, 1, 0, 1, 0]], dtype=float)
    places = np.stack([np.append(s["head"].numpy(), s["rest"].numpy()) for s in snapshots])
    steps = places - places[-1]
    expected, *_ = np.linalg.lstsq(axes.T, steps.T, rcond=None)
    np.testing.assert_allclose([projection.a, projection.b], expected, atol=1e-9)
    within = ((axes.T @ expected) ** 2).sum(0)[:-1] / (steps**2).sum(1)[:-1]
    np.testing.assert_allclose(projection.share[:-1], within)
    assert projection.share[-1] == 1  # the model's own weights lie in every plane


def test_buffers_do_not_count(walk):
    model, snapshots = walk
    marked = [s | {"steps": torch.tensor(99.0 * i)} for i, s in enumerate(snapshots)]
    np.testing.assert_array_equal(
        trajectory(model, marked).first, trajectory(model, snapshots).first
    )


def test_the_main_plane_holds_a_path_of_two_dimensions():
    places = ((2.0, 1.0, 0.0), (1.0, 2.0, 1.0), (0.0, 0.0, 0.0))
    model, snapshots = path(*places)
    plane = principal_plane(model, snapshots)
    projection = project(model, plane, snapshots)
    np.testing.assert_allclose(projection.share, 1)
    assert np.abs(projection.a).max() == pytest.approx(1)
    assert np.abs(projection.b).max() == pytest.approx(1)
    weights = {n: p.detach() for n, p in model.named_parameters()}
    for i, place in enumerate(places):
        a, b = projection.a[i], projection.b[i]
        parts = [w + a * plane.first[n] + b * plane.second[n] for n, w in weights.items()]
        there = torch.cat(parts)
        np.testing.assert_allclose(there, place, atol=1e-9)


def test_refuses_what_is_no_path(walk):
    model, snapshots = walk
    other = [*snapshots, Point(*range(7)).state_dict()]
    for given, match in (
        (snapshots[:2], "checkpoints must be at least 3, .*, got 2"),
        ([*snapshots, snapshots[0]], "the last snapshot must differ"),
        (other, "must have .*sha"),
    ):
        with pytest.raises(InputError, match=match):
            trajectory(model, given)
