"""Laws of the Fourier plane (src/visprism/analyses/features/fourier_plane.py)."""

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism import Fourier, FourierPlane, dissect, observe


class Grid(nn.Module):
    """An image, a convolution added to it, and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.conv(x)
        return self.head(x.mean((2, 3)))


@pytest.fixture
def images():
    return torch.randn(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def grid(images):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return dissect(Grid().eval(), images[:2])


def test_a_wave_has_its_frequency_and_the_opposite_one():
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(6), indexing="ij")
    wave = torch.cos(2 * np.pi * (3 * rows / 8 + columns / 6))[None, None].double()
    level = FourierPlane().extract(wave)[0].exp().numpy()
    peaks = {(int(i) - 4, int(j) - 3) for i, j in np.argwhere(level > 1)}
    assert peaks == {(3, 1), (-3, -1)}
    assert level.max() == pytest.approx(24, rel=1e-6)  # half of the 48 positions


def test_the_plane_is_the_sum_over_positions(images):
    level = FourierPlane().extract(images.double())
    k, l = 2, -1  # noqa: E741 (as in the formula)
    u, v = np.indices((8, 6))
    wave = np.exp(-2j * np.pi * (k * u / 8 + l * v / 6))
    expected = np.log(np.abs((images.double().numpy() * wave).sum((2, 3))) + 1e-6).mean(1)
    np.testing.assert_allclose(level[:, 4 + k, 3 + l], expected, rtol=1e-10)


def test_the_diagonal_is_that_of_the_fourier_profile():
    square = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    plane = FourierPlane().extract(square)
    diagonal = torch.diagonal(torch.fft.ifftshift(plane, dim=(1, 2)), dim1=1, dim2=2)[:, :5]
    torch.testing.assert_close(diagonal, Fourier().extract(square))


def test_the_branch_is_what_the_block_adds(grid, images):
    (result,) = observe(grid, [images], [FourierPlane(maps="branches")])
    (picture,) = result.pictures().values()
    added = grid.model.conv(grid.model.stem(images)).detach()
    level = FourierPlane().extract(added)
    expected = (level - level[:, 4:5, 3:4]).mean(0)
    np.testing.assert_allclose(picture, expected, atol=1e-4)


@pytest.mark.parametrize("fused", [True, False])
def test_a_head_is_its_part_of_what_is_projected(fused):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, reg_tokens=2,
            num_classes=2,
        ).eval()  # fmt: skip
    for block in model.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    (result,) = observe(dissect(model, images[:2]), [images], [FourierPlane(maps="heads")])
    projected = []
    handle = model.blocks[1].attn.proj.register_forward_pre_hook(
        lambda _module, args: projected.append(args[0].detach())
    )
    with handle, torch.no_grad():
        model(images)
    pictures = result.pictures()
    assert len(pictures) == 2 * 3
    tokens = projected[0][:, 3:].reshape(3, 4, 4, 3, 8)  # without class token and registers
    for head in range(3):
        level = FourierPlane().extract(tokens[:, :, :, head].permute(0, 3, 1, 2))
        expected = (level - level[:, 2:3, 2:3]).mean(0)
        np.testing.assert_allclose([*pictures.values()][3 + head], expected, atol=1e-4)


def test_the_scale_of_the_features_does_not_matter(images):
    probe = FourierPlane()
    once, twice = probe.extract(images.double()), probe.extract(2 * images.double())
    torch.testing.assert_close(
        twice - once, torch.full_like(once, np.log(2)), atol=1e-4, rtol=0
    )


def test_dead_channels_do_not_count(images):
    dead = torch.cat([images, torch.zeros_like(images)], 1)
    torch.testing.assert_close(FourierPlane().extract(dead), FourierPlane().extract(images))
