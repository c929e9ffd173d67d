"""What an analysis needs, how many images a study measures it on, and what that costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from math import inf

from visprism.core.options import Effort


class Needs(Flag):
    """What an analysis needs in addition to a model and images."""

    NOTHING = 0
    FEATURES = auto()  # feature maps on a spatial grid; shares one streaming pass
    ATTENTION = auto()  # attention weights that can be read
    TARGETS = auto()  # labels of the classes that the model predicts
    OUTCOMES = auto()  # targets of whatever task, of which a number and a loss by image follow
    LABELS = auto()  # labels, which need not be the model's classes
    TRAINED = TARGETS | OUTCOMES | LABELS  # to random weights, labels mean nothing
    PIXELS = auto()  # pixel values before normalization, hence a preprocessing
    GRADIENTS = auto()  # a model that can be differentiated
    TRAINING_IMAGES = auto()  # describes the training loss: training images where there are any
    TEXTURES = auto()  # images whose shape and texture are of different classes
    OUTPUTS = auto()  # many passes that return logits only; shares the clean predictions
    TWO_MODELS = auto()  # compares models; measures nothing on a single model


@dataclass(frozen=True)
class Sizes:
    """How many images a study measures at each effort: the same of every model.

    The number is what the arithmetic of the effort pays for (`WORK`, in multiply-accumulates of
    the costliest model), at least `fewest` and at most what is declared here. Nothing is timed.
    """

    fewest: int = 1  # where the effort pays for fewer, a study leaves the analysis out
    quick: int | None = 256  # at most; None: no limit
    standard: int | None = 2048
    full: int | None = None
    work: int | float = 1  # multiple of `WORK`


# Multiply-accumulates of an analysis of one model at each effort: about 10 s and 100 s of a
# convolutional network on two cores.
WORK: Mapping[Effort, float] = {"quick": 8e11, "standard": 8e12, "full": inf}
_RATE = 8e10  # multiply-accumulates per second, to count what is not a pass


@dataclass(frozen=True)
class Cost:
    """What a measurement costs, in passes of one image.

    `per_image` and `fixed` count forward passes without gradients. A forward and backward pass
    counts as 3 of them, a Hessian-vector product as 7.
    """

    per_image: int | float = 0.0  # passes for each image that is measured
    fixed: int | float = 0.0  # passes whatever the number of images
    seconds_per_image: int | float = 0.0  # outside the passes, on two cores
    gradients: int | float = 0.0  # of the loss of each image, for the parameters
    products: int | float = 0.0  # Hessian-vector products for each image

    @property
    def passes(self) -> int | float:
        """Forward passes for each image."""
        return self.per_image + 3 * self.gradients + 7 * self.products

    def macs(self, macs: float) -> tuple[int | float, int | float]:
        """Multiply-accumulates for each image and in total, if a forward pass takes `macs`."""
        return self.passes * macs + self.seconds_per_image * _RATE, self.fixed * macs

    def seconds(self, images: int, forward: float, load: float = 0.0) -> float:
        """Expected seconds, if one image takes `forward` to compute and `load` to load.

        Example:
            >>> Cost(per_image=2, fixed=10).seconds(100, forward=0.01)
            2.1
        """
        per_image = self.passes * forward + self.seconds_per_image
        return images * (per_image + load * bool(per_image)) + self.fixed * forward
