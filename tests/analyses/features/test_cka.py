"""Laws of CKA, also between two models (src/visprism/analyses/features/{cka,hsic}.py)."""

from itertools import permutations

import numpy as np
import pytest
import torch
from maps import error_of, results_of
from scipy.spatial.distance import pdist, squareform
from small_models import OneBlock
from torch import nn

from visprism import CKA, InputError, assert_results_equal, compare, dissect


def similarity(*maps, cut=None, kernel="linear", bandwidth=0.5):
    """The similarity of feature maps of the same images; `cut` gives the sizes of batches."""
    return results_of(CKA(kernel, bandwidth=bandwidth), *maps, cut=cut)[0]


def pair(x, y, column="cka", **options):
    """CKA of two feature maps."""
    return getattr(similarity(x, y, **options), column)[1]


@pytest.fixture
def related(noise):
    """Two feature maps of 9 images that have something in common."""
    x = noise(9, 4, 3, 2)
    y = torch.tanh(x[:, :2] + 0.7 * noise(9, 2, 3, 2))
    return x, y


def test_unrelated_features_have_none_but_the_biased_estimate_says_almost_all(noise):
    result = similarity(noise(400, 300, 1, 1), noise(400, 300, 1, 1), cut=20)
    assert result.cka.low[1] < 0 < result.cka.high[1] < 0.3
    assert result.biased[1] > 0.9


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_rotation_scale_and_offset_of_features_leave_it_unchanged(related, noise, kernel):
    x, y = related
    rotation, _ = torch.linalg.qr(noise(24, 24))
    moved = 3e3 * (x.flatten(1) @ rotation).view_as(x) + 100 * noise(1, 4, 3, 2)
    for column in ("cka", "biased"):
        expected, transformed = (pair(z, y, column, kernel=kernel) for z in (x, moved))
        assert transformed == pytest.approx(expected, rel=1e-9)


def test_it_is_the_ratio_of_mean_hsic_each_batch_by_its_images(related):
    x, y = related
    means = {
        (a, b): (5 * u_statistic(p[:5], q[:5]) + 4 * u_statistic(p[5:], q[5:])) / 9
        for (a, p), (b, q) in permutations([("x", x), ("y", y), ("x", x), ("y", y)], 2)
    }
    expected = means["x", "y"] / np.sqrt(means["x", "x"] * means["y", "y"])
    result = similarity(x, y, cut=[5, 4])
    assert result.cka[1] == pytest.approx(expected)
    assert result.batches == 2


def test_its_error_is_that_of_the_jackknife_over_batches(noise):
    x, sizes = noise(360, 4, 1, 1), [4, 20] * 15
    y = x[:, :2] + noise(360, 2, 1, 1)
    left_out = []
    for i, batch in enumerate(torch.arange(360).split(sizes)):
        rest = np.setdiff1d(np.arange(360), batch)
        left_out.append(pair(x[rest], y[rest], cut=sizes[:i] + sizes[i + 1 :]))
    error = error_of(similarity(x, y, cut=sizes).cka, 30)[1]
    assert error == pytest.approx(np.std(left_out) * np.sqrt(29), rel=0.1)


def u_statistic(x, y):
    """HSIC as the sum over all quadruples of different images, for linear kernels."""
    k, l = ((z.flatten(1) @ z.flatten(1).T).numpy() for z in (x, y))  # noqa: E741
    quadruples = list(permutations(range(len(k)), 4))
    total = sum(
        k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in quadruples
    )  # Song et al. (2012), eq. 4
    return total / len(quadruples)


def test_rbf_agrees_with_distances_of_scipy(related):
    x, y, bandwidth = related[0][:7], related[1][:7], 0.6

    def centered(x):
        distances = pdist(x.flatten(1).numpy())
        k = np.exp(-squareform((distances / (bandwidth * np.median(distances))) ** 2) / 2)
        h = np.eye(len(k)) - 1 / len(k)
        return h @ k @ h

    k, l = map(centered, (x, y))  # noqa: E741
    expected = np.sum(k * l) / np.sqrt(np.sum(k * k) * np.sum(l * l))
    assert pair(x, y, "biased", kernel="rbf", bandwidth=bandwidth) == pytest.approx(expected)


def test_float32_keeps_its_digits_beside_a_large_mean(noise):
    x, y = (noise(12, 8, 20, 20) + 1e3).float(), noise(12, 8, 20, 20)
    exact = similarity(x.double(), y + x.double())
    single = similarity(x, (y + x.double()).float())
    np.testing.assert_allclose(single.cka, exact.cka, atol=1e-4)
    np.testing.assert_allclose(single.biased, exact.biased, atol=1e-4)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_features_without_a_structure_are_marked(noise, kernel):
    same = (0.1 + noise(1, 3, 5, 5)).float().expand(8, 3, 5, 5).clone()
    same[3] *= 1 + torch.finfo(torch.float32).eps  # what another order of sums leaves
    result = similarity(noise(8, 3, 5, 5).float(), same, kernel=kernel, cut=4)
    for column in (result.cka, result.biased):
        assert column[0] == pytest.approx(1)
        assert np.isnan(column[1:]).all()
    corners = 0.3 * torch.eye(8, dtype=torch.float64).view(8, 8, 1, 1)  # equally far apart
    assert np.isnan(similarity(noise(8, 3, 2, 2), corners, kernel=kernel).cka[1:]).all()


def test_its_deviation_over_batches_is_that_over_the_orders_in_each(noise):
    x, y = noise(9, 3, 1, 1), noise(9, 2, 1, 1)
    orders = [
        pair(x, torch.cat([y[:5][list(one)], y[5:][list(other)]]), cut=[5, 4])
        for one in list(permutations(range(5)))[::29]
        for other in permutations(range(4))
    ]
    assert pair(x, y, "null_deviation", cut=[5, 4]) == pytest.approx(np.std(orders), rel=0.1)


def test_a_smaller_last_batch_is_left_out(related):
    x, y = related
    assert_results_equal(similarity(x[:6], y[:6]), similarity(x, y, cut=[6, 3]))


def test_batches_under_4_are_refused(related):
    with pytest.raises(InputError, match=r"must hold at least 4 images for CKA.*Use a larger"):
        similarity(*related, cut=3)


# Two models.


def network(seed, *, width=4, side=8):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = OneBlock(width, patch=1).eval().double()
    return dissect(model, torch.zeros(2, 3, side, side, dtype=torch.float64))


@pytest.fixture
def images(noise):
    return noise(12, 3, 8, 8)


def test_two_models_by_what_their_blocks_give(images):
    a, b = network(0), network(1, width=6)
    result = compare(a, b, images.split(6), other_model="wide")
    maps = []
    for anatomy in (a, b):
        maps.append(anatomy.model.stem(images).detach())
    (expected, _) = results_of(CKA(), *maps, cut=6)
    assert (result.block[0], result.other[0]) == ("stem", "stem")
    assert result.cka[0] == pytest.approx(expected.cka[1], rel=1e-12)
    assert 0 < result.cka[0] < 1
    assert result.other_model == "wide"
    assert result.provenance.images == 12


def test_each_model_may_have_batches_of_its_own(images):
    a, b = network(0), network(1, side=16)
    large = nn.functional.interpolate(images, scale_factor=2)
    result = compare(a, b, images.split(6), large.split(6))
    assert np.isfinite(result.cka).all()
    with pytest.raises(InputError, match=r"images of one size, got 3x8x8 and 3x16x16\. "):
        compare(a, b, images.split(6))
