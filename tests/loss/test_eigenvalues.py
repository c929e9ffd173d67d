"""Laws of eigenvalues, densities and traces (src/visprism/loss/)."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from small_models import hugging_face_config, seeded
from torch.nn import functional
from torchvision.models import VisionTransformer
from transformers import ViTForImageClassification

import visprism as vp
from visprism.core.run import stream
from visprism.loss.products import Products


@pytest.fixture
def objective(network, images, classes):
    return vp.Objective(network, [(images, classes)], weight_decay=0.01)


_DENSE = {}


@pytest.fixture
def dense(network, objective):
    """The whole Hessian, a product for each column; a network has the same in every test."""
    kind = type(network)
    if kind not in _DENSE:
        _DENSE[kind] = Products(objective)(torch.eye(len(objective), dtype=torch.float64))
    return _DENSE[kind]


def test_the_vectors_are_the_sharpest_directions(objective, dense):
    values, vectors = vp.top_eigenpairs(objective, k=3, tol=1e-10)
    np.testing.assert_allclose(vectors @ vectors.T, torch.eye(3), atol=1e-10)
    np.testing.assert_allclose(
        vectors @ dense, torch.tensor(values.value)[:, None] * vectors, atol=1e-8
    )


def assert_within_four_errors(estimated, exact):
    """A 95% interval is about four standard errors wide."""
    assert abs(estimated - exact) < estimated.high - estimated.low


@pytest.mark.parametrize("network", ["attention"], indirect=True)
def test_density_has_the_moments_of_the_dense_hessian(objective, dense):
    exact = torch.linalg.eigvalsh(dense)
    density = vp.spectral_density(objective, runs=30, steps=4)
    np.testing.assert_allclose(np.bincount(density.run, density.weight), 1, rtol=1e-10)
    for degree in (1, 2, 3):
        assert_within_four_errors(density.moment(degree), float((exact**degree).mean()))
    assert np.isnan(density.select(density.run < 2).moment(1).low)  # of fewer than 3


def test_the_outermost_nodes_are_the_outermost_eigenvalues(objective, dense):
    density = vp.spectral_density(objective, runs=1, steps=60)
    exact = torch.linalg.eigvalsh(dense)
    assert density.node.max() == pytest.approx(float(exact.max()), rel=1e-8)
    assert density.node.min() == pytest.approx(float(exact.min()), rel=1e-8)
    nearest = np.abs(density.node[:, None] - exact.numpy()).min(1)
    assert (nearest <= density.residual + 1e-10).all()


@pytest.mark.parametrize("network", ["convolutional"], indirect=True)
def test_the_trace_is_that_of_the_dense_hessian(objective, dense):
    estimate = vp.trace(objective, probes=60)
    assert_within_four_errors(estimate.trace, float(dense.trace()))


MODELS = {  # as their libraries make them
    "resnet20": lambda: vp.load_model("resnet20", seed=1).model,
    "torchvision's ViT": lambda: VisionTransformer(8, 4, 2, 2, 24, 48, num_classes=10),
    "Hugging Face's ViT": lambda: ViTForImageClassification(
        hugging_face_config(image_size=8, patch_size=4, num_labels=10)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_arpack_and_products_by_autograd(name):
    model = seeded(MODELS[name])
    images = torch.randn(4, 3, 8, 8, generator=stream(0, "images"))
    targets = torch.tensor([0, 3, 3, 9])
    parameters = list(model.parameters())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        logits = model(images)
        loss = functional.cross_entropy(getattr(logits, "logits", logits), targets)
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)

    def product(v):
        chunks = torch.from_numpy(v.astype(np.float32)).flatten()
        parts = chunks.split([p.numel() for p in parameters])
        shaped = [c.view_as(p) for c, p in zip(parts, parameters, strict=True)]
        derivatives = torch.autograd.grad(gradient, parameters, shaped, retain_graph=True)
        return torch.cat([part.flatten() for part in derivatives]).numpy()

    size = sum(p.numel() for p in parameters)
    operator = LinearOperator((size, size), matvec=product, dtype=np.float32)
    theirs = eigsh(operator, k=3, which="LM", tol=1e-6, return_eigenvectors=False)
    ours = vp.top_eigenvalues(vp.Objective(model, [(images, targets)]), k=3, tol=1e-3)
    np.testing.assert_allclose(np.sort(ours.value), np.sort(theirs), rtol=1e-4)
