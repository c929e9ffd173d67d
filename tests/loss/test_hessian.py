"""Laws of Hessian spectra of mini-batches (src/visprism/loss/)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from internals import Products
from torch import nn

from visprism import Objective, hessian_spectrum, top_eigenvalues


@pytest.fixture
def batches(images, classes):
    """Two mini-batches of 4 and a last one of 2."""
    return list(zip(images.split(4), classes.split(4), strict=True))


def of(spectrum, **wanted):
    """Rows with these entries."""
    keep = np.ones(len(spectrum), dtype=bool)
    for name, value in wanted.items():
        keep &= getattr(spectrum, name) == value
    return spectrum.select(keep)


@pytest.mark.parametrize("network", ["attention"], indirect=True)
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_each_mini_batch_has_its_own_eigenvalues_also_with_weight_decay(
    network, batches, decay
):
    spectrum = hessian_spectrum(network, batches, k=3, tol=1e-9, weight_decay=decay)
    for number, batch in enumerate(batches):
        objective = Objective(network, [batch], weight_decay=decay)
        eigenvalues = top_eigenvalues(objective, k=3, tol=1e-9)
        rows = of(spectrum, batch=number, which="LM")
        np.testing.assert_allclose(rows.value, eigenvalues.value, rtol=1e-8)
        np.testing.assert_array_equal(rows.rank, [1, 2, 3])
        assert rows.nll[0] == pytest.approx(eigenvalues.nll, rel=1e-12)
    assert spectrum.provenance.images == 10
    assert spectrum.provenance.batch_size == 4


def test_the_ends_are_there_too(convolutional, batches):
    spectrum = hessian_spectrum(convolutional, batches, k=2, tol=1e-6)
    for number, batch in enumerate(batches):
        top, bottom = (
            top_eigenvalues(Objective(convolutional, [batch]), k=1, which=which, tol=1e-9)
            for which in ("LA", "SA")
        )
        for exact, which in ((top, "LA"), (bottom, "SA")):
            rows = of(spectrum, batch=number, which=which, rank=0)
            assert abs(rows.value[0] - exact.value[0]) <= rows.residual[0] + 1e-8


@pytest.mark.parametrize("parameters", ["all", "*bias"])
def test_where_not_all_parameters_decay_l2_is_solved_for(convolutional, batches, parameters):
    """Against the dense Hessian plus the diagonal of weight decay."""
    network = convolutional
    chosen = {"decayed": "*weight", "parameters": parameters}
    spectrum = hessian_spectrum(network, batches[:1], k=3, tol=1e-9, weight_decay=0.5, **chosen)
    objective = Objective(network, batches[:1], weight_decay=0.5, **chosen)
    eye = torch.eye(len(objective), dtype=torch.float64)
    dense = Products(objective)(eye)
    exact = torch.linalg.eigvalsh(dense).numpy()
    rows = of(spectrum, which="LM")
    np.testing.assert_allclose(rows.value, exact[np.argsort(-abs(exact))[:3]], rtol=1e-8)
    assert spectrum.summary().objectives[0].startswith("NLL + L2 (weight decay 0.5")


def test_rounding_is_no_negative_curvature(images, classes):
    """Softmax regression is convex: of two classes, 4 images have at most 4 eigenvalues."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 2)).eval()
    data = [(images[:4].float(), classes[:4] % 2)]
    spectrum = hessian_spectrum(model, data, k=8)
    assert (spectrum.value < 0).any()
    summary = spectrum.summary()
    assert summary.nep == 0
    assert summary.reading("smallest", 0)["reading"] != "yes"
    assert summary.ape_median > 1e-3
    assert (spectrum.curves().sign == 1).all()


def test_the_number_of_mini_batches_can_be_given(convolutional, batches):
    spectrum = hessian_spectrum(convolutional, batches, k=2, num_batches=2)
    every = hessian_spectrum(convolutional, batches, k=2)
    assert replace(every.select(every.batch < 2), products=spectrum.products) == spectrum
    assert spectrum.batches == 2
    assert spectrum.provenance.images == 8
