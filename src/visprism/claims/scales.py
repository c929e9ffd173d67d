"""Scales of the study of claims: data, networks, recipe and number of seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from visprism.core.errors import InputError
from visprism.core.registry import suggestion
from visprism.images.augmentation import STRONG, WEAK, Augmentation
from visprism.training import RECIPES, Recipe


@dataclass(frozen=True)
class Network:
    """A network of a scale, and fields of the recipe that all of its runs change."""

    spec: str  # as `load_model` takes it
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """How large the study is: data, networks and one recipe, of which arms vary single fields.

    The training images of a run are `subset` of those of the data, times the fraction of the
    arm. They are selected, like everything random in a run, by its seed.
    """

    name: str
    summary: str
    data: str  # unless the user names other data
    networks: Mapping[str, Network]  # by the names that arms use
    recipe: Recipe
    subset: float = 1.0  # fraction of the training images of each class
    seeds: int = 3
    test_images: int | None = None  # of accuracy and calibration; None: all
    images: int = 512  # test images of analyses of feature maps and of robustness
    mini_batches: int = 10  # of 16 training images, of Hessians
    corruptions: tuple[str, ...] | None = None  # None: all of ImageNet-C
    weak: Augmentation = WEAK
    strong: Augmentation = STRONG

    def network(self, name: str) -> Network:
        """The network that arms name `name`."""
        if name not in self.networks:
            raise InputError(f"scale {self.name} has no network {name!r}")
        return self.networks[name]


def _vit(options: str = "") -> Network:
    return Network("vit_pico_patch4_32?head=token" + options)


def _local(kernel: int | str) -> Network:
    # bfloat16 slows local attention down on a CPU.
    return Network(f"conv_vit_pico_patch4_32?kernel={kernel}", {"precision": "fp32"})


SMALL = Scale(
    "small",
    "networks of 0.2 to 0.7 million parameters, 20 epochs on a fifth of CIFAR-10",
    data="cifar10",
    networks={
        "cnn": Network("resnet20"),
        "vit": _vit(),
        "alternet": Network("alter_resnet20"),
        "multi-stage transformer": Network("pit_pico_patch4_32"),
        "vit, GAP": Network("vit_pico_patch4_32?head=gap"),
        "vit, few heads": _vit("&num_heads=1"),
        "vit, many heads": _vit("&num_heads=8"),
        "vit, small patches": _vit("&patch_size=2"),
        "vit, 3x3 attention": _local(3),
        "vit, 5x5 attention": _local(5),
        "vit, full attention": _local("global"),
    },
    recipe=Recipe(
        epochs=20,
        batch_size=64,
        lr=1e-3,
        augmentation=WEAK,
        warmup=1.0,
        clip=1.0,
        precision="bf16",
        channels_last=True,
        eval_every=5,
        snapshot_every=10,
    ),
    subset=0.2,
)
PAPER = Scale(
    "paper",
    "the paper's networks and 300 epochs on CIFAR-100; needs GPUs",
    data="cifar100",
    networks={
        "cnn": Network("resnet50_32?num_classes=100"),
        "vit": Network("vit_tiny_patch2_32?num_classes=100"),
        "alternet": Network("alter_resnet50_32?num_classes=100"),
        "multi-stage transformer": Network("pit_tiny_patch2_32?num_classes=100"),
        "vit, GAP": Network("vit_tiny_patch2_32?num_classes=100&head=gap"),
        "vit, few heads": Network("vit_tiny_patch2_32?num_classes=100&num_heads=3"),
        "vit, many heads": Network("vit_tiny_patch2_32?num_classes=100&num_heads=12"),
        "vit, small patches": Network("vit_tiny_patch2_32?num_classes=100&patch_size=1"),
        "vit, 3x3 attention": Network("conv_vit_tiny_patch2_32?num_classes=100&kernel=3"),
        "vit, 5x5 attention": Network("conv_vit_tiny_patch2_32?num_classes=100&kernel=5"),
        "vit, full attention": Network("conv_vit_tiny_patch2_32?num_classes=100&kernel=global"),
    },
    recipe=RECIPES["strong_cifar"](),
    images=1024,
    mini_batches=64,
)
_TINY = "vit_pico_patch4_32?img_size=16&depth=1"
TEST = Scale(
    "test",
    "ViTs of one block and seconds of training on procedural shapes, to try the machinery",
    data="shapes?size=16",
    networks={
        "vit": Network(f"{_TINY}&head=token"),
        "vit, GAP": Network(f"{_TINY}&head=gap"),
        "vit, few heads": Network(f"{_TINY}&head=token&num_heads=1"),
        "vit, many heads": Network(f"{_TINY}&head=token&num_heads=8"),
        "vit, small patches": Network(f"{_TINY}&head=token&patch_size=2"),
    },
    recipe=replace(SMALL.recipe, epochs=2, eval_every=1, snapshot_every=1, precision="fp32"),
    subset=0.005,
    seeds=2,
    test_images=200,
    images=32,
    mini_batches=2,
)
SCALES = {scale.name: scale for scale in (SMALL, PAPER, TEST)}


def scale_of(name: str) -> Scale:
    """The scale with this name."""
    if name not in SCALES:
        raise InputError(f"unknown scale {name!r}. {suggestion(name, list(SCALES))}")
    return SCALES[name]
