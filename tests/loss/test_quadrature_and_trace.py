"""Laws of quadrature and trace (src/visprism/loss/density.py), on matrices."""

import numpy as np
import pytest
import torch

from visprism.core.run import stream
from visprism.loss.density import hutchinson, hutchpp, quadrature


@pytest.fixture
def matrix():
    noise = torch.randn(60, 60, generator=stream(0, "matrix")).double()
    return noise + noise.T


def signs(n, p, seed=0):
    bits = torch.randint(2, (n, p), generator=stream(seed, "signs"))
    return (2 * bits - 1).double()


@pytest.mark.parametrize("steps", [1, 6])
def test_moments_are_exact_up_to_twice_the_steps_less_one(matrix, steps):
    v = signs(4, 60)
    nodes, weights, _ = quadrature(lambda V: V @ matrix, v, steps=steps)
    unit = v / v.norm(dim=1, keepdim=True)
    for degree in range(2 * steps):
        power = torch.linalg.matrix_power(matrix, degree)
        exact = ((unit @ power) * unit).sum(1)
        ours = (weights * nodes**degree).sum(1)
        np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-9 * 16**degree)


@pytest.mark.parametrize("estimate", [hutchinson, hutchpp])
def test_the_mean_over_many_estimates_is_the_trace(matrix, estimate):
    means = [estimate(lambda V: V @ matrix, signs(9, 60, seed)).mean() for seed in range(100)]
    spread = np.std(means) / len(means) ** 0.5
    assert abs(np.mean(means) - float(matrix.trace())) < 4 * spread


def test_hutchpp_is_exact_where_the_rank_is_low():
    low = torch.randn(3, 80, generator=stream(1, "low")).double()
    traced = hutchpp(lambda V: V @ low.T @ low, signs(12, 80))
    assert traced.mean() == pytest.approx(float((low**2).sum()), rel=1e-9)
