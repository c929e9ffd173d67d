"""Laws of planes (src/visprism/loss/)."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, plane_along, plane_through, random_planes


@pytest.fixture
def model():
    layer = nn.Linear(3, 2).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return layer


def other(model, number):
    generator = torch.Generator().manual_seed(number)
    return {
        name: p.detach() + torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for name, p in model.named_parameters()
    }


def at(model, plane, a, b):
    """The weights at a point, as one vector."""
    parts = []
    for name, p in model.named_parameters():
        part = p.detach().clone()
        for way, direction in ((a, plane.first), (b, plane.second)):
            part += way * direction.get(name, 0)
        parts.append(part.flatten())
    return torch.cat(parts)


def vector(state):
    return torch.cat([part.flatten() for part in state.values()])


# What it is: closed forms.


def test_a_random_plane_has_its_weights_in_the_middle(model):
    (plane,) = random_planes(model, points=5, reach=2.0)
    np.testing.assert_array_equal(plane.a, [-2, -1, 0, 1, 2])
    np.testing.assert_array_equal(plane.b, plane.a)
    assert plane.points()[:6] == [(-2, -2), (-1, -2), (0, -2), (1, -2), (2, -2), (-2, -1)]
    assert len(random_planes(model, points=5, lines=True)[0].points()) == 5


def test_pairs_have_directions_of_their_own(model):
    planes = random_planes(model, pairs=3)
    every = [d["weight"].flatten() for plane in planes for d in (plane.first, plane.second)]
    cosines = torch.corrcoef(torch.stack(every)).fill_diagonal_(0)
    assert cosines.abs().max() < 0.999


def test_the_plane_goes_through_the_checkpoints(model):
    one, two = other(model, 1), other(model, 2)
    plane = plane_through(model, [one, two])
    torch.testing.assert_close(at(model, plane, 1, 0), vector(one))
    # The second lies where its two coordinates say; found by least squares.
    origin = vector(dict(model.named_parameters())).detach()
    axes = torch.stack([at(model, plane, *e) - origin for e in ((1, 0), (0, 1))])
    place = torch.linalg.lstsq(axes.T, vector(two) - origin).solution
    torch.testing.assert_close(at(model, plane, *place.tolist()), vector(two))
    assert plane.a[0] < min(0, place[0]) <= max(1, place[0]) < plane.a[-1]
    assert plane.b[0] < 0 < place[1] < plane.b[-1]


def test_distances_in_the_plane_are_those_of_the_weights(model):
    one = other(model, 1)
    plane = plane_through(model, [one, other(model, 2)])
    origin = vector(dict(model.named_parameters())).detach()
    unit = (vector(one) - origin).norm()
    for a, b in ((0.3, 0.4), (-2.0, 1.0), (0.0, 1.0)):
        far = (at(model, plane, a, b) - origin).norm()
        assert float(far / unit) == pytest.approx(np.hypot(a, b))


def test_buffers_are_no_part_of_a_checkpoint():
    model = nn.BatchNorm1d(2).double()
    state = {k: v + 1 for k, v in model.state_dict().items()}
    assert set(plane_through(model, [state]).first) == {"weight", "bias"}


def test_given_directions_are_taken_as_they_are(model):
    direction = {"bias": torch.tensor([3.0, 4.0]).double()}
    plane = plane_along(model, direction, points=3, reach=0.5)
    torch.testing.assert_close(plane.first["bias"], direction["bias"])
    assert plane.points() == [(-0.5, 0.0), (0.0, 0.0), (0.5, 0.0)]


# Contracts and errors.


def test_parallel_directions_are_refused(model):
    one = {"weight": torch.ones(2, 3)}
    with pytest.raises(
        InputError,
        match="directions must span a plane, got directions that are zero or parallel",
    ):
        plane_along(model, one, {"weight": -2 * torch.ones(2, 3)})
    with pytest.raises(InputError, match="directions must span a plane"):
        plane_along(model, {"weight": torch.zeros(2, 3)})


def test_checkpoints_in_one_line_with_the_model_are_refused(model):
    one = other(model, 1)
    weights = dict(model.named_parameters())
    half = {name: (weights[name].detach() + one[name]) / 2 for name in one}
    with pytest.raises(InputError, match="checkpoints must not be collinear with the model"):
        plane_through(model, [one, half])


def test_a_checkpoint_of_other_shapes_is_refused(model):
    odd = nn.Linear(3, 4).state_dict()
    with pytest.raises(
        InputError, match=r"checkpoint 1 must have the shapes of the model.*weight"
    ):
        plane_through(model, [odd])
    with pytest.raises(
        InputError,
        match=r"must have all 2 parameters of the model, got 1 that are missing \(bias\)",
    ):
        plane_through(model, [{"weight": torch.zeros(2, 3)}])


def test_the_models_own_weights_are_no_other_checkpoint(model):
    with pytest.raises(
        InputError,
        match="checkpoints must differ from the model, got equal weights in checkpoint 1",
    ):
        plane_through(model, [model.state_dict()])


@pytest.mark.parametrize("number", [0, 3])
def test_a_plane_goes_through_one_or_two_checkpoints(model, number):
    with pytest.raises(
        InputError, match=f"checkpoints must be 2 for a plane or 1 for a line, got {number}"
    ):
        plane_through(model, [other(model, i) for i in range(number)])


def test_a_direction_of_no_parameter_is_refused(model):
    with pytest.raises(
        InputError, match="direction must have entries for parameters of the model, got head"
    ):
        plane_along(model, {"head": torch.ones(2)})


@pytest.mark.parametrize("points", [1, 4, 20])
def test_the_weights_must_be_a_point_of_the_grid(model, points):
    with pytest.raises(InputError, match=f"points must be odd, .*at least 3 .*, got {points}"):
        random_planes(model, points=points)


def test_a_reach_of_nothing_and_no_pairs_are_refused(model):
    with pytest.raises(InputError, match=r"reach must be positive, got 0\.0"):
        random_planes(model, reach=0.0)
    with pytest.raises(InputError, match="pairs must be at least 1, got 0"):
        random_planes(model, pairs=0)
