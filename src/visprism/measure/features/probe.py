"""Probes: statistics of feature maps, gathered batch by batch in one pass over the data."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int, Int64
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Block, Weights
from visprism.core.errors import InputError
from visprism.core.statistics import Sums, standard_error
from visprism.results.base import Result
from visprism.results.per_image import PerImage

Sees = Literal["feature maps", "tokens", "attention", "residual branches", "heads"]


class Probe(ABC):
    """A streaming statistic of feature maps, or of attention.

    Its state is `sums`, arrays that add up over images: fixed in size, and independent of the
    batches and processes. `visprism.testing.check_probe` checks it. (`CKAProbe`, which compares
    the images of a batch, adds up over batches.)

    A probe may `record` quantities that have one value for each image, so that two models can
    be compared image by image. Their memory is one number for each image and quantity.
    """

    # Of a probe that sees several, those that the model does not have are left out.
    sees: ClassVar[Sees | tuple[Sees, ...]] = "feature maps"

    def __init__(self) -> None:
        self.sums: Sums = {}
        self.recorded: dict[str, list[np.ndarray]] = {}  # by quantity; values of each batch
        self.seed = 0  # of random draws; `observe` sets it
        self.between: Mapping[
            str, str
        ] = {}  # blocks off the grid before a block; `observe` too
        self.targets: Int64[Tensor, " b"] | None = None  # of the batch to add; `observe` too

    @abstractmethod
    def extract(self, x: Any) -> Tensor:
        """The statistics of one block's feature map; called inside the forward pass.

        It is new memory, does not change `x`, and is finite where `x` is. `x` is the feature
        map (B, C, H, W), float32 or float64, in any order of memory: tokens come as a view with
        the channels together. A probe that sees tokens is given `Tokens`, one that sees
        attention `Weights`.
        """

    @property
    def all_seen(self) -> tuple[Sees, ...]:
        """What it sees, also where that is one thing."""
        return (self.sees,) if isinstance(self.sees, str) else self.sees

    @abstractmethod
    def update(self, batch: Mapping[Any, Tensor]) -> None:
        """Add one batch: block or attention -> what `extract` returned, in forward order."""

    @abstractmethod
    def result(self) -> Result:
        """The statistic over everything added so far."""

    def further_results(self) -> tuple[Result, ...]:
        """Results of other types over the same data; none by default."""
        return ()

    def notes(self, anatomy: Anatomy) -> tuple[str, ...]:
        """Sentences on what this statistic does not cover for these blocks."""
        return ()

    def add(self, sums: Sums) -> None:
        """Add the sums of one batch, or of another process."""
        for block, value in sums.items():
            self.sums[block] = self.sums[block] + value if block in self.sums else value

    def record(self, quantity: str, values: Float[np.ndarray, " b"]) -> None:
        """Record the value of a quantity for each image of the batch that `update` adds.

        Args:
            quantity: its name; where an `Answer` reports its mean over images, the name that
                the answer gives it. The same quantities must be recorded for every batch.
            values: in the order of the images; not finite where an image has no value.
        """
        self.recorded.setdefault(quantity, []).append(values.astype(np.float64))

    def per_image(self, image: Int[np.ndarray, " n"]) -> PerImage | None:
        """The recorded values; None if no quantity was recorded.

        Args:
            image: index in the data of each image that was added, in the order of addition.

        Raises:
            ValueError: if a quantity was not recorded for every image.
        """
        if not self.recorded:
            return None
        by_quantity = {name: np.concatenate(parts) for name, parts in self.recorded.items()}
        for name, values in by_quantity.items():
            if len(values) != len(image):
                raise ValueError(
                    f"{name!r} must be recorded for each of {len(image)} images, got "
                    f"{len(values)} values"
                )
        order = np.argsort(image)
        value = np.concatenate([values[order] for values in by_quantity.values()])
        finite = np.isfinite(value)
        return PerImage(
            quantity=np.repeat(list(by_quantity), len(image))[finite],
            image=np.tile(image[order], len(by_quantity))[finite],
            value=value[finite],
        )

    def kind_errors(
        self, name: str, blocks: Sequence[Block], lengths: Sequence[int]
    ) -> Float[np.ndarray, "rows"]:
        """Standard errors over images of a kind's mean, in the last of each block's rows.

        Args:
            name: of a quantity whose `image_sums` by kind stand in `sums` under (name, kind).
            blocks: in the order of the result.
            lengths: number of rows of each block.
        """
        errors = np.full(sum(lengths), np.nan)
        for last, block in zip(np.cumsum(lengths) - 1, blocks, strict=True):
            if (name, block.kind) in self.sums:
                images, total, squares = self.sums[name, block.kind]
                errors[last] = standard_error(*(np.array(v) for v in (total, squares, images)))
        return errors

    def gathered(self) -> Sums:
        """The sums, for `result` to divide."""
        if not self.sums:
            raise InputError(
                "a probe must see at least one batch before it has a result, got none"
            )
        return self.sums


class ImagewiseAttentionProbe(Probe):
    """A probe of attention that extracts each image's statistics from that image alone.

    A pass gives `reduce` the weights of a few images at a time, while they are in the
    processor's cache, and `finish` what was reduced of the whole batch.
    """

    sees = "attention"

    def extract(self, x: Weights) -> Tensor:
        """The statistics of one attention; see `Probe.extract`."""
        return self.finish(x.attention, self.reduce(x))

    @abstractmethod
    def reduce(self, x: Weights) -> tuple[Tensor, ...]:
        """Sums over the weights; the first axis of each is that of the images."""

    @abstractmethod
    def finish(self, attention: Attention, reduced: tuple[Tensor, ...]) -> Tensor:
        """The statistics, from what was reduced."""
