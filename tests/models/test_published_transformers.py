"""Transformers of the zoo against published sizes and timm (src/visprism/models/zoo)."""

import pytest
import torch
from internals import deit, mixer, pit, swin, vit
from small_models import SMALL, noise, seeded
from timm.models.deit import VisionTransformerDistilled
from timm.models.mlp_mixer import MlpMixer
from timm.models.pit import PoolingVisionTransformer
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer

from visprism import MODELS
from visprism.models.zoo.conv_vit import conv_vit


def size_of(name, **arguments):
    with torch.device("meta"):
        model = MODELS[name](**arguments)
    return sum(parameter.numel() for parameter in model.parameters())


# Parameters, counted by running the code of Park and Kim (2022); for 100 classes at 32 pixels.
SIZES = {
    "vit_tiny_patch2_32": 5_403_172,
    "vit_small_patch2_32": 21_423_076,
    "vit_tiny_patch16_224": 5_710_504,
    "pit_tiny_patch2_32": 4_576_740,
    "pit_tiny_224": 4_841_576,
    "pit_xs_224": 10_610_344,  # with an MLP of 4x width in the last stage
    "pit_small_224": 23_449_096,
    "mixer_tiny_patch2_32": 4_769_636,
    "mixer_small_patch2_32": 17_925_732,
    "mixer_tiny_patch16_224": 5_071_112,
    "conv_vit_tiny_patch2_32": 5_402_788,
    "conv_vit_tiny_patch16_224": 5_710_120,
    "swin_tiny_patch4_window7_224": 28_288_354,  # the official one, as are these
    "deit_tiny_patch16_224": 5_910_800,
    "deit_base_patch16_224": 87_338_192,
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_has_the_published_number_of_parameters(name, size):
    classes = 100 if name.endswith("_32") else 1000
    assert size_of(name, num_classes=classes) == size


@pytest.mark.parametrize(
    ("name", "classes", "window", "size"),
    [
        ("swin_tiny_patch1_window4_32", 100, 4, 27_551_728),
        ("swin_small_patch4_window7_224", 1000, 7, 49_531_360),
    ],
)
def test_swin_differs_from_that_of_the_study_by_what_is_known(name, classes, window, size):
    """Theirs shares one bias among heads, and merges by biased convolutions without norms."""
    depths = (2, 2, 18, 2) if "small" in name else (2, 2, 6, 2)
    heads = (3, 6, 12, 24)
    biases = sum(d * (h - 1) for d, h in zip(depths, heads, strict=True))
    embedding = 2 * 96
    merging = sum(2 * 4 * width - 2 * width for width in (96, 192, 384))
    expected = size + biases * (2 * window - 1) ** 2 + embedding + merging
    assert size_of(name, num_classes=classes, qkv_bias=False) == expected


SHAPE = {"embed_dim": 32, "depth": 2, "num_heads": 2}
POOLED = {"class_token": False, "global_pool": "avg"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda: vit(32, 2, depth=2, **SMALL),
            lambda: VisionTransformer(qkv_bias=False, **SHAPE, **SMALL),
        ),
        (
            lambda: vit(32, 2, depth=2, head="gap", qkv_bias=True, **SMALL),
            lambda: VisionTransformer(**SHAPE, **POOLED, **SMALL),
        ),
        (
            lambda: conv_vit(32, 2, depth=2, kernel=None, **SMALL),
            lambda: VisionTransformer(qkv_bias=False, **SHAPE, **POOLED, **SMALL),
        ),
        (
            lambda: deit(32, 2, depth=2, **SMALL),
            lambda: VisionTransformerDistilled(**SHAPE, **SMALL),
        ),
        (
            lambda: pit(16, (1, 2), (1, 2), 2, qkv_bias=True, no_embed_class=True, **SMALL),
            lambda: PoolingVisionTransformer(
                base_dims=(16, 16), depth=(1, 2), heads=(1, 2), stride=2, **SMALL
            ),
        ),
        (
            lambda: mixer(64, depth=2, **SMALL),
            lambda: MlpMixer(num_blocks=2, embed_dim=64, **SMALL),
        ),
        (
            lambda: swin(16, (2, 2), (1, 2), window=4, **SMALL),
            lambda: SwinTransformer(
                embed_dim=16, depths=(2, 2), num_heads=(1, 2), window_size=4, **SMALL
            ),
        ),
    ],
    ids=["vit", "vit gap", "conv_vit global", "deit", "pit", "mixer", "swin"],
)
def test_the_logits_are_those_of_timm_for_the_same_weights(ours, theirs):
    model, other = seeded(ours), seeded(theirs)
    model.load_state_dict(other.state_dict())
    images = noise(2, 3, 16, 16)
    torch.testing.assert_close(model(images), other(images), rtol=1e-5, atol=1e-5)
