"""Laws of positions (src/visprism/anatomy/trace/token_positions.py and flow.py).

The feature map that goes in holds in each number its own place, so that what a layout makes of
the tensor that comes out can be read without any knowledge of how the places were followed.
"""

import pytest
import timm
import torch
from einops import rearrange
from torch import nn
from torch.nn import functional

from visprism import dissect, watch
from visprism.anatomy.trace.trace import trace

GRID = (4, 6)  # not square, and both sides have a half


class Moves(nn.Module):
    """One function of the image, then a classifier that reads everything."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.out = nn.Identity()

    def forward(self, x):
        return self.out(self.function(x)).flatten(1).mean(1, keepdim=True)


def numbered(channels=5, grid=GRID):
    """Two images whose every number is its place: row * width + column."""
    height, width = grid
    places = torch.arange(height * width, dtype=torch.float32).view(1, 1, height, width)
    return places.expand(2, channels, height, width).clone()


def layout_after(function, images):
    """The layout of what a function of the image gives, and that tensor."""
    model = Moves(function).eval()
    graph, _ = trace(model, images)
    address_of = {a.module: node for node in graph.nodes for a in node.addresses}
    return address_of["out"].layout, function(images)


def constant_weight(out_chans, in_chans):
    """A linear map that gives the mean of its channels in every channel."""
    return torch.full((out_chans, in_chans), 1 / in_chans)


def class_token(x, count=1):
    return torch.cat([torch.full((len(x), count, x.shape[-1]), -1.0), x], dim=1)


def windows(x, size):
    return rearrange(x, "b c (i h) (j w) -> b i j h w c", h=size, w=size)


def tokens(x):
    return x.flatten(2).transpose(1, 2)


def shifted(x):
    """Swin's shift there and back, with its windows between."""
    y = x.permute(0, 2, 3, 1).roll((-1, -1), dims=(1, 2))
    y = rearrange(y, "b (i h) (j w) c -> (b i j) (h w) c", h=2, w=2)
    y = y + y.softmax(-1) * 0  # what happens inside the windows
    y = rearrange(y, "(b i j) (h w) c -> b (i h) (j w) c", h=2, w=2, i=2, j=x.shape[3] // 2)
    return y.roll((1, 1), dims=(1, 2))


def assigned(x):
    y = torch.zeros_like(x)
    y[:, :, :2] = x[:, :, :2]
    y[:, :, torch.arange(2, x.shape[2])] = x[:, :, 2:]
    return y


def scattered(x):
    """Each token to the place that a fixed permutation names, then gathered back."""
    order = torch.arange(x[0, 0].numel()).roll(3).view(1, -1, 1).expand(len(x), -1, x.shape[1])
    return torch.zeros_like(tokens(x)).scatter(1, order, tokens(x))


KEEPS_ALL = {
    "as it is": lambda x: x * 1,
    "channels last": lambda x: x.permute(0, 2, 3, 1),
    "tokens": tokens,
    "columns first": lambda x: x.transpose(2, 3).flatten(2).transpose(1, 2),
    "windows apart": lambda x: windows(x, 2).flatten(1, 2).flatten(2, 3),
    "windows on axes of their own": lambda x: windows(x, 2),
    "window shift": shifted,
    "class token and registers": lambda x: class_token(tokens(x), 5),
    "class token last": lambda x: class_token(tokens(x).flip(1)).flip(1),
    "class token dropped again": lambda x: class_token(tokens(x))[:, 1:],
    "heads": lambda x: (
        rearrange(tokens(x[:, :4]), "b n (h d) -> b h n d", h=2).transpose(1, 2).flatten(2)
    ),
    "chunks of channels": lambda x: torch.cat(x.chunk(2, dim=1)[::-1], dim=1),
    "stacked and unbound": lambda x: torch.stack([x, x * 2]).unbind(0)[0] + 0,
    "padded and cut": lambda x: functional.pad(x, (1, 1, 2, 2))[:, :, 2:-2, 1:-1],
    "interleaved halves": lambda x: torch.stack([x[..., ::2], x[..., 1::2]], dim=-1).flatten(
        -2
    ),
    "assigned in parts": assigned,
    "scattered in a fixed order": scattered,
    "gathered in a fixed order": lambda x: tokens(x)[:, torch.arange(x[0, 0].numel()).flip(0)],
    "gathered as boolean": lambda x: tokens(x)[
        :, torch.ones(x[0, 0].numel(), dtype=torch.bool)
    ],
}

MAPS = {
    "pointwise": torch.relu,
    "normalized": lambda x: functional.layer_norm(x.permute(0, 2, 3, 1), (5,)),
    "product with a matrix": lambda x: tokens(x) @ constant_weight(5, 7),
    "product and sum": lambda x: torch.addmm(
        torch.zeros(5), tokens(x).flatten(0, 1), constant_weight(5, 5)
    ).view(2, 24, 5),
    "matrix on the left, called from the right": lambda x: (
        x.flatten(2).__rmatmul__(constant_weight(7, 5)).unflatten(2, GRID)
    ),
    "einsum to channels last": lambda x: torch.einsum(
        "b c ..., d c -> b ... d", x, constant_weight(7, 5)
    ),
    "attention by einsum": lambda x: torch.einsum(
        "bij,bjc->bic",
        torch.einsum("bic,bjc->bij", tokens(x), tokens(x)).softmax(-1),
        tokens(x),
    ),
    "1x1 convolution": lambda x: functional.conv2d(x, constant_weight(7, 5)[..., None, None]),
    "shifted copies as channels": lambda x: torch.cat([x, x.roll(1, 2), x.roll(1, 3)], dim=1),
    "scaled by channel": lambda x: x * x.mean((2, 3), keepdim=True),
    "attention written out": lambda x: (tokens(x) @ tokens(x).mT * 1e9).softmax(-1) @ tokens(x),
    "fused attention": lambda x: functional.scaled_dot_product_attention(
        *[tokens(x)[:, None]] * 3
    )[:, 0],
}


@pytest.mark.parametrize("name", KEEPS_ALL)
def test_the_layout_undoes_whatever_only_moves_numbers(name):
    layout, moved = layout_after(KEEPS_ALL[name], numbered())
    feature_map = layout.to_map(moved)
    assert layout.grid == GRID
    torch.testing.assert_close(feature_map, numbered(feature_map.shape[1]), rtol=0, atol=0)
    # Axes of one length are not confused.
    cube = numbered(channels=4, grid=(4, 4))
    layout, moved = layout_after(KEEPS_ALL[name], cube)
    torch.testing.assert_close(layout.to_map(moved), cube, rtol=0, atol=0)


@pytest.mark.parametrize("name", MAPS)
def test_work_on_each_position_keeps_every_place(name):
    layout, after = layout_after(MAPS[name], numbered())
    assert layout.grid == GRID
    assert layout.to_map(after).shape[-2:] == GRID
    assert layout.order is None


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (2, 1)])
def test_tokens_around_the_patches_are_counted(before, after):
    ends = [-1 - torch.rand(2, n, 5) for n in (before, after)]
    for turned in ((), (1,)):
        layout, given = layout_after(
            lambda x, axes=turned: torch.cat([ends[0], tokens(x).flip(axes), ends[1]], dim=1),
            numbered(),
        )
        assert (layout.num_prefix_tokens, layout.num_suffix_tokens) == (before, after)
        assert torch.equal(layout.off_grid(given), torch.cat(ends, dim=1))


MERGES = {
    "mean of 2x2 (patch merging)": lambda x: functional.linear(
        rearrange(x, "b c (i h) (j w) -> b i j (h w c)", h=2, w=2), constant_weight(7, 20)
    ),
    "mean of 2x2, position by position": lambda x: rearrange(
        x, "b c (i h) (j w) -> b (i j) c (h w)", h=2, w=2
    ).mean(-1),
    "every second row and column": lambda x: tokens(x[:, :, ::2, ::2]),
    "convolution with stride": lambda x: functional.conv2d(
        x, torch.full((5, 5, 2, 2), 1 / 20), stride=2
    ),
    "max-pooling": lambda x: functional.max_pool2d(x, 2),
    "pixels to channels": lambda x: functional.conv2d(
        functional.pixel_unshuffle(x, 2), constant_weight(7, 20)[..., None, None]
    ),
}


@pytest.mark.parametrize("name", MERGES)
def test_merged_patches_are_places_of_a_coarser_grid(name):
    layout, merged = layout_after(MERGES[name], numbered())
    assert layout.grid == (2, 3)
    feature_map = layout.to_map(merged)[0, 0]
    corners = numbered()[0, 0, ::2, ::2]
    # A patch's value is that of its first corner, and more that all patches share.
    assert torch.allclose(feature_map - feature_map[0, 0], corners - corners[0, 0], atol=1e-4)


LOSES = {
    "1x1 convolution of patches on another axis": lambda x: functional.conv2d(
        functional.unfold(x, 2, stride=2).unflatten(1, (5, 4)),
        constant_weight(7, 5)[..., None, None],
    ),
    "pooled": lambda x: x.mean((2, 3)),
    "pooled to one token": lambda x: tokens(x).mean(1, keepdim=True),
    "upside down": lambda x: x.flip(2),
    "flattened": lambda x: x.flatten(1),
    "half of the tokens": lambda x: tokens(x)[:, torch.tensor([0, 1, 2, 7, 8, 9, 14])],
    "linear over tokens": lambda x: functional.linear(x.flatten(2), torch.randn(24, 24)),
    "einsum over tokens": lambda x: torch.einsum("bnc,nm->bmc", tokens(x), torch.randn(24, 24)),
    "matrix on the left": lambda x: torch.randn(24, 24) @ tokens(x),
    "linear over mixed axes": lambda x: functional.linear(
        x.reshape(2, 12, 10), torch.randn(10, 10)
    ),
    "an order chosen by the image": lambda x: tokens(x)[
        :, (tokens(x) @ torch.randn(5)).sum(0).argsort()
    ],
    "sorted": lambda x: tokens(x).sort(dim=1).values,
    # The index map does not have the memory of the tensor that it stands for.
    "strided view of other strides": lambda x: torch.as_strided(
        x * 1, (2, 24, 5), (120, 1, 24)
    ),
    "strided in place": lambda x: (x * 1).as_strided_((2, 24, 5), (120, 1, 24)),
    "channels and places exchanged": lambda x: x.reshape(2, 24, 5),
}


@pytest.mark.parametrize("name", LOSES)
def test_no_layout_is_claimed_where_places_are_lost(name):
    layout, _ = layout_after(LOSES[name], numbered())
    assert layout is None


@pytest.mark.parametrize(
    ("dtype", "device"),
    [(torch.bfloat16, "cpu"), (torch.float64, "cpu"), (torch.float32, "meta")],
)
def test_places_do_not_depend_on_defaults_of_torch(dtype, device):
    model = timm.create_model("vit_tiny_patch16_224", depth=2, img_size=32, patch_size=8).eval()
    images = torch.randn(2, 3, 32, 32)
    expected = [(block.name, block.layout) for block in dissect(model, images)]
    assert sum(layout is not None for _, layout in expected) > 2
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            found = [(block.name, block.layout) for block in dissect(model, images)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == expected


@pytest.mark.parametrize("name", ["vit_reg4", "swin_tiny", "hiera_tiny"])
def test_a_spot_changes_the_feature_map_where_it_lies(dissected, name):
    anatomy = dissected(name)
    side = 70 if name == "vit_reg4" else 224
    blocks = [b for b in anatomy if b.layout is not None]
    plain = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    for place in [(0.3, 0.8), (0.7, 0.2)]:
        image = plain.clone()
        top, left = (int(p * side) // 32 * 32 for p in place)
        image[:, :, top : top + 32, left : left + 32] += 1
        with watch(anatomy) as maps, torch.no_grad():
            anatomy.model(torch.cat([plain, image]))
        for block in blocks:
            change = (maps[block.name][0] - maps[block.name][1]).abs().mean(0)
            row, column = divmod(int(change.argmax()), block.layout.grid[1])
            center = (
                (row + 0.5) / block.layout.grid[0] * side,
                (column + 0.5) / block.layout.grid[1] * side,
            )
            assert top <= center[0] < top + 32, block.name
            assert left <= center[1] < left + 32, block.name
