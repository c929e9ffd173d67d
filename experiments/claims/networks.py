"""Networks of the study of claims: scales, what the training of each network varies, runs."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import visprism as vp

_WEAK = vp.RECIPES["weak_cnn"]().augmentation  # random crops and flips
_STRONG = vp.RECIPES["strong_cifar"]().augmentation  # as in the paper, appendix A
_WEIGHTS, _HISTORY, _RECIPE = "model.safetensors", "history.npz", "recipe.yaml"


@dataclass(frozen=True)
class Scale:
    """How large the study is: data, models and one recipe, of which networks vary fields.

    A run trains on `subset` x the fraction of the network of all training images. Its seed
    selects them, like everything random in a run: networks of one seed share training images,
    their order, and the images that are measured.
    """

    name: str
    summary: str
    data: str  # unless the user names other data
    models: Mapping[str, str]  # as `load_model` takes them, by the names that networks use
    recipe: vp.Recipe
    subset: float = 1.0  # fraction of the training images of each class
    # Seeds 0 to 2 of the small scale were trained before the rules of decision were written.
    seeds: Sequence[int] = range(3, 8)
    fewest_seeds: int = 5  # for a verdict
    test_images: int | None = None  # of accuracy and calibration; None: all
    images: int = (
        512  # test images of feature maps and robustness; training images of curvature
    )
    mini_batches: int = 32  # of 16 training images, of Hessians
    fit_images: int = 2048  # training images of the NLL of each snapshot
    own_model: str = ""  # the user's, in place of every model of the scale

    @property
    def folder(self) -> str:
        """Name of the folder of its networks."""
        own = re.sub(r"\W+", "-", self.own_model.rpartition("/")[2]).strip("-")
        return f"{self.name}-{own}" if own else self.name

    def title(self, network: "ClaimNetwork") -> str:
        """The name of a network, in which "model" stands for the user's."""
        if not self.own_model:
            return network.name
        return network.name.replace(network.model, "model", 1)


_VIT = "vit_pico_patch4_32?head=token"
_SMALL_MODELS = {
    "cnn": "resnet20",
    "vit": _VIT,
    "alternet": "alter_resnet20",
    "multi-stage transformer": "pit_pico_patch4_32",
    "vit, GAP": "vit_pico_patch4_32?head=gap",
    "vit, few heads": f"{_VIT}&num_heads=1",
    "vit, many heads": f"{_VIT}&num_heads=8",
    "vit, small patches": f"{_VIT}&patch_size=2",
    "vit, 3x3 attention": "conv_vit_pico_patch4_32?kernel=3",
    "vit, 5x5 attention": "conv_vit_pico_patch4_32?kernel=5",
    "vit, full attention": "conv_vit_pico_patch4_32?kernel=global",
}
_PAPER_VIT = "vit_tiny_patch2_32?num_classes=100"
_TINY_VIT = "vit_pico_patch4_32?img_size=16&depth=1&head=token"
SMALL = Scale(
    "small",
    "networks of 0.2 to 0.7 million parameters, 20 epochs on a fifth of CIFAR-10",
    data="cifar10",
    models=_SMALL_MODELS,
    recipe=vp.Recipe(
        epochs=20,
        batch_size=64,
        lr=1e-3,
        augmentation=_WEAK,
        warmup=1.0,
        clip=1.0,
        channels_last=True,
        eval_every=5,
        snapshot_every=1,
    ),
    subset=0.2,
)
MEDIUM = replace(
    SMALL,
    name="medium",
    summary="CNN, ViT, AlterNet of the small scale, 40 epochs on all of CIFAR-10",
    models={name: _SMALL_MODELS[name] for name in ("cnn", "vit", "alternet")},
    recipe=SMALL.recipe.replace(epochs=40),
    subset=1.0,
    seeds=range(5),
)
PAPER = Scale(
    "paper",
    "the paper's networks and 300 epochs on CIFAR-100; needs GPUs",
    data="cifar100",
    models={
        "cnn": "resnet50_32?num_classes=100",
        "vit": _PAPER_VIT,
        "alternet": "alter_resnet50_32?num_classes=100",
        "multi-stage transformer": "pit_tiny_patch2_32?num_classes=100",
        "vit, GAP": f"{_PAPER_VIT}&head=gap",
        "vit, few heads": f"{_PAPER_VIT}&num_heads=3",
        "vit, many heads": f"{_PAPER_VIT}&num_heads=12",
        "vit, small patches": f"{_PAPER_VIT}&patch_size=1",
        "vit, 3x3 attention": "conv_vit_tiny_patch2_32?num_classes=100&kernel=3",
        "vit, 5x5 attention": "conv_vit_tiny_patch2_32?num_classes=100&kernel=5",
        "vit, full attention": "conv_vit_tiny_patch2_32?num_classes=100&kernel=global",
    },
    recipe=vp.RECIPES["strong_cifar"]().replace(snapshot_every=5),
    seeds=range(5),
)
TEST = Scale(
    "test",
    "ViTs of one block and seconds of training on procedural shapes, to try the machinery",
    data="shapes?size=16",
    models={
        "vit": _TINY_VIT,
        "cnn": "vit_pico_patch4_32?img_size=16&depth=1&head=gap",  # instead of a CNN
        "vit, small patches": f"{_TINY_VIT}&patch_size=2",
    },
    recipe=SMALL.recipe.replace(epochs=2, eval_every=1, batch_size=16),
    subset=0.002,
    seeds=range(2),
    fewest_seeds=2,
    test_images=100,
    images=32,
    mini_batches=2,
    fit_images=32,
)
SCALES = {scale.name: scale for scale in (SMALL, MEDIUM, PAPER, TEST)}


def scale_of(name: str, own_model: str = "") -> Scale:
    """The scale with this name; a model of the user takes the place of all of its models."""
    if name not in SCALES:
        raise vp.InputError(f"scale must be one of {', '.join(SCALES)}, got {name!r}")
    scale = SCALES[name]
    if not own_model:
        return scale
    models = dict.fromkeys(scale.models, own_model)
    return replace(scale, models=models, own_model=own_model)


@dataclass(frozen=True)
class ClaimNetwork:
    """A model and what its training varies; its runs differ in the seed."""

    name: str
    model: str  # of the scale
    fraction: float = 1.0  # of the training images of the scale
    # With fewer images: the same number of epochs as with all of them, or of updates.
    same: Literal["epochs", "updates"] = "epochs"
    augmentation: vp.Augmentation | None = None  # None: as in the scale's recipe
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields of the recipe

    def recipe(self, scale: Scale, seed: int) -> vp.Recipe:
        """The recipe of a run of this network."""
        recipe = scale.recipe.replace(**self.changes, seed=seed)
        if self.augmentation is not None:
            recipe = replace(recipe, augmentation=self.augmentation)
        if self.fraction == 1 or self.same == "epochs":
            return recipe
        factor = 1 / self.fraction
        return recipe.replace(
            epochs=round(recipe.epochs * factor),
            warmup=recipe.warmup * factor,
            eval_every=math.ceil(recipe.eval_every * factor),
            snapshot_every=math.ceil(recipe.snapshot_every * factor),
        )


NETWORKS = {
    network.name: network
    for network in (
        *(ClaimNetwork(name, name) for name in _SMALL_MODELS),
        *(ClaimNetwork(f"{name} 10%", name, 0.1) for name in ("cnn", "vit", "alternet")),
        ClaimNetwork("vit 10%, same updates", "vit", 0.1, "updates"),
        ClaimNetwork("vit, SAM", "vit", changes={"sam_rho": 0.05}),
        *(
            ClaimNetwork(f"{name}, {strength} augmentation", name, augmentation=augmentation)
            for name in ("cnn", "vit")
            for strength, augmentation in (("weak", _WEAK), ("strong", _STRONG))
        ),
    )
}


@dataclass(frozen=True)
class TrainingRun:
    """One trained network of the study: what is trained, its seed, and its folder."""

    network: ClaimNetwork
    seed: int
    scale: Scale
    data: str
    folder: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def recipe(self) -> vp.Recipe:
        """How it is trained."""
        return self.network.recipe(self.scale, self.seed)

    @property
    def subset(self) -> float:
        """The fraction of the training images of the data that it is trained on."""
        return round(self.scale.subset * self.network.fraction, 6)

    @property
    def job(self) -> vp.Job:
        """What is trained, on which images."""
        return vp.Job(
            model=self.scale.models[self.network.model],
            data=self.data,
            folder=self.folder,
            subset=self.subset,
            test_limit=self.scale.test_images,
            resume=True,
            logs=(),
        )

    @property
    def finished(self) -> bool:
        """Whether the folder holds the outcome of exactly this training."""
        files = [self.folder / name for name in (_WEIGHTS, _HISTORY, _RECIPE)]
        if not all(f.is_file() for f in files) or vp.load_recipe(str(files[-1])) != self.recipe:
            return False
        return self.history().provenance.model == self.job.model

    def train(self, run: vp.Run) -> vp.History:
        """Train it, resume its training, or read the history of a finished one."""
        if not self.finished:
            vp.train(self.job, self.recipe, run=run)
        return self.history()

    def history(self) -> vp.History:
        """The learning curve of a finished run."""
        return vp.History.load(self.folder / _HISTORY)

    @property
    def warm_up(self) -> int:
        """The last epoch of the warm-up, counted from 1."""
        return max(1, round(self.recipe.warmup))

    def snapshots(self) -> dict[int, Path]:
        """The weights of a finished run by epoch, from the end of the warm-up on."""
        paths = sorted((self.folder / "snapshots").glob("step-*.safetensors"))
        recipe = self.recipe
        steps = math.ceil(self.history().provenance.images / recipe.batch_size)
        epochs = {round(int(path.stem.partition("-")[2]) / steps): path for path in paths}
        epochs[recipe.epochs] = self.folder / _WEIGHTS
        return {epoch: epochs[epoch] for epoch in sorted(epochs) if epoch >= self.warm_up}

    def spec(self, epoch: int) -> str:
        """The weights of an epoch as `load_model` takes them; a user's code is named again."""
        own = self.scale.own_model
        return f"{own}@{self.snapshots()[epoch]}" if own else str(self.snapshots()[epoch])


def run_of(name: str, seed: int, scale: Scale, data: str, folder: Path) -> TrainingRun:
    """The run of the network with this name; networks of the same training share their runs."""
    network = NETWORKS[name]
    same = next(other for other in NETWORKS.values() if _same_training(other, network, scale))
    words = scale.title(same).replace(",", "").replace("%", "pct").split()
    return TrainingRun(
        same, seed, scale, data or scale.data, folder / "-".join([*words, f"seed{seed}"])
    )


def _same_training(one: ClaimNetwork, other: ClaimNetwork, scale: Scale) -> bool:
    if one.model not in scale.models or scale.models[one.model] != scale.models[other.model]:
        return False
    same_images = one.fraction == other.fraction
    return same_images and one.recipe(scale, 0) == other.recipe(scale, 0)
