"""Laws of dissection on small modules with unusual forward passes."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import costs, dissect, forward, watch


def parts(anatomy):
    return [(b.name, b.kind, b.layout.grid if b.layout else None) for b in anatomy]


# What it finds: told by reading the module.

SQUARE = (16, 16)
TRANSFORMER = [("stem", (4, 4)), *[("attention", (4, 4)), ("mlp", (4, 4))] * 2, ("head", None)]


CONVS = [(f"convs.{i}", "conv", SQUARE) for i in range(3)]
PADDED = [(str(i), "conv", SQUARE) for i in (4, 7)]
PLAIN = [("2", "conv", SQUARE), ("5", "downsample", (8, 8)), ("6", "conv", (8, 8))]


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("functional", CONVS),
        ("after halving", CONVS),  # a custom function hides no layer around it
        ("with a table", CONVS),  # nor does a table of the size of its input
        ("with a cached table", CONVS),  # nor one made of what an earlier pass cached (DINOv3)
        ("in place", CONVS[:2]),  # sums and activations
        ("plain", PLAIN),  # a block for each convolution
        ("padded", PADDED),  # with the padding before it, which lies on no grid
        ("inceptions", [(f"mixed.{i}", "conv", SQUARE) for i in range(2)]),  # ways are one
        (
            "u net",
            [
                ("down", "downsample", (8, 8)),
                ("middle", "conv", (8, 8)),
                ("up", "upsample", SQUARE),
                ("fuse", "conv", SQUARE),
            ],
        ),
        ("tied", [(f"block{call}", "conv", SQUARE) for call in ("", "#2", "#3")]),
    ],
)
def test_a_network_has_these_blocks(built, images, name, inner):
    ends = ("stem", "stem", SQUARE), ("head", "head", None)
    assert parts(dissect(built(name), images)) == [ends[0], *inner, ends[1]]


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x)


def test_a_backbone_has_no_head_and_of_several_feature_maps_the_last_one_counts(images):
    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList([nn.Conv2d(3, 8, 4, 4), Sum(), Sum()])

        def forward(self, x):
            maps = []
            for stage in self.stages:
                x = stage(x)
                maps.append(x)
            return maps

    class Named(Stages):  # as the backbones of Hugging Face
        def forward(self, x):
            return {"feature_maps": tuple(super().forward(x)), "attentions": None}

    for model in (Stages(), Named()):
        anatomy = dissect(model.eval(), images)
        stages = [(f"stages.{i}", "conv", (4, 4)) for i in (1, 2)]
        assert parts(anatomy) == [("stem", "stem", (4, 4)), *stages]
        assert [block.depth for block in anatomy] == [0, 0.5, 1]


def test_a_map_that_the_model_only_turns_at_its_end_is_its_last_block(images):
    class ChannelsLast(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 8, 4, 4)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x):
            x = self.patches(x).permute(0, 2, 3, 1)
            for layer in self.layers:
                x = x + layer(x)
            return x.permute(0, 3, 1, 2)

    anatomy = dissect(ChannelsLast().eval(), images)
    layers = [(f"layers.{i}", "mlp", (4, 4)) for i in range(2)]
    assert parts(anatomy) == [("stem", "stem", (4, 4)), *layers]


def test_the_last_of_a_row_of_blocks_is_no_part_of_the_head(images):
    class Pointwise(nn.Module):  # as ConvMixer's
        def __init__(self):
            super().__init__()
            self.sum, self.mix = Sum(), nn.Conv2d(8, 8, 1)

        def forward(self, x):
            return functional.gelu(self.mix(self.sum(x)))

    body = [nn.Conv2d(3, 8, 4, 4), Pointwise(), Pointwise()]
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    assert parts(dissect(model.eval(), images)) == [
        ("stem", "stem", (4, 4)),
        ("1.sum", "conv", (4, 4)),
        ("1.mix", "mlp", (4, 4)),
        ("2.sum", "conv", (4, 4)),
        ("2.mix", "mlp", (4, 4)),
        ("head", "head", None),
    ]


def test_parameters_belong_to_the_blocks_that_use_them(built, images):
    plain, tied, normed = (
        [block.parameters for block in dissect(built(name), images)]
        for name in ("only parameters", "tied", "normed")
    )
    assert plain == [(f"weights.{i}",) for i in range(4)]
    assert tied[1:-1] == [("block.bias", "block.weight")] * 3
    assert list(costs(dissect(built("tied"), images)).parameters[1:-1]) == [584, 0, 0]
    weight = "convs.1.parametrizations.weight.original"
    assert normed[2] == ("convs.1.bias", f"{weight}0", f"{weight}1")


@pytest.mark.parametrize("name", ["encoder, norm first", "encoder, norm last"])
def test_torch_own_encoder_layer_is_attention_and_mlp(built, images, name):
    rows = parts(dissect(built(name), images))
    assert [row[1:] for row in rows] == TRANSFORMER
    assert rows[1][0] == "blocks.0.layers.0.self_attn"
    assert rows[3][0] == "blocks.0.layers.1.self_attn"


class Attention(nn.Module):
    """Attention of one head beside a pointwise network: a gate of it, or added to it."""

    def __init__(self, beside):
        super().__init__()
        self.qkv, self.proj, self.beside = nn.Linear(8, 24), nn.Linear(8, 8), beside
        self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (part[:, None] for part in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v)[:, 0]
        if self.beside == "mlp":
            return x + self.proj(y) + self.fc2(self.fc1(x).relu())
        gate = self.fc1(x).sigmoid() if self.beside == "gate" else functional.silu(self.fc1(x))
        return x + self.proj(y * gate)


@pytest.mark.parametrize(
    ("beside", "kind"), [("gate", "attention"), ("silu", "attention"), ("mlp", "attention+mlp")]
)
def test_a_gate_of_an_attention_is_no_mlp(beside, kind, images):
    class Tokens(nn.Sequential):
        def forward(self, x):
            stem, *rest = self
            for block in rest:
                x = block(stem(x).flatten(2).mT if x.ndim == 4 else x)
            return x.mean(1)

    model = Tokens(nn.Conv2d(3, 8, 4, 4), Attention(beside), Attention(beside)).eval()
    assert [block.kind for block in dissect(model, images)][1:3] == [kind, kind]


def test_one_heavy_convolution_is_nothing_to_warn_of(images):
    widths = (3, 4, 64, 64)
    convs = [nn.Conv2d(*pair, 3, padding=1) for pair in itertools.pairwise(widths)]
    model = nn.Sequential(*convs, nn.Flatten())
    assert dissect(model.eval(), images).notes == ()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_torch_own_encoder_layer_is_watched_on_its_fast_path_too(built, images, mode):
    model = built("tokens")
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


@pytest.mark.parametrize("name", ["pruned", "sorted"])
def test_tokens_that_each_image_orders_anew_lie_on_no_grid(built, images, name):
    anatomy = dissect(built(name), images)
    assert [row[1] for row in parts(anatomy)] == [kind for kind, _ in TRANSFORMER]
    on_grid = [b.layout is not None for b in anatomy]
    # The sorting after the first two blocks belongs to one of them; so may the second's output.
    assert on_grid[:2] == [True, True]
    assert not any(on_grid[3:])
    assert "Not on a grid" in anatomy.notes[0]


def test_what_torch_cannot_see_is_no_block_of_a_wrong_kind(built, images):
    anatomy = dissect(built("around hidden"), images)
    block = anatomy["1"]
    assert block.layout is None
    assert block.parameters == ("1.layer.bias", "1.layer.weight")
    assert "The inside of 1 is hidden from torch" in " ".join(anatomy.notes)


def test_mixing_by_matrices_of_a_pooled_vector_keeps_the_grid():
    """As in BAT-ResNeXt: rows are mixed by a matrix that a pooled map gives."""

    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.norm = nn.Conv2d(4, 256, (8, 1)), nn.BatchNorm2d(4)
            self.project = nn.Conv2d(4, 4, 1)

        def forward(self, x):
            pooled = functional.adaptive_max_pool2d(x, (8, 1))
            rows = self.rows(pooled).view(-1, 4, 8, 8).sigmoid()
            return self.norm(self.project(rows @ x)) + x

    stem, head = nn.Conv2d(3, 4, 3, padding=1), (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(stem, nn.ReLU(), Mixing(), Mixing(), *head, nn.Linear(4, 2)).eval()
    anatomy = dissect(model, torch.rand(2, 3, 8, 8))
    assert anatomy.notes == ()
    assert all(block.layout is not None for block in anatomy[:-1])


# What dissection does not depend on: the images, their number and shape, the weights.


@pytest.mark.parametrize(("name", "wrap"), [("takes dict", True), ("gives tuple", False)])
def test_how_images_come_in_and_logits_go_out_does_not_matter(built, images, name, wrap):
    inputs = {"image": images} if wrap else images
    plain, other = built("functional"), built(name)
    assert parts(dissect(other, inputs)) == parts(dissect(plain, images))
    torch.testing.assert_close(forward(other, inputs), plain(images), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["only parameters", "in place", "tokens"])
def test_neither_the_number_of_images_nor_their_pixels_matter(built, images, name):
    model = built(name)
    wanted = list(dissect(model, images))
    for other in (images[:1], torch.zeros_like(images), torch.full_like(images, torch.nan)):
        assert list(dissect(model, other)) == wanted


def test_the_shape_of_the_images_only_changes_the_grids(built):
    square = dissect(built("tokens"), torch.zeros(2, 3, 16, 16))
    oblong = dissect(built("tokens"), torch.zeros(2, 3, 32, 12))
    assert [b.layout.grid for b in oblong[:-1]] == [(8, 3)] * (len(oblong) - 1)
    assert [b.name for b in oblong] == [b.name for b in square]
    assert [b.kind for b in oblong] == [b.kind for b in square]
