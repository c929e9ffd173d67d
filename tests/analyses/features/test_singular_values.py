"""Laws of singular values (src/visprism/analyses/features/singular_values.py)."""

import numpy as np
import pytest
import torch
from einops import rearrange
from maps import results_of

from visprism import SingularValues, assert_results_equal


def values(measure, *maps, level="tokens"):
    result = measure(SingularValues(), *maps)
    return result.select(result.level == level)


def ranks(*maps):
    values, ranks = results_of(SingularValues(), *maps)
    assert_results_equal(values.effective_ranks(), ranks)
    return ranks


def orthogonal(size, noise):
    return torch.linalg.qr(noise(size, size))[0]


def test_channels_of_known_deviations_give_them_in_order(measure):
    signs = torch.tensor(
        [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]
    ).double()
    x = (signs[1:] * torch.tensor([2.0, 4.0, 1.0])[:, None]).view(1, 3, 2, 2) + 7
    result = values(measure, x)
    np.testing.assert_allclose(result.relative, [1, 0.5, 0.25])
    np.testing.assert_allclose(result.share, np.array([16, 4, 1]) / 21)
    assert result.rank.tolist() == [1, 2, 3]


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_equal_singular_values_have_their_number_as_rank(noise, rank):
    axes = orthogonal(64, noise)[:, :rank]
    axes = torch.linalg.qr(axes - axes.mean(0))[0]  # tokens of mean zero
    tokens = axes @ orthogonal(6, noise)[:rank]
    result = ranks(rearrange(tokens, "(h w) c -> 1 c h w", h=8))
    assert result.token_rank.item() == pytest.approx(rank)
    assert result.token_participation.item() == pytest.approx(rank)
    assert result.channels.item() == 6


def test_the_ranks_of_two_values_by_hand():
    x = torch.tensor([[3.0, 3, -3, -3], [1, -1, 1, -1]]).double().view(1, 2, 2, 2)
    result = ranks(x)
    p = np.array([3, 1]) / 4
    assert result.token_rank.item() == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert result.token_participation.item() == pytest.approx(100 / 82)


def test_images_that_are_alike_have_no_rank_but_their_tokens_do(measure, noise):
    x = noise(1, 3, 4, 4).expand(5, -1, -1, -1)
    assert np.isnan(values(measure, x, level="images").relative).all()
    result = ranks(x)
    assert np.isnan(result.image_rank.item())
    assert result.token_rank.item() > 1


def test_images_span_one_direction_less_than_there_are(measure, noise):
    result = values(measure, noise(4, 9, 3, 3), level="images")
    assert (result.relative > 0).sum() == 3


def test_a_rotation_of_the_channels_a_shift_and_a_scale_change_nothing(measure, noise):
    x = noise(6, 5, 4, 4) * torch.arange(1, 6)[:, None, None]
    moved = -3 * torch.einsum("bchw,cd->bdhw", x, orthogonal(5, noise)) + 20
    for level in ("tokens", "images"):
        one, other = (values(measure, m, level=level) for m in (x, moved))
        np.testing.assert_allclose(other.relative, one.relative, rtol=1e-8)


def test_the_order_of_positions_changes_nothing(measure, noise):
    x = noise(3, 5, 4, 4)
    one, other = (values(measure, m) for m in (x, x.flip(2).transpose(2, 3)))
    np.testing.assert_allclose(other.relative, one.relative)


def test_agrees_with_the_decomposition_of_the_whole_matrix(measure, noise):
    x = (noise(7, 6, 4, 3) * torch.logspace(0, -3, 6)[:, None, None] + 5).numpy()
    matrices = {"tokens": rearrange(x, "b c h w -> (b h w) c"), "images": x.mean((2, 3))}
    for level, matrix in matrices.items():
        expected = np.linalg.svd(matrix - matrix.mean(0), compute_uv=False)
        spectrum = values(measure, torch.from_numpy(x), level=level)
        # A variance of 1e-8 beside a squared mean of 150 keeps six digits of float64.
        np.testing.assert_allclose(spectrum.relative, expected / expected[0], rtol=1e-5)
        np.testing.assert_allclose(spectrum.share, expected**2 / (expected**2).sum(), rtol=1e-5)
