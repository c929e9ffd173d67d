"""Laws of gradients that hold the values of a box: those of ordinary gradients."""

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from visprism import dissect, watch
from visprism.anatomy import pixels
from visprism.core.rng import stream
from visprism.core.run import DEFAULT_RUN
from visprism.measure.features.box_convolution_rules import BoxGradient
from visprism.measure.features.receptive_field_gradients import (
    _boxed_gradient,
    _signed_sum,
    receptive_map,
)


class Branch(nn.Module):
    """A residual branch."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Joined(nn.Module):
    """The channels of two branches, side by side."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class SqueezeExcitation(nn.Module):
    """Channels weighted by a function of their means over all positions."""

    def __init__(self, channels):
        super().__init__()
        self.weights = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x * self.weights(x.mean((2, 3), keepdim=True)).sigmoid()


class Backward(nn.Module):
    """The identity, whose gradient is a function of the gradient."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        x = x * 1
        if x.requires_grad:
            x.register_hook(self.function)
        return x


class Slice(nn.Module):
    """Rows from `first` to `end`."""

    def __init__(self, first, end):
        super().__init__()
        self.rows = slice(first, end)

    def forward(self, x):
        return x[:, :, self.rows]


def head(channels):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        Branch(nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.Hardswish()),
        Branch(
            nn.Conv2d(8, 8, (3, 5), padding=(1, 2), groups=8), nn.GELU(), nn.Conv2d(8, 8, 1)
        ),
        nn.Conv2d(8, 6, 1, stride=2),
        nn.SiLU(),
        Branch(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(inplace=True)),
        *head(6),
    )


def joined():
    return nn.Sequential(
        nn.Conv2d(3, 4, 2, stride=2),
        Joined(nn.Conv2d(4, 4, 3, padding=1), nn.Sequential(nn.Conv2d(4, 2, 1), nn.Tanh())),
        nn.AvgPool2d(2),
        Branch(nn.Conv2d(6, 6, 3, padding=1), nn.GroupNorm(2, 6)),
        *head(6),
    )


def excited():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Branch(nn.Conv2d(8, 8, 3, padding=1), SqueezeExcitation(8)),
        Branch(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()),
        *head(8),
    )


def vision_transformer():
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=(32, 24),
        patch_size=4,
        embed_dim=24,
        depth=2,
        num_heads=2,
    )


def swin():
    return timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        patch_size=2,
        window_size=4,
        embed_dim=12,
        depths=(2, 2),
        num_heads=(2, 4),
    )


def convnext():
    return timm.create_model("convnext_atto", depths=(1, 1, 2, 1), dims=(8, 12, 16, 20))


NETWORKS = {
    convolutions: (37, 46),
    joined: (22, 26),
    excited: (11, 14),
    vision_transformer: (32, 24),
    swin: (32, 32),
    convnext: (64, 96),
}


@pytest.fixture(params=NETWORKS, ids=lambda network: network.__name__)
def model_and_images(request, noise):
    """In float64, with random weights and statistics."""
    torch.manual_seed(0)
    model = request.param().double().eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.normal_(1.0 if "var" in name else 0.0, 0.3 if tensor.ndim > 1 else 0.1)
    return model, noise(2, 3, *NETWORKS[request.param])


def ordinary_map(anatomy, images, block, position):
    """The weight of each pixel by ordinary tensors."""
    x = pixels(images).clone().requires_grad_()
    given = {next(iter(images)): x} if isinstance(images, dict) else x
    with watch(anatomy, torch.clone, blocks=[block]) as maps:
        anatomy.model(**given) if isinstance(given, dict) else anatomy.model(given.clone())
    at = maps[block.name][:, :, position[0], position[1]]
    signs = 2 * torch.randint(2, at.shape[1:], generator=stream(0, "signs", at.shape[1])) - 1
    (gradient,) = torch.autograd.grad((at * signs).sum(), x)
    return gradient.abs().sum(1)


def between_convolutions(layer, noise):
    """The anatomy of a layer between two convolutions, images, and the last block."""
    layers = nn.Conv2d(3, 4, 3, padding=1), layer, nn.Conv2d(4, 4, 3, padding=1)
    model, images = nn.Sequential(*layers, *head(4)).double().eval(), noise(2, 3, 9, 9)
    anatomy = dissect(model, images)
    return anatomy, images, [block for block in anatomy if block.layout is not None][-1]


def boxed_gradient(anatomy, images, block, position):
    """The gradient by boxes; None where they do not do."""
    leaf = images.clone().requires_grad_()
    with watch(
        anatomy, lambda x: _signed_sum(x, position, DEFAULT_RUN), blocks=[block]
    ) as sums:
        anatomy.model(leaf.clone())
    return _boxed_gradient(sums[block.name].boxed, leaf)


# What leaves it unchanged: boxes.


def test_gradients_of_boxes_are_those_of_ordinary_tensors(model_and_images):
    model, images = model_and_images
    anatomy = dissect(model, images)
    blocks = [block for block in anatomy if block.layout is not None]
    assert len(blocks) > 2
    for block in blocks:
        height, width = block.shape[-2:]
        for position in {(height // 2, width // 2), (0, width - 1), (height - 1, 0)}:
            expected = ordinary_map(anatomy, images, block, position)
            boxed = boxed_gradient(anatomy, images, block, position)
            assert boxed is not None
            scale = 1e-12 * expected.max().item()
            torch.testing.assert_close(boxed.abs().sum(1), expected, rtol=1e-9, atol=scale)


def test_images_in_a_mapping(noise):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = excited()

        def forward(self, pixel_values):
            return self.inner(pixel_values)

    images = {"pixel_values": noise(2, 3, 9, 7)}
    anatomy = dissect(Named().double().eval(), images)
    for block in anatomy:
        if block.layout is not None:
            expected = ordinary_map(anatomy, images, block, (1, 5))
            torch.testing.assert_close(receptive_map(anatomy, images, block, (1, 5)), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda g: torch.from_numpy(2 * g.numpy()),  # needs memory
        lambda g: g.clone().mul_(2),  # in place
        # Not linear: they differ between a gradient and its multiple.
        lambda g: g.clamp(-0.1, 0.1),
        torch.sign,
        lambda g: g * g,
        lambda g: g / (g.abs().mean() + 1),
        lambda g: 1 / (g + 1),
        lambda g: torch.div(g, 0.1, rounding_mode="floor"),
        lambda g: g + 0.1,
        lambda g: torch.where(g.new_ones(g.shape) > 0, g, 0.1),
        lambda g: torch.nn.functional.pad(g[..., 1:], (1, 0), value=0.1),
        lambda g: g.masked_fill(torch.eye(9, dtype=torch.bool), 0.1),
        torch.ones_like,
        lambda g: torch.linspace(0, 1, g.numel(), dtype=g.dtype).view(g.shape),
        lambda g: torch.fft.ifft2(torch.fft.fft2(g).conj()).real.clamp(-0.1, 0.1),
    ],
)
def test_a_backward_pass_that_needs_ordinary_tensors_has_them(noise, function):
    anatomy, images, block = between_convolutions(Backward(function), noise)
    assert boxed_gradient(anatomy, images, block, (4, 4)) is None
    expected = ordinary_map(anatomy, images, block, (4, 4))
    torch.testing.assert_close(receptive_map(anatomy, images, block, (4, 4)), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda g: 2 * g - g / 3,
        lambda g: g.flip(3).roll(1, 2),
        lambda g: torch.where(torch.eye(9, dtype=torch.bool), g, 0.0),
        lambda g: g - g.mean((2, 3), keepdim=True),
        lambda g: torch.cat([g[..., 5:], g[..., :5]], 3),
        lambda g: torch.nn.functional.conv2d(
            g, torch.ones(4, 1, 3, 3, dtype=g.dtype), padding=1, groups=4
        ),
    ],
)
def test_a_linear_backward_pass_has_boxes(noise, function):
    anatomy, images, block = between_convolutions(Backward(function), noise)
    boxed = boxed_gradient(anatomy, images, block, (4, 4))
    assert boxed is not None
    expected = ordinary_map(anatomy, images, block, (4, 4))
    torch.testing.assert_close(boxed.abs().sum(1), expected)


@pytest.mark.parametrize("first", [None, 2, -3, -8, -9, -12, -30])
@pytest.mark.parametrize("end", [None, 7, 30, -1])
def test_slices(noise, first, end):
    anatomy, images, block = between_convolutions(Slice(first, end), noise)
    for row in range(block.shape[-2]):
        boxed = boxed_gradient(anatomy, images, block, (row, 4))
        assert boxed is not None
        expected = ordinary_map(anatomy, images, block, (row, 4))
        torch.testing.assert_close(boxed.abs().sum(1), expected)


@pytest.mark.parametrize("padding", [4, 5, 6])
@pytest.mark.parametrize("kernel", [1, 3])
def test_positions_that_see_padding_alone(noise, padding, kernel):
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, kernel, padding=padding)
    model = nn.Sequential(*layers, nn.Conv2d(4, 4, 3, padding=1), *head(4)).double().eval()
    images = noise(1, 3, 5, 5)
    anatomy = dissect(model, images)
    block = [block for block in anatomy if block.layout is not None][-1]
    for row in range(block.shape[-2]):
        for column in (0, block.shape[-1] // 2, block.shape[-1] - 1):
            expected = ordinary_map(anatomy, images, block, (row, column))
            weight = receptive_map(anatomy, images, block, (row, column))
            torch.testing.assert_close(weight, expected)
    assert expected.max() == 0  # the last one


def test_small_gradients_are_those_of_double_precision(noise):
    """Their product lies below the smallest number of single precision."""
    tiny = [Branch(nn.Conv2d(3, 3, 3, padding=1, bias=False)) for _ in range(3)]
    for branch in tiny:
        nn.init.constant_(branch.layers[0].weight, 1e-15)
    model, images = nn.Sequential(*tiny, *head(3)).eval(), noise(2, 3, 9, 9)
    maps = []
    for dtype in (torch.float32, torch.float64):
        anatomy = dissect(model.to(dtype), images.to(dtype))
        block = [block for block in anatomy if block.layout is not None][-1]
        maps.append(receptive_map(anatomy, images.to(dtype), block, (4, 4)))
    assert 0 < maps[1][0, 1, 1] < 1e-43
    torch.testing.assert_close(maps[0], maps[1], rtol=1e-5, atol=0)


# What it is for: zeros are left out.


class BoxesOfConvolutions(TorchDispatchMode):
    """Height and width of the box of each gradient that a convolution gives."""

    def __init__(self):
        super().__init__()
        self.sides = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution_backward.default:
            self.sides.append(tuple(result[0].inside.shape[2:]))
        return result


def test_convolutions_compute_the_cone_of_the_position_alone(noise):
    layers = [nn.Conv2d(3, 3, 3, padding=1) for _ in range(4)]
    model, images = nn.Sequential(*layers, *head(3)).double().eval(), noise(1, 3, 31, 31)
    leaf = images.clone().requires_grad_()
    total = _signed_sum(model[:4](leaf), (15, 15), DEFAULT_RUN).boxed
    with BoxesOfConvolutions() as boxes:
        torch.autograd.grad(total, leaf)
    assert boxes.sides == [(n, n) for n in (3, 5, 7, 9)]


# Closed forms.


@pytest.mark.parametrize("seed", range(20))
def test_a_view_of_a_box_has_the_values_of_the_full_tensor(seed):
    generator = np.random.default_rng(seed)
    sizes = (2, 6, 4, 6), (12, 24), (2, 24, 6), (2, 2, 3, 4, 6), (48, 6), (288,), (2, 6, 1, 24)
    size = sizes[0]
    start = [int(generator.integers(n)) for n in size]
    extent = [int(generator.integers(1, n - a + 1)) for n, a in zip(size, start, strict=True)]
    gradient = BoxGradient(torch.rand(extent), start, size)
    expected = gradient.dense()
    assert expected.count_nonzero() == np.prod(extent)
    for i in generator.permutation(len(sizes)):
        gradient = gradient.view(sizes[i])
        assert torch.equal(gradient.dense(), expected.view(sizes[i]))
    assert torch.equal(
        gradient.view(size).permute(3, 0, 1, 2).dense(), expected.permute(3, 0, 1, 2)
    )


def test_a_view_of_whole_rows_is_a_box():
    gradient = BoxGradient(torch.rand(2, 2, 6), (0, 3, 0), (2, 8, 6))
    viewed = gradient.view(2, 48)
    assert (viewed.start, tuple(viewed.inside.shape)) == ((0, 18), (2, 12))
    assert viewed.view(2, 8, 6).inside.shape == gradient.inside.shape
