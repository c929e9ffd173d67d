"""The registered recipes."""

from dataclasses import replace

from visprism.images.augmentation import STRONG, STRONG_LARGE, WEAK, WEAK_LARGE, Augmentation
from visprism.training.recipe import RECIPES, Recipe


@RECIPES.register
def strong_cifar() -> Recipe:
    """Strong augmentation for CNNs and ViTs on CIFAR: 5 epochs of warm-up, then 300.

    Claim: the settings of Park and Kim (2022), appendix A; the learning rate is from
           PyTorch's schedulers called as in its code.
    Run:   visprism train strong_cifar --data cifar100 --model MODEL --out DIR
    """
    return Recipe(
        epochs=305,
        batch_size=96,
        lr=1.25e-4,
        augmentation=STRONG,
        weight_decay=0.05,
        decay_params="all",
        schedule="cosine by epoch",
        warmup=5.0,
        clip=5.0,
        drop_path=0.1,
        snapshot_every=50,
    )


@RECIPES.register
def strong_imagenet() -> Recipe:
    """Strong augmentation for CNNs and ViTs on ImageNet: random crops and erasing, no clipping.

    Claim: the settings of Park and Kim (2022), appendix A, and of the paper's code: crops by
           bilinear or bicubic interpolation at random, erased rectangles are zero after
           normalization.
    Run:   visprism train strong_imagenet --data folder:DIR --model MODEL --out DIR
    """
    return replace(strong_cifar(), batch_size=128, augmentation=STRONG_LARGE, clip=0.0)


@RECIPES.register
def weak_cnn() -> Recipe:
    """The standard CIFAR recipe for CNNs: SGD, step schedule, random crops and flips.

    Claim: the settings of the paper's code for CNNs: 1 epoch of warm-up, then 200.
    Run:   visprism train weak_cnn --data cifar100 --model MODEL --out DIR
    """
    return Recipe(
        epochs=201,
        batch_size=128,
        lr=0.1,
        augmentation=WEAK,
        optimizer="sgd",
        weight_decay=5e-4,
        decay_params="all",
        schedule="step",
        warmup=1.0,
        milestones=(60, 120, 160),
        lr_decay=0.2,
    )


@RECIPES.register
def cifar100_vit_noaug() -> Recipe:
    """ViTs on CIFAR with random crops and flips only: the strong recipe without the rest.

    Claim: ``configs/cifar100_vit_noaug.yaml`` of the paper's code: no RandAugment, mixing,
           label smoothing or clipping, with stochastic depth 0.1.
    Run:   visprism train cifar100_vit_noaug --data cifar100 --model MODEL --out DIR
    """
    return replace(strong_cifar(), augmentation=WEAK, clip=0.0)


@RECIPES.register
def imagenet_general() -> Recipe:
    """The standard ImageNet recipe for CNNs: SGD, step schedule, random crops and flips.

    Claim: ``configs/imagenet_general.yaml`` of the paper's code: 1 epoch of warm-up, then 90.
    Run:   visprism train imagenet_general --data folder:DIR --model MODEL --out DIR
    """
    return replace(
        weak_cnn(),
        epochs=91,
        batch_size=256,
        augmentation=WEAK_LARGE,
        weight_decay=1e-4,
        milestones=(30, 60, 80),
        lr_decay=0.1,
    )


@RECIPES.register
def quick() -> Recipe:
    """Small images in minutes on a CPU: 8 epochs, random crops and flips.

    Claim: see docs/training.md for the accuracy on CIFAR-10.
    Run:   visprism train quick --data cifar10 --model resnet20 --out DIR
    """
    return Recipe(
        epochs=8,
        batch_size=128,
        lr=2e-3,
        augmentation=replace(WEAK, smoothing=0.1),
        warmup=1.0,
        clip=1.0,
        channels_last=True,
    )


@RECIPES.register
def finetune() -> Recipe:
    """Published weights on your own photographs: low rates, lower in early blocks; 10 epochs.

    Claim: see docs/training.md for what it gives on photographs.
    Run:   visprism train finetune --data folder:DIR --model timm:convnext_tiny --out DIR
    """
    return Recipe(
        epochs=10,
        batch_size=32,
        lr=1e-3,
        layer_decay=0.75,
        augmentation=Augmentation(area=0.35, flip=0.5, smoothing=0.1),
        warmup=1.0,
        clip=1.0,
        pretrained=True,
    )


@RECIPES.register
def sam() -> Recipe:
    """The strong recipe for CIFAR with sharpness-aware minimization, at twice the cost.

    Claim: rho of Foret et al. (2021) for CIFAR; the rest is `strong_cifar`.
    Run:   visprism train sam --data cifar100 --model MODEL --out DIR
    """
    return replace(strong_cifar(), sam_rho=0.05)


@RECIPES.register
def distill() -> Recipe:
    """The strong recipe for CIFAR with hard distillation from a teacher at weight 0.5.

    Claim: the hard distillation of Touvron et al. (2021), sec. 4; the rest is `strong_cifar`.
    Run:   visprism train distill --data cifar100 --model MODEL --teacher MODEL@FILE --out DIR
    """
    return replace(strong_cifar(), distillation="hard", distillation_weight=0.5)


@RECIPES.register
def demo_resnet() -> Recipe:
    """ResNet-20 on the procedural shapes, in one pass over distinct images.

    Claim: see docs/data.md.
    Run:   visprism train demo_resnet --data shapes --model resnet20 --out DIR
    """
    return _demo(limit=45_000, batch_size=500, lr=9e-4)


@RECIPES.register
def demo_vit() -> Recipe:
    """ViT-Pico on the procedural shapes, in one pass over distinct images.

    Claim: see docs/data.md.
    Run:   visprism train demo_vit --data shapes --model vit_pico_patch4_32 --out DIR
    """
    return replace(_demo(limit=45_000, batch_size=32, lr=2e-3), optimizer="muon")


def _demo(*, limit: int, batch_size: int, lr: float) -> Recipe:
    return Recipe(
        epochs=1,
        batch_size=batch_size,
        lr=lr,
        limit=limit,
        augmentation=Augmentation(),
        warmup=0.1,
        clip=1.0,
        channels_last=True,
    )
