"""Laws of the Hoyer sparsity (src/visprism/analyses/features/hoyer_sparsity.py)."""

import numpy as np
import torch
from maps import measure

from visprism import check_statistic
from visprism.analyses.features.hoyer_sparsity import HoyerSparsity


def test_equal_magnitudes_are_0_a_single_activation_1_and_scale_does_not_matter(noise):
    one = torch.zeros(2, 3, 4, 4)
    one[:, 1, 2, 3] = -5
    signs = torch.ones(2, 3, 4, 4)
    signs[:, ::2] = -1
    x = noise(2, 3, 4, 4)
    result = measure(HoyerSparsity(), signs, one, 0 * one, x, 7 * x)
    np.testing.assert_allclose(result.sparsity[:3], [0, 1, 0], atol=1e-6)
    assert 0 < result.sparsity[3] < 1
    np.testing.assert_allclose(result.sparsity[4], result.sparsity[3], rtol=1e-6)
    (answer,) = result.answers()
    assert answer.quantity == "Hoyer sparsity, mean over blocks"
    np.testing.assert_allclose(answer.value, result.sparsity.mean())


def test_it_obeys_the_laws_of_statistics(tmp_path):
    check_statistic(HoyerSparsity(), tmp_path)
