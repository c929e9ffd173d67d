"""``protocol="paper"`` gives the numbers of the paper's notebooks.

Another implementation throughout: the model is split into blocks by hand, with hooks, as the
notebooks split it, and the notebooks' formula is computed on whole feature maps.
"""

import math

import numpy as np
import pytest
import timm
import torch
from einops import rearrange

from visprism import Fourier, Variance, dissect
from visprism.passes.features import observations


def resnet():
    options = {"layers": (2, 1, 1, 1), "channels": (8, 16, 24, 32)}
    model = timm.create_model("resnet26", zero_init_last=False, **options).eval()
    layers = [model.layer1, model.layer2, model.layer3, model.layer4]
    outputs = [model.maxpool, *(block for layer in layers for block in layer)]
    return model, outputs, []


def vit_tiny():
    model = timm.create_model("vit_tiny_patch16_224", img_size=96, depth=3).eval()
    # After attention the sum goes into the second norm, after the MLP it leaves the block.
    return model, [model.norm_pre, *model.blocks], [block.norm2 for block in model.blocks]


def feature_maps(model, outputs, inputs, images):
    """What modules give, or take, in the order of the forward pass; tokens on their grid."""
    maps = []
    handles = [
        m.register_forward_hook(lambda _m, _a, out: maps.append(out.clone())) for m in outputs
    ]
    handles += [
        m.register_forward_pre_hook(lambda _m, a: maps.append(a[0].clone())) for m in inputs
    ]
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    if maps[0].ndim == 3:
        side = math.isqrt(maps[0].shape[1] - 1)
        maps = [rearrange(x[:, 1:], "b (h w) c -> b c h w", h=side) for x in maps]
    return maps


def notebook_spectrum(x):
    """The centered half diagonal of the mean log amplitude, less its first value."""
    h, w = x.shape[2:]
    level = torch.log(torch.fft.fft2(x).abs() + 1e-6)
    level = level.roll((int(h / 2), int(w / 2)), dims=(2, 3)).mean((0, 1))
    half = level.diag()[int(h / 2) :]
    return (half - half[0]).numpy()


@pytest.mark.parametrize("make", [resnet, vit_tiny])
def test_equals_the_notebooks_on_blocks_split_by_hand(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, outputs, inputs = make()
    images = torch.randn(3, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    by_hand = feature_maps(model, outputs, inputs, images)

    anatomy = dissect(model, images)
    analyses = [Fourier(protocol="paper"), Variance()]
    (spectrum, highest, _), (variances, _) = observations(
        anatomy, [images[:2], images[2:]], analyses
    )

    blocks = [block.name for block in anatomy if block.layout is not None]
    assert len(blocks) == len(by_hand)
    for name, x in zip(blocks, by_hand, strict=True):
        ours = spectrum.select(spectrum.block == name)
        expected = notebook_spectrum(x)
        np.testing.assert_allclose(ours.relative, expected, atol=1e-4, err_msg=name)
        np.testing.assert_array_equal(ours.frequency, np.linspace(0, 1, len(expected)))
    expected = [x.var((2, 3)).mean().item() for x in by_hand]
    np.testing.assert_allclose(variances.variance, expected, rtol=1e-4)
    expected = [notebook_spectrum(x)[-1] for x in by_hand]
    np.testing.assert_allclose(highest.relative, expected, atol=1e-4)
    assert spectrum.provenance.protocol == "paper"
