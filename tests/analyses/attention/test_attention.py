"""Laws of the statistics of attention (src/visprism/analyses/attention/attention.py)."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import timm
import torch
from maps import error_of, gathered
from scipy.spatial.distance import pdist, squareform

import visprism as vp
from visprism.analyses import Attention

PATCH = 16  # pixels; the networks' grids are 4x4


@cache
def built(name="vit_tiny_patch16_224", **options):
    options = {"embed_dim": 24, "num_heads": 3} | options
    model = timm.create_model(name, img_size=64, depth=2, **options).eval()
    images = torch.randn(5, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return model, images, vp.dissect(model, images)


@pytest.fixture(scope="module")
def without_class_token():
    return vp.attentions(built(class_token=False, global_pool="avg")[2])[0]


def windows_of(height, width):
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=(height, width), depths=(2,), embed_dim=24
    ).eval()
    return vp.attentions(vp.dissect(model, torch.randn(2, 3, height, width)))[0]


def found(attention, *heads):
    """What is found where each head has the same weights in every window and image."""
    weights = torch.stack([torch.as_tensor(h, dtype=torch.float64) for h in heads])
    windows = len(attention.geometry.queries.index)
    few = vp.Weights(attention, weights.expand(2, windows, *weights.shape))
    return gathered(Attention(), [{attention: few}])[0]


@pytest.fixture(autouse=True)
def _as_many_heads_as_given(monkeypatch):
    # Weights made by hand have as many heads as the test wants.
    monkeypatch.setattr(
        "visprism.anatomy.trace.token_grids.AttentionGeometry.heads", property(lambda _: 3)
    )


def centers(side, length):
    at = [(row + 0.5, column + 0.5) for row, column in product(range(side), repeat=2)]
    return np.array(at) * length


def test_uniform_attention(without_class_token):
    n = 16
    at = centers(4, PATCH)
    distances = np.linalg.norm(at[:, None] - at[None], axis=-1)
    result = found(without_class_token, *[np.full((n, n), 1 / n)] * 3)
    np.testing.assert_allclose(result.distance, distances.mean())
    np.testing.assert_allclose(result.entropy, math.log(n))
    np.testing.assert_allclose(result.nmi, 0, atol=1e-6)
    np.testing.assert_allclose(result.redundancy, 1)
    np.testing.assert_allclose(result.prefix_share, 0, atol=1e-12)


def test_attention_to_itself_and_to_the_next_column(without_class_token):
    eye = np.eye(16)
    right = eye[np.arange(16).reshape(4, 4)[:, [1, 2, 3, 0]].ravel()]  # the last looks back
    down = eye[np.arange(16).reshape(4, 4)[[1, 2, 3, 0]].ravel()]
    result = found(without_class_token, eye, right, down)
    one_step = (3 * PATCH + 3 * PATCH) / 4  # three of four go one patch, the last three back
    np.testing.assert_allclose(result.distance, [0, one_step, one_step])
    np.testing.assert_allclose(result.entropy, 0, atol=1e-12)
    np.testing.assert_allclose(result.nmi, 1)
    np.testing.assert_allclose(result.redundancy, 0, atol=1e-12)  # no two look alike


def test_mutual_information_by_its_definition(without_class_token):
    weights = np.random.default_rng(0).dirichlet(np.ones(16) / 4, size=(3, 16))
    result = found(without_class_token, *weights)
    for head, a in enumerate(weights):
        joint, keys = a / 16, a.mean(0)
        information = (joint * np.log(joint / (keys / 16))).sum()
        scale = math.sqrt(math.log(16) * -(keys * np.log(keys)).sum())
        assert result.nmi[head] == pytest.approx(information / scale, rel=1e-9)


def test_class_tokens_have_no_place():
    all_to_class = np.tile(np.eye(17)[0], (17, 1))
    half = 0.5 * all_to_class + 0.5 * np.eye(17)
    of_class_alone = np.eye(17)  # what the class token itself attends to does not count
    of_class_alone[0] = 1 / 17
    attention = vp.attentions(built()[2])[0]
    result = found(attention, all_to_class, half, of_class_alone)
    np.testing.assert_allclose(result.prefix_share, [1, 0.5, 0], atol=1e-12)
    np.testing.assert_allclose(result.distance, [0, 0, 0])
    np.testing.assert_allclose(result.entropy, [0, math.log(2), 0], atol=1e-12)


def test_windows_count_by_their_queries():
    # The grid is 10x14, so that two of four windows of 7x7 have 3 rows and are padded.
    result = found(windows_of(40, 56), *[np.full((49, 49), 1 / 49)] * 3)
    at = [4.0 * np.array(list(product(range(rows), range(7)))) for rows in (7, 3)]
    distances = [np.linalg.norm(a[:, None] - a[None], axis=-1).mean() for a in at]
    np.testing.assert_allclose(result.distance, np.average(distances, weights=[7, 3]))
    np.testing.assert_allclose(result.prefix_share, 1 - (7 * 7 + 3 * 3) / 70)


def test_redundancy_is_the_mean_cosine_with_the_other_heads():
    windowed = windows_of(56, 56)
    weights = np.random.default_rng(0).dirichlet(np.ones(49) / 4, size=(1, 4, 3, 49))
    heads = weights[0].swapaxes(0, 1).reshape(3, -1)
    cosines = 1 - squareform(pdist(heads, "cosine"))
    made = vp.Weights(windowed, torch.from_numpy(weights))
    result = gathered(Attention(), [{windowed: made}])[0]
    np.testing.assert_allclose(result.redundancy, (cosines.sum(1) - 1) / 2)


def test_the_error_of_the_mean_over_heads_keeps_that_heads_see_the_same_images():
    model, images, anatomy = built()
    for block in model.blocks:  # contrast: at initialization NMI is as small as its rounding
        block.attn.qkv.weight.data *= 30
    (statistics,) = vp.observe(anatomy, images.split(2), [Attention()])
    with torch.no_grad(), vp.attend(anatomy, Attention().extract) as extracts:
        model(images)
    for name in ("distance", "nmi"):
        by_image = np.concatenate([e[name].numpy() for e in extracts.values()], 1).mean(1)
        mean, error = by_image.mean(), by_image.std(ddof=1) / math.sqrt(len(images))
        found_mean = getattr(statistics, f"mean_{name}")
        assert found_mean == pytest.approx(mean, rel=1e-4)
        assert error_of(found_mean, len(images)) == pytest.approx(error, rel=1e-3)


def test_other_statistics_see_the_same_bits_beside_attention():
    """So that a resumed study, whose pass has fewer statistics, ends with the same results."""
    _, images, anatomy = built()
    alone = vp.observe(anatomy, [images], [vp.Fourier(), vp.CKA()])
    beside = vp.observe(anatomy, [images], [vp.Fourier(), Attention(), vp.CKA()])
    for a, b in zip(alone, (beside[0], beside[2]), strict=True):
        vp.assert_results_equal(a, b, rtol=0.0)


def test_one_head_has_no_other(monkeypatch):
    monkeypatch.setattr(
        "visprism.anatomy.trace.token_grids.AttentionGeometry.heads", property(lambda _: 1)
    )
    attention = vp.attentions(built(num_heads=1)[2])[0]
    result = found(attention, np.full((17, 17), 1 / 17))
    assert np.isnan(result.redundancy).all()
    assert np.isfinite(result.nmi).all()
