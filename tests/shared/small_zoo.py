"""A small network of each family of the zoo, by the module of the family."""

from timm.layers import SEModule
from timm.layers.cbam import CbamModule
from timm.models.resnet import BasicBlock, Bottleneck

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

# The second of a family takes another way through its code.
NETWORKS = {
    "vit": lambda: vit(32, 2, depth=1, **PATCHES),
    "deit": lambda: deit(32, 2, depth=1, **PATCHES),
    "vit, pooled": lambda: vit(32, 2, depth=1, head="gap", **PATCHES),
    "conv_vit": lambda: conv_vit(32, 2, depth=1, **PATCHES),
    "swin": lambda: swin(16, (2,), (2,), window=3, **PATCHES),
    "mixer": lambda: mixer(32, depth=1, **PATCHES),
    "pit": lambda: pit(16, (1, 1), (1, 2), 2, **PATCHES),
    "alexnet": lambda: MODELS["alexnet_32"](head="gap", smoothing=True),
    "vgg": lambda: vgg((1, 1, 1, 1, 1), "behind", num_classes=5, head="gap"),
    "resnet": lambda: resnet(FOUR, BasicBlock, 32, num_classes=5, smoothing=True),
    "resnet, SE": lambda: resnet(FOUR, Bottleneck, 32, attn_layer=SEModule, num_classes=5),
    "resnet, CBAM": lambda: resnet(FOUR, Bottleneck, 32, attn_layer=CbamModule, num_classes=5),
    "cifar_resnet": lambda: MODELS["resnet20"](),
    "alter_cifar_resnet": lambda: MODELS["alter_resnet20"](window=4),
    "preact_resnet": lambda: preact_resnet(PreActBottleneck, 32, depths=FOUR, num_classes=5),
    "alter_resnet": lambda: alter_resnet(PreActBasic, 32, **ALTER),
    "sasa_resnet": lambda: sasa_resnet(FOUR, 32, kernel=3, num_classes=5),
}

SIDES = dict.fromkeys(NETWORKS, 16) | {"alexnet": 32, "vgg": 32}
