"""What a study measures, on which images and how: each option once, with help and bounds.

The flags of the command line, the arguments of `visprism.examine`, ``study.yaml`` and the form
of the app are made from these fields. Nothing here imports torch, which takes seconds: the
command line reads the fields for its help.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from visprism.core.errors import InputError
from visprism.core.options import Effort, argument, check_options

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The size of images."""

    size: tuple[int, int] | None = argument(
        None,
        "image size in pixels (default: as the model states, otherwise as in the data)",
        "N|HxW",
    )


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """The seed of everything random."""

    seed: int = argument(
        0,
        "random seed of weights, of the order of images and of measurements",
        minimum=0,
        form=True,
    )


@dataclass(frozen=True, kw_only=True)
class Weights(Seeded):
    """Which weights models have that are given by name."""

    pretrained: bool | None = argument(
        None,
        "load the weights inside the package of models of the zoo, and published weights of "
        "others (default: random weights of the zoo, published weights of others)",
        opposite=(
            "random-weights",
            "load random weights of models that are given by name (default: see --pretrained)",
        ),
        form=True,
    )


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """Where models run."""

    device: str = argument(
        AUTO,
        "device: auto (where a module lies, and the accelerator, if there is one, for models "
        "that are given by name), cpu, cuda, cuda:1, mps or xla",
        "NAME",
    )


@dataclass(frozen=True, kw_only=True)
class Computation(OnDevice):
    """How models run."""

    heading = "computation"

    precision: Literal["fp32", "tf32", "bf16", "fp16"] = argument(
        "fp32", "precision of forward passes"
    )


@dataclass(frozen=True, kw_only=True)
class Reading(Sized):
    """How images are read."""

    heading = "images"

    split: str | None = argument(
        None,
        "split to measure on, such as train, val or test (default: test, or all images)",
        "NAME",
    )
    task: Any = argument(
        None,
        "what outputs and targets mean: classification, multilabel, regression, segmentation, "
        "retrieval or a registered task (default: as the model or the targets state)",
        "NAME",
    )
    normalization: Literal["stated", "imagenet", "cifar10", "cifar100", "half", "none"] = (
        argument(
            "stated",
            "mean and standard deviation of pixels: as each model states, of a data set, "
            "half (pixels in [-1, 1]) or none (pixels in [0, 1])",
        )
    )
    mean: tuple[float, ...] | None = argument(
        None,
        "mean of each channel, of pixels in [0, 1] (default: see normalization)",
        "R,G,B",
    )
    std: tuple[float, ...] | None = argument(
        None, "standard deviation of each channel (default: see normalization)", "R,G,B"
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(Reading):
    """How images are chosen and read; the same for every model of a study."""

    limit: int | None = argument(
        None,
        "maximum number of images, a stratified sample; analyses of one forward pass measure "
        "all of them at any effort (default: as the effort states)",
        minimum=1,
        form=True,
    )
    batch_size: int | None = argument(
        None,
        "images per forward pass (default: 16; selected by image size for passes that return "
        "logits only)",
        minimum=1,
    )
    skip_bad: bool = argument(
        False, "leave out images that cannot be read (default: refuse them)"
    )

    def __post_init__(self) -> None:
        check_options(self)
        size = self.size
        if size is not None and not (
            isinstance(size, tuple) and len(size) == 2 and min(size) > 0
        ):
            raise InputError(f"size must be (height, width) in pixels, got {size!r}")
        if (self.mean is None) != (self.std is None):
            raise InputError(
                f"mean and std must be given together, got {self.mean} and {self.std}"
            )
        if self.mean is not None and self.normalization != "stated":
            raise InputError(
                f"normalization or mean and std must be given, got both: {self.normalization}, "
                f"{self.mean} and {self.std}"
            )

    @classmethod
    def of(cls, options: Any) -> Self:
        """The options of this class, from an instance that has more."""
        return cls(**{one.name: getattr(options, one.name) for one in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class StudyImages(DataOptions):
    """The images of a study, and the images of the training loss."""

    heading = "images"

    train_data: Any = argument(
        None,
        "images on which the training loss, its Hessian and linear probes are computed "
        "(default: the training split of the data, or the data itself if it has none or if a "
        "split is named)",
        "DATA",
    )


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much a study measures."""

    heading = "study"

    effort: Effort = argument(
        "quick",
        "how many images, and values of options that are not given: quick (about a minute for "
        "a model of 4 GMACs on two cores), standard (ten times as long) or full (all images)",
        form=True,
    )
    minutes: float | None = argument(
        None,
        "time limit in minutes: analyses run in the order of the plan until it is reached, "
        "and the rest is listed; files are written within it on the command line "
        "(default: none)",
        "N",
        above=0,
        form=True,
    )
    fresh: bool = argument(False, "start over (default: resume what the output folder holds)")


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Computation, Extent, StudyImages, Weights):
    """Every option of a study that a command line or a file can state."""

    output: str | None = argument(
        None,
        "output with the logits, of models that return several tensors (default: the one "
        "called logits, or with the number of classes of the data)",
        "NAME",
    )
