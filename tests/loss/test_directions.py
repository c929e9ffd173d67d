"""Laws of random directions, and planes that are refused (src/visprism/loss/)."""

import pytest
import torch
from torch import nn

from visprism import InputError, plane_along, principal_plane, random_planes
from visprism.loss.directions import gaussian


class Network(nn.Module):
    """A layer of each sort, and a table and a token of its own."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.grouped = nn.Conv2d(6, 4, 3, groups=2)
        self.transposed = nn.ConvTranspose2d(4, 6, 2, groups=2)
        self.norm = nn.BatchNorm2d(6)
        self.pixels = nn.LayerNorm([6, 4, 4])
        self.linear = nn.Linear(6, 5)
        self.one = nn.Linear(1, 5)
        self.single = nn.Conv2d(6, 1, 3)
        self.sequence = nn.Conv1d(6, 1, 3)
        self.attention = nn.MultiheadAttention(4, 2)
        self.gamma = nn.Parameter(torch.ones(6, 1, 1))
        self.cls_token = nn.Parameter(torch.ones(1, 1, 6))
        self.pos_embed = nn.Parameter(torch.ones(1, 9, 6))
        self.relative_position_bias_table = nn.Parameter(torch.ones(9, 2))
        self.positions = nn.Embedding(9, 6)


KERNELS = {
    "conv.weight", "grouped.weight", "transposed.weight", "linear.weight", "one.weight",
    "single.weight", "sequence.weight",
    "attention.in_proj_weight", "attention.out_proj.weight",
}  # fmt: skip
TABLES = {"pos_embed", "relative_position_bias_table", "positions.weight"}


@pytest.fixture
def network():
    model = Network()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return model


def outputs(name, weight, groups=1):
    """What makes each output channel: one tensor for each."""
    if name != "transposed.weight":
        return list(weight)
    parts = weight.chunk(groups)
    return [part[:, i] for part in parts for i in range(part.shape[1])]


def test_each_filter_has_the_norm_of_the_weights_filter(network):
    direction = gaussian(network)
    named = dict(network.named_parameters())
    for name, part in direction.items():
        ours, theirs = (outputs(name, t, groups=2) for t in (part, named[name].detach()))
        norms = [[float(f.norm()) for f in filters] for filters in (ours, theirs)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)


@pytest.mark.parametrize("name", ["single.weight", "sequence.weight"])
def test_a_convolution_with_one_output_has_one_filter(network, name):
    """Its shape (1, C, ...) is that of a table, of which each entry would be normalized."""
    part, weight = gaussian(network)[name], network.get_parameter(name).detach()
    ratio = part[0].flatten().norm() / weight[0].flatten().norm()
    assert float(ratio) == pytest.approx(1, rel=1e-5)
    columns = part.flatten(2).norm(dim=1) / weight.flatten(2).norm(dim=1)
    assert float(columns.std()) > 0.05  # not normalized entry by entry


def test_a_table_has_the_norm_of_each_entry(network):
    direction = gaussian(network, perturb_positions=True)
    for name, axis in (("pos_embed", 2), ("relative_position_bias_table", 1)):
        weight = network.get_parameter(name).detach()
        torch.testing.assert_close(direction[name].norm(dim=axis), weight.norm(dim=axis))


def test_by_layer_the_whole_has_the_norm_of_the_whole(network):
    direction = gaussian(network, normalization="layer")
    for name, part in direction.items():
        weight = network.get_parameter(name).detach()
        assert float(part.norm()) == pytest.approx(float(weight.norm()), rel=1e-5)
        assert len(part) < 2 or not torch.allclose(part[0].norm(), weight[0].norm(), rtol=1e-3)


def test_in_the_paper_the_norm_runs_over_filters(network):
    direction = gaussian(network, normalization="paper")
    assert set(direction) == {n for n, p in network.named_parameters() if p.ndim >= 2} - {
        "pos_embed", "relative_position_bias_table"
    }  # fmt: skip
    for name, part in direction.items():
        weight = network.get_parameter(name).detach()
        for place in list(torch.cartesian_prod(*map(torch.arange, weight.shape[1:])))[:7]:
            at = (slice(None), *place.reshape(-1).tolist())
            assert float(part[at].norm()) == pytest.approx(float(weight[at].norm()), rel=1e-4)


def test_kernels_and_matrices_move_and_tables_only_where_that_is_asked_for(network):
    assert set(gaussian(network)) == KERNELS
    assert set(gaussian(network, perturb_positions=True)) == KERNELS | TABLES


def test_a_direction_is_that_of_its_seed_and_use(network):
    first = gaussian(network, "pair", 1, seed=3)
    assert torch.equal(
        first["conv.weight"], gaussian(network, "pair", 1, seed=3)["conv.weight"]
    )
    for other in (gaussian(network, "pair", 2, seed=3), gaussian(network, "pair", 1, seed=4)):
        assert not torch.allclose(first["conv.weight"], other["conv.weight"])


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
