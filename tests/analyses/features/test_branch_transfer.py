"""Laws of the transfer function of residual branches (src/visprism/analyses/features)."""

import numpy as np
import pytest
import torch
from maps import classifier, error_of, small_resnet
from torch import nn

from visprism import BranchTransfer, dissect
from visprism.passes.features import observations


class Residual(nn.Module):
    """Adds a circular convolution with one kernel for all channels."""

    def __init__(self, kernel, width=3):
        super().__init__()
        kernel = torch.as_tensor(kernel, dtype=torch.float64)
        size = kernel.shape[-1]
        options = {"padding": size // 2, "padding_mode": "circular", "groups": width}
        self.conv = nn.Conv2d(width, width, size, bias=False, dtype=torch.float64, **options)
        self.conv.weight.data[:] = kernel

    def forward(self, x):
        return x + self.conv(x)


def network(*kernels):
    return classifier(nn.Conv2d(3, 3, 1), *map(Residual, kernels), channels=3).double()


def measured(model, images, **options):
    """The transfer, its highest frequency, and that by kind of block."""
    anatomy = dissect(model, images[:2])
    return observations(anatomy, images.split(4), [BranchTransfer(**options)])[0]


BLUR = np.outer([1, 2, 1], [1, 2, 1]) / 16
LAPLACE = [[0, -1, 0], [-1, 4, -1], [0, -1, 0]]


@pytest.mark.parametrize(
    ("kernel", "response"),
    [
        (BLUR, lambda f: ((1 + np.cos(np.pi * f)) / 2) ** 2),
        (LAPLACE, lambda f: 4 - 4 * np.cos(np.pi * f)),
    ],
    ids=["blur", "laplace"],
)
def test_the_gain_of_a_convolution_is_its_frequency_response(noise, kernel, response):
    result, *_ = measured(network(kernel), 1e3 * noise(8, 3, 9, 9))
    rows = result.select((result.block == "1") & (result.frequency > 0))
    np.testing.assert_allclose(rows.gain, np.log(response(rows.frequency)), atol=1e-4)
    np.testing.assert_allclose(error_of(rows.gain, 8), 0, atol=1e-4)
    change = rows.gain - rows.gain[0]
    np.testing.assert_allclose(rows.relative_lowest, change, atol=1e-12)


def test_the_sum_may_fall_where_the_branch_rises(noise):
    """A negative factor times high-pass is low-pass after the sum, high-pass before it."""
    kernel = -0.12 * np.array(LAPLACE)
    _, highest, summary = measured(network(kernel), 1e3 * noise(8, 3, 9, 9))
    assert highest.relative_lowest.item() > 1
    row = summary.of_kind("conv")["gain-to-lowest"]
    assert (summary.rises[row], summary.falls[row]) == (1, 0)
    assert set(summary.quantity) == {"gain-to-lowest"}  # the branch has no mean


def test_a_branch_that_adds_nothing_has_no_gain_and_no_part_in_the_mean(noise):
    images = 1e3 * noise(8, 3, 9, 9)
    model = network(LAPLACE, np.zeros((3, 3)))
    rows, _, summary = measured(model, images)
    assert np.isnan(rows.gain[rows.block == "2"]).all()
    _, _, alone = measured(nn.Sequential(*model[:2], *model[3:]).eval(), images)
    assert summary.mean.tolist() == pytest.approx(alone.mean.tolist())


def log_amplitude(x):
    """On the diagonal, mean over channels, by image."""
    level = np.log(np.abs(np.fft.fft2(x.detach().numpy())) + 1e-6).mean(1)
    return level.diagonal(axis1=1, axis2=2)[:, : x.shape[2] // 2 + 1]


def test_the_interval_by_kind_is_that_of_the_mean_over_branches(noise):
    images = noise(8, 3, 9, 9) + 1
    model = network(np.eye(3) - 0.2, LAPLACE)
    for block in model[1:3]:  # not linear, so that the gain differs from image to image
        block.conv = nn.Sequential(block.conv, nn.Tanh()).eval()
    _, result, summary = measured(model, images)
    first = model[0](images)
    second = model[1](first)
    gains = [
        log_amplitude(block.conv(x)) - log_amplitude(x)
        for block, x in ((model[1], first), (model[2], second))
    ]
    by_kind = zip(("relative", "relative_lowest"), summary.mean, strict=True)
    for reference, (name, number) in enumerate(by_kind):
        by_image = np.mean([gain[:, -1] - gain[:, reference] for gain in gains], axis=0)
        error = by_image.std(ddof=1) / np.sqrt(8)
        np.testing.assert_allclose(getattr(result, name).mean(), by_image.mean(), rtol=1e-5)
        assert number == pytest.approx(by_image.mean(), rel=1e-5)
        assert error_of(number, 8) == pytest.approx(error, rel=1e-4)


def test_a_branch_beside_a_convolution_in_the_shortcut_does_not_count():
    model = small_resnet(layers=(2, 1, 1, 1))  # four of five blocks have one
    images = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    result, *_ = measured(model, images, profile="radial")
    assert set(result.block) == {"layer1.1"}
    assert np.isfinite(result.gain).all()
