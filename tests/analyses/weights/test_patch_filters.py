"""Laws of a model's first kernels (src/visprism/analyses/weights/patch_filters.py)."""

import numpy as np
import pytest
import torch
from maps import classifier
from timm.layers import ScaledStdConv2d
from torch import nn

from visprism import InputError, patch_filters


def pictures(result):
    """Each component as an array (channels, height, width)."""
    shape = tuple(axis.max() + 1 for axis in (result.channel, result.row, result.column))
    return result.value.reshape(-1, *shape)


def shares(result):
    return result.share[np.unique(result.component, return_index=True)[1]]


def test_kernels_of_two_patterns_have_these_two_components(with_kernels):
    one, other = torch.zeros(2, 3, 2, 4).double()
    one[0, :, 1], other[2, 1] = 2.0, torch.tensor([1.0, -3.0, 1.0, 0.0])
    signs = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]]).double()
    factors = signs * torch.tensor([3.0, 1.0])  # no mean, and no correlation
    kernels = torch.einsum("kp,pchw->kchw", factors, torch.stack([one, other])) + 7.0
    result = patch_filters(with_kernels(kernels))
    first, second = pictures(result)  # exactly two
    np.testing.assert_allclose(first, one / 2, atol=1e-12)
    np.testing.assert_allclose(second, other / -3, atol=1e-12)
    # Variance along a pattern: squared norm (8 and 11) times squared factor (9 and 1).
    np.testing.assert_allclose(shares(result), [72 / 83, 11 / 83])


def test_each_row_says_which_weight_it_is(with_kernels):
    kernels = torch.zeros(2, 3, 4, 5)
    kernels[0, 2, 1, 3] = 1.0
    result = patch_filters(with_kernels(kernels))
    (at,) = np.flatnonzero(result.value)
    assert [int(x[at]) for x in (result.channel, result.row, result.column)] == [2, 1, 3]
    assert result.value[at] == 1
    assert len(result) == 60


def test_agrees_with_the_eigenvectors_of_the_covariance(with_kernels, noise):
    kernels = noise(40, 3, 2, 2)
    result = patch_filters(with_kernels(kernels), components=5)
    values, vectors = np.linalg.eigh(np.cov(kernels.reshape(40, -1).T.numpy()))
    np.testing.assert_allclose(shares(result), values[::-1][:5] / values.sum())
    for kernel, vector in zip(pictures(result), vectors.T[::-1], strict=False):
        cosine = kernel.ravel() @ vector / np.linalg.norm(kernel)
        assert abs(cosine) == pytest.approx(1)


def test_kernels_are_found_in_a_gained_convolution(taken_apart):
    layers = ScaledStdConv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 1)
    model = classifier(*layers, channels=6)  # without norms: weights are scaled before use
    result = patch_filters(taken_apart(model, 1, 9, 9))
    assert (result.parameter, result.kernels) == ("0.weight", 6)


class Flat(nn.Module):
    """Patches by a linear map."""

    def __init__(self):
        super().__init__()
        self.patches, self.mlp, self.head = nn.Linear(12, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        x = nn.functional.unfold(x, 2, stride=2).transpose(1, 2)
        x = self.patches(x)
        return self.head((x + self.mlp(x)).mean(1))


def test_a_stem_without_a_convolution_over_colors_is_refused(taken_apart):
    sentence = r"must be a convolution .* got linear with .*patches.weight \(8x12"
    with pytest.raises(InputError, match=sentence):
        patch_filters(taken_apart(Flat(), 3, 8, 8))
    layers = nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.Conv2d(6, 6, 1)
    sentence = r"must be a convolution over the 3 channels .*0.weight \(6x1x3x3\)"
    with pytest.raises(InputError, match=sentence):
        patch_filters(taken_apart(classifier(*layers, channels=6), 3, 9, 9))
