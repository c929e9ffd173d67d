"""Laws of planes (src/visprism/loss/)."""

import pytest
import torch
from torch import nn

from visprism import InputError, plane_along, principal_plane, random_planes


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


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda m: plane_along(m, *[{"weight": c * torch.ones(2, 3)} for c in (1, -2)]),
            "directions must span a plane",
        ),
        (
            lambda m: plane_along(m, {"head": torch.ones(2)}, other(m, 1)),
            "must have entries for .*got head",
        ),
        (
            lambda m: principal_plane(m, [other(m, 1), nn.Linear(3, 4).state_dict()]),
            "1 must have the shapes",
        ),
        (
            lambda m: principal_plane(m, [other(m, 1), {"weight": torch.zeros(2, 3)}]),
            r"1 .*missing \(bias\)",
        ),
        (lambda m: principal_plane(m, [other(m, 1)]), "2 for a plane, got 1.* mode-connectiv"),
        (lambda m: random_planes(m, points=4), "points must be odd, .*at least 3 .*, got 4"),
        (lambda m: random_planes(m, reach=0.0), r"reach must be positive, got 0\.0"),
        (lambda m: random_planes(m, pairs=0), "pairs must be at least 1, got 0"),
    ],
)
def test_refuses_what_spans_no_plane(model, make, match):
    with pytest.raises(InputError, match=match):
        make(model)
