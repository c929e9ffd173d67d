"""Laws of attention maps and rollouts (src/visprism/analyses/attention/attention_maps.py)."""

import numpy as np
import pytest
import timm
import torch
from torch import nn

from visprism import (
    AttentionMaps,
    Compute,
    InputError,
    Run,
    attend,
    attention_maps,
    dissect,
    forward,
    rollout,
)
from visprism.kit.inputs import subject_of


def built(name="vit_tiny_patch16_224", **options):
    options = {"img_size": 64, "depth": 2, "embed_dim": 24} | options
    model = timm.create_model(name, **options).eval()
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return dissect(model, image.repeat(2, 1, 1, 1)), image


def weights_of(anatomy, image):
    with torch.no_grad(), attend(anatomy, lambda w: w.values[0].numpy().copy()) as weights:
        anatomy.model(image)
    return list(weights.values())


def as_grids(maps, block, side=4):
    rows = maps.select(maps.block == block)
    return rows.weight.reshape(-1, side, side)


@pytest.fixture(scope="module")
def swin():
    options = {"img_size": 64, "depths": (2, 2), "window_size": 4, "embed_dim": 24}
    model = timm.create_model("swin_tiny_patch4_window7_224", **options).eval()
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return dissect(model, image.repeat(2, 1, 1, 1)), image


def test_a_pixel_asks_the_token_that_it_lies_in():
    anatomy, image = built()
    maps = attention_maps(anatomy, image, query=(40, 20))  # row 2, column 1 of 4x4
    for name, weights in zip(anatomy[1::2], weights_of(anatomy, image), strict=False):
        expected = weights[0, :, 1 + 2 * 4 + 1, 1:].reshape(3, 4, 4)
        np.testing.assert_allclose(as_grids(maps, name.name), expected)
    assert maps.query == "40,20"


def test_the_mean_is_over_the_queries_on_the_grid():
    anatomy, image = built()
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


def product_of(anatomy, image):
    """(I + A) / 2 multiplied over all attentions, A the mean over heads."""
    total = None
    for weights in weights_of(anatomy, image):
        eye = np.eye(weights.shape[-1])
        total = (eye + weights[0].mean(0)) / 2 @ (eye if total is None else total)
    return total


@pytest.mark.parametrize(
    ("options", "rows", "readout"),
    [
        ({}, slice(0, 1), "class token"),
        ({"reg_tokens": 2, "no_embed_class": True}, slice(0, 1), "class token"),
        ({"global_pool": "avg"}, slice(1, 17), "mean over 16 of 16 places"),
        ({"name": "deit_tiny_distilled_patch16_224"}, slice(0, 2), "2 tokens off the grid"),
    ],
    ids=["class token", "registers", "pooled beside a class token", "distilled"],
)
def test_a_rollout_is_the_mean_over_the_tokens_that_the_head_reads(options, rows, readout):
    anatomy, image = built(**options)
    expected = product_of(anatomy, image)
    result = rollout(anatomy, image)
    np.testing.assert_allclose(result.weight, expected[rows, -16:].mean(0), rtol=1e-4)
    assert result.readout == readout
    assert result.row.tolist()[:5] == [0, 0, 0, 0, 1]


def test_what_the_head_does_not_read_is_no_class_token():
    anatomy, image = built(global_pool="avg")
    with pytest.raises(InputError, match="has no class token that the head reads"):
        attention_maps(anatomy, image, query="class")


def test_the_class_token_is_found_beside_registers():
    anatomy, image = built(reg_tokens=4)
    maps = attention_maps(anatomy, image, query="class", blocks=["blocks.1.attn"])
    expected = weights_of(anatomy, image)[1][0, :, 0, 5:].reshape(3, 4, 4)
    np.testing.assert_allclose(as_grids(maps, "blocks.1.attn"), expected)


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


def test_windows_cannot_be_rolled_out(swin):
    with pytest.raises(
        InputError, match=r"must have the same tokens for a rollout.* Use attention_maps"
    ):
        rollout(*swin)


class Around(nn.Module):
    """A model with another forward pass."""

    def __init__(self, passes):
        super().__init__()
        self.model, self.passes = built()[0].model, passes

    def forward(self, x):
        return self.passes(self.model, x)


def backbone(model, x):
    return model.forward_intermediates(x, intermediates_only=True)[-1]


def headless(model, x):
    return 0 * model(x)


def tuned(model, x):
    with torch.no_grad():
        tokens = model.blocks[0](model._pos_embed(model.patch_embed(x)))
    return model.forward_head(model.norm(model.blocks[1](tokens)))


@pytest.mark.parametrize(
    ("passes", "precision", "methods", "reason"),
    [
        (backbone, "fp32", [], ""),
        (headless, "fp32", [], "the gradient of the largest logit is 0"),
        (tuned, "fp32", ["attention"], "must have a gradient"),
        (forward, "bf16", [], "precision must be 'fp32' for rollout"),
    ],
)
def test_maps_stay_where_a_rollout_cannot_be_made(passes, precision, methods, reason):
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    subject = subject_of(Around(passes).eval(), [images])
    run = Run(compute=Compute(precision=precision))
    maps, *rollouts = AttentionMaps().measure(subject, run)
    assert [result.method for result in rollouts] == methods
    assert reason in maps.no_rollout
    assert list(maps.sentences()) == [f"no rollout: {maps.no_rollout}"] * bool(reason)
