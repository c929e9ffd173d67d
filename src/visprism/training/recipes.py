"""The registered recipes."""

from dataclasses import replace

from visprism.data.augmentation import STRONG, STRONG_LARGE, WEAK, Augmentation
from visprism.training.recipe import RECIPES, Recipe


@RECIPES.register
def strong_cifar() -> Recipe:
    """CIFAR as the paper trains on it, CNN and ViT alike: 5 epochs of warm-up, then 300.

    Claim: the settings of Park and Kim (2022), appendix A; the learning rate is traced against
           PyTorch's schedulers used as its code uses them.
    Run:   visprism train strong_cifar --data cifar100 --model MODEL --out DIR
    """
    return Recipe(
        epochs=305,
        batch_size=96,
        lr=1.25e-4,
        augmentation=STRONG,
        weight_decay=0.05,
        decay="all",
        schedule="cosine by epoch",
        warmup=5.0,
        clip=5.0,
        drop_path=0.1,
        snapshots=50,
    )


@RECIPES.register
def strong_imagenet() -> Recipe:
    """ImageNet as the paper trains on it: random cut-outs, erasing, no clipping.

    Claim: the settings of Park and Kim (2022), appendix A.
    Run:   visprism train strong_imagenet --data folder:DIR --model MODEL --out DIR
    """
    return replace(strong_cifar(), batch_size=128, augmentation=STRONG_LARGE, clip=0.0)


@RECIPES.register
def weak_cnn() -> Recipe:
    """CIFAR as CNNs are trained on it since long: SGD, steps, crops and mirrored images.

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
        decay="all",
        schedule="step",
        warmup=1.0,
        milestones=(60, 120, 160),
        factor=0.2,
    )


@RECIPES.register
def quick() -> Recipe:
    """Small images in minutes on a CPU: few epochs, crops and mirrored images, bf16.

    Claim: none beyond this: a network that has learned something before the tea is cold.
    Run:   visprism train quick --data cifar10 --model resnet20 --out DIR
    """
    return Recipe(
        epochs=8,
        batch_size=128,
        lr=2e-3,
        augmentation=replace(WEAK, smoothing=0.1),
        warmup=1.0,
        clip=1.0,
        precision="bf16",
        channels_last=True,
    )


@RECIPES.register
def sam() -> Recipe:
    """The strong recipe for CIFAR with sharpness-aware minimisation, at twice the cost.

    Claim: rho of Foret et al. (2021) for CIFAR; the rest is `strong_cifar`.
    Run:   visprism train sam --data cifar100 --model MODEL --out DIR
    """
    return replace(strong_cifar(), sam=0.05)


@RECIPES.register
def distill() -> Recipe:
    """The strong recipe for CIFAR with a teacher, whose hard choices are half of the loss.

    Claim: the hard distillation of Touvron et al. (2021), sec. 4; the rest is `strong_cifar`.
    Run:   visprism train distill --data cifar100 --model MODEL --teacher MODEL@FILE --out DIR
    """
    return replace(strong_cifar(), distil="hard", distil_weight=0.5)


@RECIPES.register
def demo_resnet() -> Recipe:
    """ResNet-20 on the procedural shapes, in one pass over distinct images.

    Claim: see docs/data.md.
    Run:   visprism demo
    """
    return _demo(images=8_000, batch_size=64, lr=4e-3)


@RECIPES.register
def demo_vit() -> Recipe:
    """ViT-Pico on the procedural shapes, in one pass over distinct images.

    Claim: see docs/data.md.
    Run:   visprism demo
    """
    return replace(_demo(images=45_000, batch_size=32, lr=2e-3), optimizer="muon")


def _demo(*, images: int, batch_size: int, lr: float) -> Recipe:
    return Recipe(
        epochs=1,
        batch_size=batch_size,
        lr=lr,
        images=images,
        augmentation=Augmentation(),
        warmup=0.1,
        clip=1.0,
        channels_last=True,
    )
