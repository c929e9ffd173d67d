"""Laws of PCA pictures."""

import numpy as np
import pytest
import torch
from small_models import OneBlock

import visprism as vp
from visprism.analyses.features.patch_pca import principal_scores, scaled


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return OneBlock().eval(), torch.randn(5, 3, 16, 24)


def measured(model, *batches, **options):
    return vp.PatchPCA(**options)(model, list(batches))


def test_signs_depend_on_neither_order_nor_basis():
    tokens = np.exp(np.random.default_rng(2).normal(size=(60, 5)))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    order = np.random.default_rng(1).permutation(60)
    first, _ = principal_scores(tokens)
    for moved in (tokens @ turn, tokens[:, ::-1], 3 * tokens - 7):
        second, _ = principal_scores(moved)
        np.testing.assert_allclose(scaled(second), scaled(first), atol=1e-8)
    reordered, _ = principal_scores(tokens[order])
    np.testing.assert_allclose(reordered, first[order], atol=1e-8)


def test_agrees_with_a_singular_value_decomposition_of_all_patches(network):
    model, images = network
    result = measured(model, images[:2], images[2:])
    with torch.no_grad():
        x = model.stem(images)
    rows = x.permute(0, 2, 3, 1).reshape(-1, 6).double().numpy()
    rows = rows - rows.mean(0)
    _, values, axes = np.linalg.svd(rows, full_matrices=False)
    scores = rows @ axes[:3].T
    scores *= np.sign((scores**3).sum(0))
    low, high = np.percentile(scores, [1, 99], axis=0)
    expected = ((scores - low) / (high - low)).clip(0, 1).reshape(5, 4, 6, 3)
    pictures = result.pictures()
    for image in range(5):
        np.testing.assert_allclose(pictures["stem", image], expected[image], atol=1e-4)
    explained = result.explained[result.block == "stem"][0]
    assert explained == pytest.approx((values[:3] ** 2).sum() / (values**2).sum(), rel=1e-5)


def test_maps_that_are_not_finite_are_refused(network):
    model, images = network
    with pytest.raises(vp.InputError, match=r"feature maps must be finite, .* block 'stem'"):
        measured(model, images.masked_fill(images > 3, torch.nan))


def test_the_background_has_no_color_and_does_not_count(network):
    model, images = network
    everything, result = (
        measured(model, images, **o) for o in ({}, {"background_threshold": 0.6})
    )
    background = ~(everything.first > 0.6)
    assert 0 < background.sum() < len(background)
    assert (np.isnan(result.first) == background).all()
    stem = (result.block == "stem") & ~background
    with torch.no_grad():
        rows = model.stem(images).permute(0, 2, 3, 1).reshape(-1, 6).double().numpy()
    scores, _ = principal_scores(rows[~background[result.block == "stem"]])
    np.testing.assert_allclose(result.second[stem], scaled(scores)[:, 1], atol=1e-4)
