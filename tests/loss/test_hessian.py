"""Laws of Hessian spectra, of mini-batches and of each block (src/visprism/loss/)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from visprism import HessianByBlock, Objective, dissect, hessian_spectrum, top_eigenvalues
from visprism.loss.products import Products


def hessian_by_block(anatomy, batches, **options):
    return HessianByBlock(**options).of(anatomy, batches)


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
