"""Laws of the Hessian of each block."""

import numpy as np
import pytest
import torch
from internals import Products

from visprism import Objective, dissect, hessian_by_block


def dense(model, batches, names):
    objective = Objective(model, batches, parameters=names)
    eye = torch.eye(len(objective), dtype=torch.float64)
    return Products(objective)(eye)


@pytest.fixture
def anatomy(network, images):
    return dissect(network, images[:2])


@pytest.mark.parametrize(
    ("network", "by"),
    [("attention", "block"), ("convolutional", "kind"), ("convolutional", "stage")],
    indirect=["network"],
)
def test_traces_and_eigenvalues_are_those_of_dense_hessians(anatomy, images, classes, by):
    batches = [(images[:6], classes[:6]), (images[6:], classes[6:])]
    result = hessian_by_block(anatomy, batches, by=by, probes=20, tol=1e-8)
    for row, name in enumerate(result.block):
        blocks = [
            b for b in anatomy
            if b.parameters and (b.name if by == "block" else f"{by} {getattr(b, by)}") == name
        ]  # fmt: skip
        names = [parameter for block in blocks for parameter in block.parameters]
        matrix = dense(anatomy.model, batches, names)
        values = torch.linalg.eigvalsh(matrix)
        leading = values[values.abs().argmax()]
        assert result.parameters[row] == len(matrix)
        assert result.eigenvalue[row] == pytest.approx(float(leading), rel=1e-6)
        error = abs(result.trace[row] - float(matrix.trace()))
        low, high = (ends[row] for ends in result.intervals)
        assert error < (high - low) + 1e-9
    assert result.parameters.sum() == sum(p.numel() for p in anatomy.model.parameters())


@pytest.mark.parametrize("network", ["convolutional"], indirect=True)
def test_a_fraction_is_the_loss_of_the_first_images(anatomy, images, classes):
    batches = [({"input": images[:4]}, classes[:4]), ({"input": images[4:]}, classes[4:])]
    result = hessian_by_block(anatomy, batches, fractions=(0.5, 1.0), probes=3)
    alone = hessian_by_block(
        anatomy, [(images[:4], classes[:4]), (images[4:5], classes[4:5])], probes=3
    )
    half = result.select(result.fraction == "5 images")
    assert set(result.fraction) == {"10 images", "5 images"}
    np.testing.assert_allclose(half.trace, alone.trace, rtol=1e-9)
    np.testing.assert_allclose(half.nll, alone.nll, rtol=1e-12)
