"""Laws of singular values (src/visprism/analyses/features/singular_values.py)."""

import numpy as np
import pytest
import torch
from einops import rearrange
from maps import measure, results_of

from visprism import SingularValues


def values(*maps, level="tokens"):
    result = measure(SingularValues(), *maps)
    return result.select(result.level == level)


def ranks(*maps):
    return results_of(SingularValues(), *maps)[1]


def test_the_ranks_of_two_values_by_hand():
    x = torch.tensor([[3.0, 3, -3, -3], [1, -1, 1, -1]]).double().view(1, 2, 2, 2)
    result = ranks(x)
    p = np.array([3, 1]) / 4
    assert result.token_rank.item() == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert result.filled == pytest.approx(result.token_rank.item() / 2)  # of two channels


def test_images_that_are_alike_have_no_rank_but_their_tokens_do(noise):
    x = noise(1, 3, 4, 4).expand(5, -1, -1, -1)
    assert np.isnan(values(x, level="images").relative).all()
    result = ranks(x)
    assert np.isnan(result.image_rank.item())
    assert result.token_rank.item() > 1


def test_agrees_with_the_decomposition_of_the_whole_matrix(noise):
    x = (noise(7, 6, 4, 3) * torch.logspace(0, -3, 6)[:, None, None] + 5).numpy()
    matrices = {"tokens": rearrange(x, "b c h w -> (b h w) c"), "images": x.mean((2, 3))}
    for level, matrix in matrices.items():
        expected = np.linalg.svd(matrix - matrix.mean(0), compute_uv=False)
        spectrum = values(torch.from_numpy(x), level=level)
        # A variance of 1e-8 beside a squared mean of 150 keeps six digits of float64.
        np.testing.assert_allclose(spectrum.relative, expected / expected[0], rtol=1e-5)
