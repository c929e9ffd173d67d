"""Laws of attention maps and rollouts (src/visprism/measure/attention)."""

import numpy as np
import pytest
import timm
import torch

from visprism.anatomy import attend, dissect
from visprism.core.errors import InputError
from visprism.measure.features import attention_maps, rollout


def built(name="vit_tiny_patch16_224", **options):
    options = {"img_size": 64, "depth": 3} | options
    model = timm.create_model(name, **options).eval()
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return dissect(model, image.repeat(2, 1, 1, 1)), image


def weights_of(anatomy, image):
    with torch.no_grad(), attend(anatomy, lambda w: w.values[0].numpy().copy()) as kept:
        anatomy.model(image)
    return list(kept.values())


def as_grids(maps, block, side=4):
    rows = maps.select(maps.block == block)
    return rows.weight.reshape(-1, side, side)


@pytest.fixture(scope="module")
def vit():
    return built()


@pytest.fixture(scope="module")
def swin():
    options = {"img_size": 64, "depths": (2, 2), "window_size": 4}
    model = timm.create_model("swin_tiny_patch4_window7_224", **options).eval()
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return dissect(model, image.repeat(2, 1, 1, 1)), image


# What a map shows: the weights themselves, at their places.


def test_a_pixel_asks_the_token_that_it_lies_in(vit):
    anatomy, image = vit
    maps = attention_maps(anatomy, image, query=(40, 20))  # row 2, column 1 of 4x4
    for name, weights in zip(anatomy[1::2], weights_of(anatomy, image), strict=False):
        expected = weights[0, :, 1 + 2 * 4 + 1, 1:].reshape(3, 4, 4)
        np.testing.assert_allclose(as_grids(maps, name.name), expected)
    assert maps.query == "40,20"


def test_the_class_token_is_the_first(vit):
    anatomy, image = vit
    maps = attention_maps(anatomy, image, query="class", blocks=["blocks.1.attn"])
    assert set(maps.block.tolist()) == {"blocks.1.attn"}
    expected = weights_of(anatomy, image)[1][0, :, 0, 1:].reshape(3, 4, 4)
    np.testing.assert_allclose(as_grids(maps, "blocks.1.attn"), expected)


def test_the_mean_is_over_the_queries_on_the_grid(vit):
    anatomy, image = vit
    expected = weights_of(anatomy, image)[0][0, :, 1:, 1:].mean(1).reshape(3, 4, 4)
    maps = attention_maps(anatomy, image)
    np.testing.assert_allclose(as_grids(maps, "blocks.0.attn"), expected, rtol=1e-5)


def test_a_window_is_put_back_where_it_lies(swin):
    anatomy, image = swin
    maps = attention_maps(anatomy, image, query=(0, 40))  # token (0, 10) of 16x16
    plain, shifted = (as_grids(maps, f"layers.0.blocks.{i}.attn", 16)[0] for i in (0, 1))
    window = np.zeros((16, 16), dtype=bool)
    window[:4, 8:12] = True
    np.testing.assert_array_equal(plain > 0, window)
    # Windows are shifted by 2: row 0 lies with rows 14 and 15, which are masked, and row 1.
    window = np.zeros((16, 16), dtype=bool)
    window[:2, 10:14] = True
    np.testing.assert_array_equal(shifted > 1e-9, window)
    np.testing.assert_allclose([plain.sum(), shifted.sum()], 1, rtol=1e-5)


def test_the_mean_over_windows_adds_up_to_one(swin):
    anatomy, image = swin
    maps = attention_maps(anatomy, image)
    for block in set(maps.block.tolist()):
        rows = maps.select((maps.block == block) & (maps.head == 1))
        assert rows.weight.sum() == pytest.approx(1, rel=1e-5)


# Rollouts.


def test_a_rollout_is_the_product_of_the_mean_weights(vit):
    anatomy, image = vit
    expected = np.eye(17)
    for weights in weights_of(anatomy, image):
        expected = (np.eye(17) + weights[0].mean(0)) / 2 @ expected
    result = rollout(anatomy, image)
    np.testing.assert_allclose(result.weight, expected[0, 1:], rtol=1e-4)
    assert result.row.tolist()[:5] == [0, 0, 0, 0, 1]


def test_without_a_class_token_it_is_the_mean_over_places():
    anatomy, image = built(class_token=False, global_pool="avg")
    expected = np.eye(16)
    for weights in weights_of(anatomy, image):
        expected = (np.eye(16) + weights[0].mean(0)) / 2 @ expected
    np.testing.assert_allclose(rollout(anatomy, image).weight, expected.mean(0), rtol=1e-4)


def test_the_gradient_is_that_of_the_logit_with_respect_to_the_weights():
    anatomy, image = built(depth=1)
    result = rollout(anatomy, image, gradient=True, target=7)
    model = anatomy.model
    attention = model.blocks[0].attn
    attention.fused_attn = False
    seen = []
    attention.attn_drop.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logit = model(image)[0, 7]
    (gradient,) = torch.autograd.grad(logit, seen)
    relevant = (seen[0] * gradient).clamp(min=0)[0].mean(0)
    np.testing.assert_allclose(result.weight, relevant[0, 1:].detach(), rtol=1e-3, atol=1e-9)


# Contracts and errors.


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"query": (64, 0)}, "the query 64,0 lies outside of the image of 64x64 pixels"),
        ({"query": (0, -1)}, "the query 0,-1 lies outside of the image"),
        (
            {"blocks": ["blocks.9"]},
            "no attention is called 'blocks.9'; there are",
        ),
    ],
)
def test_a_query_that_is_not_there(vit, options, sentence):
    anatomy, image = vit
    with pytest.raises(InputError, match=sentence):
        attention_maps(anatomy, image, **options)


def test_no_class_token(swin):
    anatomy, image = swin
    with pytest.raises(InputError, match=r"'layers.0.blocks.0.attn' has no class token; ask"):
        attention_maps(anatomy, image, query="class")


def test_windows_cannot_be_rolled_out(swin):
    with pytest.raises(InputError, match=r"cannot be rolled out; look at single attentions"):
        rollout(*swin)


def test_several_images_have_no_one_map(vit):
    anatomy, image = vit
    with pytest.raises(InputError, match=r"maps are of one image, got 3; pass images\[:1\]"):
        attention_maps(anatomy, image.repeat(3, 1, 1, 1))


def test_a_class_that_is_not_there(vit):
    with pytest.raises(InputError, match=r"target is 1000; the model has classes 0 to 999"):
        rollout(*vit, gradient=True, target=1000)
