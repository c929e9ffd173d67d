"""Analyses of features on any network: each works, or says in one sentence why not."""

from functools import cache, partial

import numpy as np
import pytest
import timm
import torch
from small_models import OneBlock, hugging_face_config
from timm.models.vision_transformer import VisionTransformer

import visprism as vp
from visprism.table.shapes import ValuedPerBlock

CLASSES, SIDE, IMAGES = 3, 64, 24


def hugging_face_vit():
    transformers = pytest.importorskip("transformers")
    config = hugging_face_config(
        num_hidden_layers=2, image_size=SIDE, patch_size=16, num_labels=CLASSES
    )
    return transformers.ViTForImageClassification(config)


def swin():
    """Its weights are as large as trained ones.

    Those that timm draws are so small that the eigenvalues of attention come in pairs of
    nearly equal magnitude and opposite signs, of which none leads.
    """
    sizes = {"img_size": SIDE, "patch_size": 8, "window_size": 2, "embed_dim": 12}
    blocks = {"depths": (1, 2), "num_heads": (2, 4), "num_classes": CLASSES}
    model = timm.create_model("swin_tiny_patch4_window7_224", **sizes, **blocks)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
    return model


_vit = partial(
    VisionTransformer, img_size=SIDE, patch_size=16, embed_dim=24, depth=2, num_heads=2
)
NETWORKS = {
    "vit with registers": partial(_vit, reg_tokens=4, num_classes=CLASSES),
    "headless vit": partial(_vit, reg_tokens=1, num_classes=0),
    "swin": swin,
    "resnet": partial(
        timm.create_model, "resnet18", channels=(8, 12, 16, 20), layers=(2, 1, 1, 1),
        num_classes=CLASSES,
    ),
    "hugging face vit": hugging_face_vit,
    "plain module": partial(OneBlock, classes=CLASSES),
}  # fmt: skip


@cache
def built(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = NETWORKS[name]().eval()
    return vp.dissect(model, torch.zeros(2, 3, SIDE, SIDE))


@cache
def labeled_images():
    """Colored noise: a class is the channel that is brightest."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(IMAGES) % CLASSES
    images = torch.randn(IMAGES, 3, SIDE, SIDE, generator=generator)
    images[torch.arange(IMAGES), targets] += 1
    return [(images[i : i + 16], targets[i : i + 16]) for i in range(0, IMAGES, 16)]


# Every analysis whose main result has a value for each block.
NAMES = [
    name
    for name, analysis in vp.ANALYSES.items()
    if analysis.__module__.startswith("visprism.")
    and issubclass(analysis.sections[0].result, ValuedPerBlock)
]
OPTIONS = {
    "readout": {"neighbors": 5, "folds": 3},
    "out-of-distribution": {"ood_data": "shapes?size=64", "neighbors": 5},
    "attribution": {"blocks": 2, "steps": 3},
    "quantization": {"bits": (4,)},
    "hessian-by-block": {"probes": 3},
}
TESTED = {"out-of-distribution": IMAGES // 2, "patch-pca": 16}  # of the images
PREPROCESSING = vp.Preprocessing((SIDE, SIDE), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


PAIRS = [(name, network) for name in NAMES for network in NETWORKS]


def marks(name, network):
    """Every analysis meets two networks in slow tests, all of them in a sweep."""
    chosen = (NAMES.index(name) + list(NETWORKS).index(network)) % 3 == 0
    return pytest.mark.slow if chosen else pytest.mark.sweep


@pytest.mark.parametrize(
    ("name", "network"), [pytest.param(*pair, marks=marks(*pair)) for pair in PAIRS]
)
def test_it_works_on_any_network(name, network):
    analysis, anatomy = vp.ANALYSES[name](**OPTIONS.get(name, {})), built(network)
    result = analysis(anatomy, labeled_images(), preprocessing=PREPROCESSING)
    assert isinstance(result, analysis.sections[0].result)
    assert np.isfinite(result.values).any()
    assert result.findings()
    assert set(result.block) <= {block.name for block in anatomy}
    assert result.provenance.images == TESTED.get(name, IMAGES)
