"""Published networks, as small as their structure allows, each dissected once for all tests."""

from functools import cache, partial

import pytest
import timm
import torch
import torchvision
from small_models import hugging_face_config
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer

from visprism import dissect


def hugging_face_vit():
    import transformers

    config = hugging_face_config(num_hidden_layers=3, image_size=64, patch_size=16)
    return transformers.ViTForImageClassification(config)


def parallel_vit(*, qkv_bias):
    return VisionTransformer(
        img_size=64,
        embed_dim=48,
        depth=3,
        num_heads=3,
        num_classes=10,
        block_fn=ParallelScalingBlock,
        qkv_bias=qkv_bias,  # with a bias, attention and mlp share one projection at their end
    )


_timm = partial(partial, timm.create_model)

# Name: what builds the network, the side of its images.
NETWORKS = {
    "vit_tiny": (_timm("vit_tiny_patch16_224", img_size=96), 96),
    "vit_reg4": (_timm("vit_small_patch14_reg4_dinov2", img_size=70, depth=3), 70),
    "swin_tiny": (_timm("swin_tiny_patch4_window7_224", embed_dim=24), 224),
    "resnet18": (_timm("resnet18"), 64),
    "resnetv2_50": (_timm("resnetv2_50", channels=(8, 16, 32, 64)), 64),
    "densenet121": (_timm("densenet121", growth_rate=8), 64),
    "convnext_tiny": (_timm("convnext_tiny", dims=(24, 48, 96, 192)), 64),
    "efficientnet_b0": (_timm("efficientnet_b0"), 64),
    "mobilevit_xxs": (_timm("mobilevit_xxs"), 128),
    "coatnet": (_timm("coatnet_pico_rw_224", img_size=64, depths=(1, 2, 2, 1)), 64),
    "maxvit": (_timm("maxvit_rmlp_pico_rw_256", img_size=128, depths=(1, 1, 1, 1)), 128),
    "levit_128s": (_timm("levit_128s"), 224),
    "hiera_tiny": (_timm("hiera_tiny_224", embed_dim=24), 224),
    "torchvision_vit": (
        partial(
            torchvision.models.VisionTransformer,
            image_size=64,
            patch_size=16,
            num_layers=3,
            num_heads=2,
            hidden_dim=32,
            mlp_dim=64,
        ),
        64,
    ),
    "hugging_face_vit": (hugging_face_vit, 64),
    "parallel_vit": (partial(parallel_vit, qkv_bias=False), 64),
    "parallel_vit_fused": (partial(parallel_vit, qkv_bias=True), 64),
}


@cache
def _dissected(name):
    build, side = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().eval()
    return dissect(model, torch.zeros(2, 3, side, side))


@pytest.fixture(scope="session")
def dissected():
    """The anatomy of a network of the list, by name."""
    return _dissected


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
