"""Laws of attention: which there are, and that their weights are those the model works with."""

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn import functional

from visprism import InputError, attend, attentions, dissect

TIMM = {  # small ones of each build
    "vit_tiny_patch16_224": {"img_size": (48, 64), "depth": 2},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 96},
    "swin_tiny_patch4_window7_224": {"img_size": 112, "depths": (2, 2), "embed_dim": 24},
    "maxvit_rmlp_pico_rw_256": {"img_size": 64, "depths": (1, 1, 1, 1)},
}


def weights_of(anatomy, images, **options):
    with torch.no_grad(), attend(anatomy, lambda w: w.values.clone(), **options) as weights:
        anatomy.model(images)
    return weights


@pytest.mark.parametrize("name", TIMM)
def test_timm_without_fused_attention_has_the_same_weights(name):
    model = timm.create_model(name, **TIMM[name]).eval()
    size = TIMM[name]["img_size"]
    images = torch.randn(3, 3, *(size if isinstance(size, tuple) else (size, size)))
    weights = weights_of(dissect(model, images), images)
    seen = []
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
            module.attn_drop.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model(images)
    assert len(weights) == len(seen) >= 2
    for ours, theirs in zip(weights.values(), seen, strict=True):
        torch.testing.assert_close(ours.flatten(0, 1), theirs.reshape(ours.flatten(0, 1).shape))


class OfTorch(nn.Module):
    """Torch's own attention, whose first query the head reads."""

    def __init__(self, *, grid_first=True, need_weights=False):
        super().__init__()
        self.grid_first, self.need_weights = grid_first, need_weights
        self.stem = nn.Conv2d(3, 12, 4, stride=4)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=grid_first)
        self.head = nn.Linear(12, 5)

    def tokens(self, x):
        return self.stem(x).flatten(2).permute((0, 2, 1) if self.grid_first else (2, 0, 1))

    def forward(self, x):
        x = self.tokens(x)
        x = x + self.attention(x, x, x, need_weights=self.need_weights)[0]
        return self.head(x[:, 0] if self.grid_first else x[0])


@pytest.mark.parametrize("grid_first", [True, False])
def test_torchs_own_multi_head_attention(grid_first):
    model, images = OfTorch(grid_first=grid_first).eval(), torch.randn(3, 3, 16, 24)
    anatomy = dissect(model, images)
    assert {block.shape for block in anatomy[:-1]} == {(12, 4, 6)}
    (ours,) = weights_of(anatomy, images).values()
    x = model.tokens(images)
    _, theirs = model.attention(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(ours[:, 0], theirs)


@pytest.mark.parametrize("need_weights", [True, False])
def test_logits_depend_on_the_weights_of_torchs_own_attention(need_weights):
    """Attention followed by a linear projection, written out by hand."""
    model, images = OfTorch(need_weights=need_weights).eval(), torch.randn(2, 3, 16, 16)
    with attend(dissect(model, images), lambda w: w.values, differentiable=True) as collected:
        logits = model(images)
    (a,) = collected.values()
    torch.testing.assert_close(logits, model(images))
    (ours,) = torch.autograd.grad(logits.sum(), a, retain_graph=True)
    tokens, layer = model.tokens(images), model.attention
    values = functional.linear(tokens, layer.in_proj_weight[24:], layer.in_proj_bias[24:])
    through = model.head.weight.sum(0) @ layer.out_proj.weight  # of the heads
    by_hand = (values * through).unflatten(2, (3, 4)).sum(3)  # images, keys, heads
    expected = torch.zeros_like(ours)
    expected[:, 0, :, 0] = by_hand.mT  # the head reads the first query alone
    torch.testing.assert_close(ours, expected)


def test_torchvisions_swin(monkeypatch):
    model = torchvision.models.SwinTransformer([4, 4], 24, [2, 2], [3, 6], [7, 7]).eval()
    images = torch.randn(2, 3, 64, 64)
    weights = weights_of(dissect(model, images), images)
    assert weights["features.1.0.attn"].shape == (2, 9, 3, 49, 49)  # 16x16, padded to 21x21
    seen, softmax = [], functional.softmax

    def recording(*args, **kwargs):
        seen.append(softmax(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(functional, "softmax", recording)
    with torch.no_grad():
        model(images)
    assert len(weights) == len(seen) == 4
    for ours, theirs in zip(weights.values(), seen, strict=True):
        torch.testing.assert_close(ours.flatten(0, 1), theirs)


@pytest.mark.parametrize("kind", ["vit", "swin"])
def test_hugging_face_gives_the_same_weights(kind):
    from transformers import AutoConfig, AutoModelForImageClassification

    small = {"depths": (2, 2), "num_heads": (2, 4), "embed_dim": 24, "window_size": 4}
    if kind == "vit":
        small = {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3}
    config = AutoConfig.for_model(kind, image_size=64, patch_size=4, **small)
    model = AutoModelForImageClassification.from_config(config, attn_implementation="eager")
    images = torch.randn(2, 3, 64, 64)
    eager = model.eval()(images, output_attentions=True).attentions
    if kind == "vit":
        model.set_attn_implementation("sdpa")
    weights = weights_of(dissect(model, images), images)
    # Of Swin's stages Hugging Face gives the last block, whose windows are shifted.
    weights = list(weights.values())[1::2] if kind == "swin" else weights.values()
    for ours, theirs in zip(weights, eager, strict=True):
        torch.testing.assert_close(ours.reshape(theirs.shape), theirs, rtol=1e-5, atol=1e-6)


def test_tokens_of_swin_lie_in_shifted_windows():
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, depths=(2,), embed_dim=24
    )
    first, second = attentions(dissect(model.eval(), torch.randn(2, 3, 56, 56)))[:2]
    grid = np.arange(14 * 14).reshape(14, 14)
    for attention, shift in ((first, 0), (second, 3)):
        shifted = np.roll(grid, (-shift, -shift), axis=(0, 1))
        windows = shifted.reshape(2, 7, 2, 7).transpose(0, 2, 1, 3).reshape(4, 49)
        assert attention.geometry.queries.grid == (14, 14)
        np.testing.assert_array_equal(attention.geometry.queries.index, windows)
        np.testing.assert_array_equal(attention.geometry.keys.index, windows)


@pytest.mark.parametrize(
    ("name", "options"), [("resnet10t", {}), ("xcit_nano_12_p16_224", {"depth": 1})]
)
def test_no_attention_over_positions(name, options):
    images = torch.randn(2, 3, 64, 64)
    anatomy = dissect(timm.create_model(name, **options).eval(), images)
    assert attentions(anatomy) == ()
    with pytest.raises(InputError, match="must have an attention with a softmax over"):
        weights_of(anatomy, images)


class ByHand(nn.Module):
    """Patches, one attention as `weigh` writes it, a residual sum, a head."""

    def __init__(self, weigh, *, pooled=False):
        super().__init__()
        self.weigh, self.pooled = weigh, pooled
        self.patches = nn.Conv2d(3, 12, 4, stride=4)
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))
        self.head = nn.Linear(12, 5)

    def tokens(self, x):
        return self.patches(x).flatten(2).transpose(1, 2)

    def keys(self, x):
        if not self.pooled:
            return x
        maps = x.transpose(1, 2).unflatten(2, (4, 6))
        return functional.avg_pool2d(maps, 2).flatten(2).transpose(1, 2)

    def heads(self, x):
        """(B, 3, tokens, 4)."""
        other = self.keys(x)
        projections = (self.q(x), self.k(other), self.v(other))
        return [t.unflatten(2, (3, 4)).transpose(1, 2) for t in projections]

    def forward(self, x):
        x = self.tokens(x)
        out = self.weigh(*self.heads(x))
        x = x + out.transpose(1, 2).flatten(2)
        return self.head(x.mean(1))


def heads_outside(q, k, v):
    """Heads before images, as ``(h b) n d``."""
    q, k, v = (t.transpose(0, 1).flatten(0, 1) for t in (q, k, v))
    out = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
    return out.unflatten(0, (3, -1)).transpose(0, 1)


def einsum_heads_first(q, k, v):
    weights = torch.einsum("bhqd,bhkd->hbqk", q, k).softmax(dim=3)
    return torch.einsum("hbqk,bhkd->bhqd", weights, v)


def of_one_unbind(q, k, v):
    """As ``q, k, v = qkv(x)...``: one operation made them all."""
    if q.shape == k.shape:
        q, k, v = torch.stack((q, k, v)).unbind()
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


def keys_in_rows(q, k, v):
    weights = (k @ q.mT).softmax(-2)
    return weights.mT @ v


def fused(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, scale=1.0)


def causal(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def mask_of_all_images(q, k, v):
    allowed = torch.ones(24, 24, dtype=torch.bool)
    allowed[5] = False  # this query may attend to nothing
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def bias_of_each_image(q, k, v):
    bias = torch.linspace(0, 1, 24 * 24).view(24, 24) * q[:, :, :1, :1]
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def shared_keys(q, k, v):
    """Six heads of queries, the first two of which share the first keys."""
    q = torch.cat([q, -q], dim=1)
    sdpa = functional.scaled_dot_product_attention
    return sdpa(q, k, v, scale=1.0, enable_gqa=True)[:, ::2]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    "way", [heads_outside, einsum_heads_first, of_one_unbind, keys_in_rows, fused, shared_keys]
)
def test_however_it_is_written(way, pooled):
    model, images = ByHand(way, pooled=pooled).eval(), torch.randn(3, 3, 16, 24)
    anatomy = dissect(model, images)
    (ours,) = weights_of(anatomy, images).values()
    with torch.no_grad():
        q, k, _ = model.heads(model.tokens(images))
        if way is shared_keys:
            q, k = torch.cat([q, -q], 1), k.repeat_interleave(2, 1)
        torch.testing.assert_close(ours[:, 0], (q @ k.mT).softmax(-1))
    (attention,) = attentions(anatomy)
    assert attention.geometry.keys.grid == ((2, 3) if pooled else (4, 6))


def test_a_query_that_may_attend_to_nothing_has_weights_0():
    model, images = ByHand(mask_of_all_images).eval(), torch.randn(2, 3, 16, 24)
    (weights,) = weights_of(dissect(model, images), images).values()
    assert (weights[..., 5, :] == 0).all()
    torch.testing.assert_close(weights.sum(-1)[..., 6:], torch.ones(2, 1, 3, 18))


def test_the_logarithm_of_weights_is_not_taken_for_weights():
    def logarithmic(q, k, v):
        return functional.log_softmax(q @ k.mT, -1).exp() @ v

    anatomy = dissect(ByHand(logarithmic).eval(), torch.randn(2, 3, 16, 24))
    assert attentions(anatomy) == ()


def test_a_model_that_fills_a_cache_in_its_first_pass(dissected):
    anatomy = dissected("levit_128s")
    assert len(weights_of(anatomy, torch.randn(2, 3, 224, 224))) == 11  # 2 + 1 + 3 + 1 + 4


@pytest.mark.parametrize(
    "way", [heads_outside, keys_in_rows, causal, mask_of_all_images, bias_of_each_image]
)
def test_the_logits_follow_from_the_weights_and_reading_them_changes_no_bit(way):
    model, images = ByHand(way).eval(), torch.randn(3, 3, 16, 24)
    anatomy, logits = dissect(model, images), model(images)
    with attend(anatomy, lambda w: w.values, differentiable=True):
        torch.testing.assert_close(model(images), logits)
    with attend(anatomy, lambda w: w.values):
        assert torch.equal(model(images), logits)
