"""Laws of the Fourier plane (src/visprism/analyses/features/fourier_plane.py)."""

import numpy as np
import pytest
import torch
from maps import error_of
from small_models import OneBlock

from visprism import FourierPlane, dissect, observe
from visprism.passes.profiles import log_amplitude_plane


@pytest.fixture
def images():
    return torch.randn(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))


def test_the_plane_is_the_sum_over_positions(images):
    level = log_amplitude_plane(images.double())
    k, l = 2, -1  # noqa: E741 (as in the formula)
    u, v = np.indices((8, 6))
    wave = np.exp(-2j * np.pi * (k * u / 8 + l * v / 6))
    expected = np.log(np.abs((images.double().numpy() * wave).sum((2, 3))) + 1e-6).mean(1)
    np.testing.assert_allclose(level[:, 4 + k, 3 + l], expected, rtol=1e-10)


def test_the_branch_is_what_the_block_adds(images):
    model = OneBlock(patch=1).eval()
    (result,) = observe(dissect(model, images), [images], [FourierPlane(maps="branches")])
    (picture,) = result.pictures().values()
    added = model.block(model.stem(images)).relu().detach()
    level = log_amplitude_plane(added)
    relative = (level - level[:, 4:5, 3:4]).numpy()
    np.testing.assert_allclose(picture, relative.mean(0), atol=1e-4)
    error = relative.std(0, ddof=1).ravel() / 5**0.5
    np.testing.assert_allclose(error_of(result.relative, 5), error, atol=1e-4)
    np.testing.assert_allclose(np.unique(result.vertical), np.arange(-4, 4) / 4)
    np.testing.assert_allclose(np.unique(result.horizontal), np.arange(-3, 3) / 3)
