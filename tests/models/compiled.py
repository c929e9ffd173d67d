"""Compiles and exports a small network of each family; fails if an answer differs.

Compiling is to one graph: `fullgraph=True` refuses whatever Python would do in between.
"""

import warnings

import torch
from timm.layers import SEModule
from timm.layers.cbam import CbamModule
from timm.models.resnet import BasicBlock, Bottleneck
from torch.nn.init import normal_

from visprism import MODELS
from visprism.models.layers.residual_blocks import PreActBasic, PreActBottleneck
from visprism.models.zoo.alter_resnet import alter_resnet
from visprism.models.zoo.conv_vit import conv_vit
from visprism.models.zoo.mixer import mixer
from visprism.models.zoo.pit import pit
from visprism.models.zoo.preact_resnet import preact_resnet
from visprism.models.zoo.resnet import resnet
from visprism.models.zoo.sasa_resnet import sasa_resnet
from visprism.models.zoo.swin import swin
from visprism.models.zoo.vgg import vgg
from visprism.models.zoo.vit import deit, vit

PATCHES = {"img_size": 16, "patch_size": 2, "num_classes": 5}
FOUR = (1, 1, 1, 1)  # stages of one block
ALTER = {"depths": FOUR, "msas": (0, 1, 1, 1), "window": 3, "num_classes": 5}


# By family; the second of a family takes another way through its code.
NETWORKS = {
    "vit": lambda: vit(32, 2, depth=1, **PATCHES),
    "deit": lambda: deit(32, 2, depth=1, **PATCHES),
    "deit, pooled": lambda: deit(32, 2, depth=1, head="gap", **PATCHES),
    "conv_vit": lambda: conv_vit(32, 2, depth=1, **PATCHES),
    "conv_vit, tiles": lambda: conv_vit(32, 2, depth=1, img_size=42, patch_size=2),
    "swin": lambda: swin(16, (2,), (2,), window=3, **PATCHES),
    "mixer": lambda: mixer(32, depth=1, **PATCHES),
    "pit": lambda: pit(16, (1, 1), (1, 2), 2, **PATCHES),
    "pit, pooled": lambda: pit(16, (1, 1), (1, 2), 2, head="gap", **PATCHES),
    "alexnet": lambda: MODELS["alexnet_32"](head="gap", smoothing=True),
    "vgg": lambda: vgg((1, 1, 1, 1, 1), "behind", num_classes=5, head="gap"),
    "resnet": lambda: resnet(FOUR, BasicBlock, 32, num_classes=5, smoothing=True),
    "se_resnet": lambda: resnet(FOUR, Bottleneck, 32, attn_layer=SEModule, num_classes=5),
    "cbam_resnet": lambda: resnet(FOUR, Bottleneck, 32, attn_layer=CbamModule, num_classes=5),
    "resnet20": lambda: MODELS["resnet20"](),
    "alter_resnet20": lambda: MODELS["alter_resnet20"](window=4),
    "preact_resnet": lambda: preact_resnet(PreActBottleneck, 32, depths=FOUR, num_classes=5),
    "alter_resnet": lambda: alter_resnet(PreActBasic, 32, **ALTER),
    "sasa_resnet": lambda: sasa_resnet(FOUR, 32, kernel=3, num_classes=5),
    "mobilenetv2": lambda: MODELS["mobilenetv2_32"](smoothing=True),
}

SIDES = {"conv_vit, tiles": 42, "alexnet": 32, "vgg": 32}  # others: 16


@torch.no_grad()
def check(name, build):
    model = build().eval()
    for parameter in model.parameters():
        if not parameter.any():  # a head of zeros hides all before it
            normal_(parameter, std=0.1)
    images = torch.randn(1, 3, *[SIDES.get(name, 16)] * 2)
    expected = model(images)
    assert expected.any()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), expected, rtol=1e-4, atol=1e-5)
    exported = torch.export.export(model, (images,)).module()
    # timm interpolates tables of positions also to their own size while it exports.
    torch.testing.assert_close(exported(images), expected, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's own, of what it is about to change
    torch.manual_seed(0)
    for name, build in NETWORKS.items():
        check(name, build)
        torch.compiler.reset()
        print(name)  # noqa: T201 (read by the test)
