"""Laws of dissection on modules written by hand: what people do in a forward.

Each module is small enough that its parts can be told by reading it.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism.anatomy import dissect, forward, watch


def seeded(build):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().eval()


def parts(anatomy):
    return [(b.name, b.kind, b.layout.grid if b.layout else None) for b in anatomy]


def conv(in_chans, out_chans, **options):
    return nn.Conv2d(in_chans, out_chans, 3, padding=1, **options)


class Pooled(nn.Module):
    """A stem, whatever `body` gives, and a linear classifier of the mean."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = conv(3, width)
        self.fc = nn.Linear(width, 5)

    def body(self, x):
        raise NotImplementedError

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


class Functional(Pooled):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(conv(8, 8) for _ in range(3))

    def body(self, x):
        for layer in self.convs:
            x = functional.relu(x + layer(x))
        return x


class OnlyParameters(nn.Module):
    """Not a single submodule, so no hook of a submodule can see anything."""

    def __init__(self):
        super().__init__()
        shapes = [(8, 3, 3, 3), (8, 8, 3, 3), (8, 8, 3, 3), (5, 8)]
        self.weights = nn.ParameterList(torch.randn(shape) / 4 for shape in shapes)

    def forward(self, x):
        x = functional.conv2d(x, self.weights[0], padding=1)
        for weight in self.weights[1:3]:
            x = x + functional.conv2d(functional.relu(x), weight, padding=1)
        return functional.linear(x.mean((2, 3)), self.weights[3])


class Tied(Pooled):
    def __init__(self):
        super().__init__()
        self.block = conv(8, 8)

    def body(self, x):
        for _ in range(3):
            x = x + self.block(x)
        return x


class InPlace(Pooled):
    """The sum and the activation overwrite the feature map that came in."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(conv(8, 8) for _ in range(2))
        self.act = nn.ReLU(inplace=True)

    def body(self, x):
        for layer in self.convs:
            y = layer(x)
            y += x
            x = self.act(y)
        return x


class UNet(Pooled):
    def __init__(self):
        super().__init__()
        self.down, self.middle = conv(8, 16, stride=2), conv(16, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.fuse = conv(16, 8)

    def body(self, x):
        y = self.up(functional.relu(self.middle(functional.relu(self.down(x)))))
        return self.fuse(torch.cat([x, y], dim=1))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.ways = nn.ModuleList(nn.Conv2d(8, 4, k, padding=k // 2) for k in (1, 3))

    def forward(self, x):
        return functional.relu(torch.cat([way(x) for way in self.ways], dim=1))


class Inceptions(Pooled):
    def __init__(self):
        super().__init__()
        self.mixed = nn.Sequential(Inception(), Inception())

    def body(self, x):
        return self.mixed(x)


class Tokens(nn.Module):
    """Patches of 4, and torch's own transformer layers, one by one."""

    def __init__(self, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, stride=4)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.fc = nn.Linear(16, 5)

    def between(self, x):
        return x

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = self.between(block(x))
        return self.fc(x.mean(1))


class Pruned(Tokens):
    """Keeps the half of the tokens that is the largest: another half in every image."""

    def between(self, x):
        best = x.norm(dim=-1).topk(x.shape[1] // 2, dim=1).indices
        return x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))


class Sorted(Tokens):
    """Keeps all tokens, the largest first: another order in every image."""

    def between(self, x):
        order = x.norm(dim=-1).argsort(dim=1)
        return x.gather(1, order[..., None].expand_as(x))


class SortedByIndexing(Tokens):
    def between(self, x):
        order = x.norm(dim=-1).argsort(dim=1)
        return x[torch.arange(len(x))[:, None], order]


class TakesDict(Functional):
    def forward(self, inputs):
        return super().forward(inputs["image"])


class GivesTuple(Functional):
    def forward(self, x):
        return super().forward(x), {"loss": None}


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return x / 2


class Hidden(nn.Module):
    """What it does, torch cannot see."""

    def __init__(self):
        super().__init__()
        self.layer = conv(8, 8)

    def forward(self, x):
        y = self.layer(x).detach().numpy() * 2
        return torch.from_numpy(y)


# What it finds: told by reading the module.

SQUARE = (16, 16)
TRANSFORMER = [("stem", (4, 4)), *[("attention", (4, 4)), ("mlp", (4, 4))] * 2, ("head", None)]


def test_a_residual_network_written_in_one_forward(images):
    assert parts(dissect(seeded(Functional), images)) == [
        ("stem", "stem", SQUARE),
        *((f"convs.{i}", "conv", SQUARE) for i in range(3)),
        ("head", "head", None),
    ]


def test_a_network_without_any_submodule(images):
    anatomy = dissect(seeded(OnlyParameters), images)
    assert [row[1:] for row in parts(anatomy)] == [
        ("stem", SQUARE),
        ("conv", SQUARE),
        ("conv", SQUARE),
        ("head", None),
    ]
    assert [b.parameters for b in anatomy] == [(f"weights.{i}",) for i in range(4)]


def test_a_module_that_is_called_three_times_is_three_blocks(images):
    anatomy = dissect(seeded(Tied), images)
    assert parts(anatomy)[1:-1] == [
        (name, "conv", SQUARE) for name in ("block", "block#2", "block#3")
    ]
    assert {b.parameters for b in anatomy[1:-1]} == {("block.bias", "block.weight")}


def test_sums_and_activations_in_place_are_the_same_blocks(images):
    assert parts(dissect(seeded(InPlace), images)) == [
        ("stem", "stem", SQUARE),
        ("convs.0", "conv", SQUARE),
        ("convs.1", "conv", SQUARE),
        ("head", "head", None),
    ]


def test_a_plain_container_has_a_block_for_each_convolution(images):
    model = seeded(
        lambda: nn.Sequential(
            conv(3, 4),
            nn.ReLU(inplace=True),
            conv(4, 4),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            conv(4, 8),
            nn.Flatten(),
            nn.Linear(8 * 64, 5),
        )
    )
    assert parts(dissect(model, images)) == [
        ("stem", "stem", SQUARE),
        ("2", "conv", SQUARE),
        ("5", "downsample", (8, 8)),
        ("6", "conv", (8, 8)),
        ("head", "head", None),
    ]


def test_a_long_skip_makes_one_block_of_what_it_passes(images):
    kinds = [row[1:] for row in parts(dissect(seeded(UNet), images))]
    assert kinds[0] == ("stem", SQUARE)
    assert kinds[-1] == ("head", None)
    assert set(kinds[1:-1]) == {("conv", SQUARE)}


def test_ways_side_by_side_are_one_block(images):
    assert parts(dissect(seeded(Inceptions), images)) == [
        ("stem", "stem", SQUARE),
        ("mixed.0", "conv", SQUARE),
        ("mixed.1", "conv", SQUARE),
        ("head", "head", None),
    ]


@pytest.mark.parametrize("norm_first", [True, False])
def test_torch_own_encoder_layer_is_attention_and_mlp(images, norm_first):
    def build():
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, batch_first=True, norm_first=norm_first, dropout=0.0
        )
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        model = Tokens(depth=0)
        model.blocks = nn.ModuleList([encoder])
        return model

    rows = parts(dissect(seeded(build), images))
    assert [row[1:] for row in rows] == TRANSFORMER
    assert rows[1][0] == "blocks.0.layers.0.self_attn"
    assert rows[3][0] == "blocks.0.layers.1.self_attn"


def test_one_heavy_convolution_is_nothing_to_warn_of(images):
    model = nn.Sequential(conv(3, 4), conv(4, 64), nn.ReLU(), conv(64, 64), nn.Flatten())
    assert dissect(model.eval(), images).notes == ()


def test_a_weight_that_is_computed_counts_its_own_parameters(images):
    class Normed(Functional):
        def __init__(self):
            super().__init__()
            nn.utils.parametrizations.weight_norm(self.convs[1])

    assert dissect(seeded(Normed), images)["convs.1"].parameters == (
        "convs.1.bias",
        "convs.1.parametrizations.weight.original0",
        "convs.1.parametrizations.weight.original1",
    )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_torch_own_encoder_layer_is_watched_on_its_fast_path_too(images, mode):
    model = seeded(Tokens)
    anatomy = dissect(model, images)
    with watch(anatomy) as maps, mode():
        model(images)
    x = model.patch(images).flatten(2).transpose(1, 2)
    for i, block in enumerate(model.blocks):
        x = x + block.self_attn(*[block.norm1(x)] * 3, need_weights=False)[0]
        by_hand = x.transpose(1, 2).unflatten(2, (4, 4))
        torch.testing.assert_close(maps[anatomy[2 * i + 1].name].clone(), by_hand)
        x = x + block.linear2(functional.relu(block.linear1(block.norm2(x))))
        by_hand = x.transpose(1, 2).unflatten(2, (4, 4))
        torch.testing.assert_close(maps[anatomy[2 * i + 2].name].clone(), by_hand)


# Never wrong in silence: where the places of the image are lost, no block claims a grid.


@pytest.mark.parametrize("model", [Pruned, Sorted, SortedByIndexing])
@pytest.mark.parametrize("n", [1, 2])
def test_tokens_that_each_image_orders_anew_lie_on_no_grid(images, model, n):
    anatomy = dissect(seeded(model), images[:n])
    assert [row[1] for row in parts(anatomy)] == [kind for kind, _ in TRANSFORMER]
    on_grid = [b.layout is not None for b in anatomy]
    # The sorting after the first two blocks belongs to one of them; so may the second's output.
    assert on_grid[:2] == [True, True]
    assert not any(on_grid[3:])
    assert "Not on a grid" in anatomy.notes[0]


def test_what_torch_cannot_see_is_no_block_of_a_wrong_kind(images):
    model = seeded(
        lambda: nn.Sequential(conv(3, 8), Hidden(), nn.Flatten(), nn.Linear(2048, 5))
    )
    block = dissect(model, images)["1"]
    assert block.layout is None
    assert block.parameters == ("1.layer.bias", "1.layer.weight")
    assert "The inside of 1 is hidden from torch" in " ".join(dissect(model, images).notes)


def test_a_custom_function_does_not_hide_the_layers_around_it(images):
    class Half(Functional):
        def body(self, x):
            return super().body(Halved.apply(x))

    assert parts(dissect(seeded(Half), images)) == parts(dissect(seeded(Functional), images))


# What leaves it unchanged: invariances.


@pytest.mark.parametrize(("model", "wrap"), [(TakesDict, True), (GivesTuple, False)])
def test_how_images_come_in_and_logits_go_out_does_not_matter(images, model, wrap):
    inputs = {"image": images} if wrap else images
    plain, other = seeded(Functional), seeded(model)
    assert parts(dissect(other, inputs)) == parts(dissect(plain, images))
    torch.testing.assert_close(forward(other, inputs), plain(images), rtol=0, atol=0)


@pytest.mark.parametrize("model", [Functional, OnlyParameters, Tied, InPlace, UNet, Tokens])
def test_one_image_is_enough(images, model):
    model = seeded(model)
    assert list(dissect(model, images[:1])) == list(dissect(model, images))


@pytest.mark.parametrize("model", [Functional, OnlyParameters, Tied, InPlace, UNet, Tokens])
def test_the_images_do_not_matter(images, model):
    model = seeded(model)
    for other in (torch.zeros_like(images), torch.full_like(images, torch.nan)):
        assert list(dissect(model, other)) == list(dissect(model, images))


def test_weights_that_are_not_numbers_do_not_matter(images):
    model, broken = seeded(Tokens), seeded(Tokens)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(torch.nan)
    assert parts(dissect(broken, images)) == parts(dissect(model, images))


def test_the_shape_of_the_images_only_changes_the_grids():
    square = dissect(seeded(Tokens), torch.zeros(2, 3, 16, 16))
    oblong = dissect(seeded(Tokens), torch.zeros(2, 3, 32, 12))
    assert [b.layout.grid for b in oblong[:-1]] == [(8, 3)] * (len(oblong) - 1)
    assert [b.name for b in oblong] == [b.name for b in square]
    assert [b.kind for b in oblong] == [b.kind for b in square]


def test_compiling_changes_nothing_but_the_names(images):
    model = seeded(Functional)
    wanted = dissect(model, images)
    with watch(wanted) as plain:
        model(images)
    compiled = torch.compile(model, backend="eager")
    anatomy = dissect(compiled, images)
    assert [b.name.removeprefix("_orig_mod.") for b in anatomy] == [b.name for b in wanted]
    assert [row[1:] for row in parts(anatomy)] == [row[1:] for row in parts(wanted)]
    with watch(anatomy) as seen, torch.no_grad():
        compiled(images)
    for block in wanted[:-1]:
        torch.testing.assert_close(
            seen[anatomy[block_index(wanted, block)].name], plain[block.name], rtol=0, atol=0
        )


def block_index(anatomy, block):
    return list(anatomy).index(block)
