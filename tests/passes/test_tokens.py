"""Laws of tokens (src/visprism/passes/tokens.py): what lies off the grid, and why."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import visprism as vp
from visprism.passes.tokens import Tokens, token_roles

SMALL = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 2, "num_heads": 2}


def vit(**options):
    return VisionTransformer(**SMALL, **{"num_classes": 3} | options).eval()


def roles_of(model, images):
    return token_roles(vp.dissect(model, images))["blocks.1.mlp"]


@pytest.fixture
def images():
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_the_class_token_is_read_and_registers_are_not(images):
    assert roles_of(vit(reg_tokens=3), images) == ("class", "register", "register", "register")


def test_a_class_token_that_the_head_does_not_read_is_a_register(images):
    model = vit(reg_tokens=1, global_pool="avg")
    assert roles_of(model, images) == ("register", "register")


def test_a_model_without_logits_that_pools_its_class_token_has_one(images):
    assert roles_of(vit(reg_tokens=1, num_classes=0), images) == ("class", "register")


class Wrapped(nn.Module):
    """A ViT that takes a mapping, ends in place and gives one number for each image."""

    def __init__(self):
        super().__init__()
        self.vit = vit(num_classes=1, reg_tokens=1)
        self.vit.norm = nn.Identity()

    def forward(self, batch):
        tokens = self.vit.forward_features(batch["image"] * batch["gain"][:, None, None, None])
        return self.vit.forward_head(tokens.mul_(2.0))[:, 0]


def test_roles_are_found_with_mappings_in_place_heads_and_single_logits(images):
    batch = {"image": images, "gain": torch.ones(3)}
    anatomy = vp.dissect(Wrapped().eval(), batch)
    assert token_roles(anatomy)["vit.blocks.1.mlp"] == ("class", "register")


class Copy(vp.FeatureStatistic):
    """Keeps the tokens of the last batch."""

    sees = ("tokens", "attention")

    def __init__(self, seen):
        self.seen = seen

    def extract(self, x):
        return (
            {"tokens": x.every.clone()}
            if isinstance(x, Tokens)
            else {"weights": x.values.clone()}
        )

    def results(self, seen):
        self.seen |= {key.source: values for key, values in seen.by_image.items()}
        return (vp.ScalarPerBlock(**vp.block_columns([])),)


def test_a_statistic_sees_all_tokens_and_the_attention_beside_another(images):
    model = vit(reg_tokens=2)
    anatomy = vp.dissect(model, images)
    seen = {}
    _, variances = vp.observe(anatomy, [images], [Copy(seen), vp.Variance()])
    with torch.no_grad():
        expected = model.patch_embed(images)
        expected = model.norm_pre(model.patch_drop(model._pos_embed(expected)))
        for block in model.blocks:
            expected = block(expected)
    by_name = {key.name: value for key, value in seen.items() if hasattr(key, "kind")}
    torch.testing.assert_close(torch.from_numpy(by_name["blocks.1.mlp"]), expected)
    (alone,) = vp.observe(anatomy, [images], [vp.Variance()])
    assert variances == alone
    attention = [value for key, value in seen.items() if hasattr(key, "geometry")]
    assert [a.shape for a in attention] == [(3, 1, 2, 7, 7)] * 2
