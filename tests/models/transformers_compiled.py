"""Exports and compiles a small network of each family; fails if an answer differs."""

import warnings

import torch

from visprism.models.conv_vit import conv_vit
from visprism.models.deit import deit
from visprism.models.mixer import mixer
from visprism.models.pit import pit
from visprism.models.swin import swin
from visprism.models.vit import vit

SMALL = {"img_size": 16, "patch_size": 2, "num_classes": 5}


def check(model, images):
    for parameter in model.eval().parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    expected = model(images)
    exported = torch.export.export(model, (images,)).module()
    # timm interpolates tables of positions also to their own size while it exports.
    torch.testing.assert_close(exported(images), expected, rtol=1e-3, atol=1e-4)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(images), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's own, of what it is about to change
    torch.manual_seed(0)
    images = torch.randn(1, 3, 16, 16)
    check(vit(32, 2, depth=1, **SMALL), images)
    check(deit(32, 2, depth=1, **SMALL), images)
    check(conv_vit(32, 2, depth=1, **SMALL), images)
    check(swin(16, (2,), (2,), window=3, **SMALL), images)
    check(mixer(32, depth=1, **SMALL), images)
    check(pit(16, (1, 1), (1, 2), 2, **SMALL), images)
