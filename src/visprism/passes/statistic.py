"""Statistics of the one pass: what is extracted of each block, kept, and made into results."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.core.provenance import Provenance
from visprism.passes.blocks import Neighbors
from visprism.table.result import Result

Sees = Literal["feature maps", "tokens", "attention", "residual branches"]
Extracts = Mapping[Any, Tensor]  # by block, attention or end of a branch: what is extracted
Arrays = dict[Any, np.ndarray]


@dataclass(frozen=True)
class Seen:
    """What a pass gathered for one statistic."""

    by_image: Arrays  # (images, ...) in the order of the data, by the keys of `by_image`
    sums: Arrays  # by the keys of `sums`
    images: int
    anatomy: Anatomy
    between: Mapping[str, str]  # blocks off the grid right before a block, by its name
    seed: int
    provenance: Provenance

    @property
    def blocks(self) -> list[Block]:
        """The blocks with values by image, in forward order."""
        return [key for key in self.by_image if isinstance(key, Block)]

    @property
    def neighbors(self) -> Neighbors:
        """These blocks, and what stands before each."""
        return Neighbors(self.blocks, self.between)

    def stacked(self, *index: Any) -> Float[np.ndarray, "n blocks"]:
        """The values by image of all blocks, at one place of what is extracted of each."""
        values = [self.by_image[b][(slice(None), *index)] for b in self.blocks]
        return np.stack(values, axis=1).astype(np.float64)


class FeatureStatistic(ABC):
    """A statistic of feature maps or of attention, computed in the one pass over the data.

    It holds options only; the pass holds what is gathered. `visprism.check_statistic`
    checks that it depends neither on the batches nor on the number of processes.
    """

    # If a statistic sees several, those that the model does not have are left out.
    sees: ClassVar[Sees | tuple[Sees, ...]] = "feature maps"

    @property
    def all_seen(self) -> tuple[Sees, ...]:
        """What it sees, as a tuple."""
        return (self.sees,) if isinstance(self.sees, str) else self.sees

    @abstractmethod
    def extract(self, x: Any) -> Tensor:
        """Numbers of one block for each image, (B, ...); called inside the forward pass.

        It is new memory, does not change `x`, and is finite where `x` is. `x` is the feature
        map (B, C, H, W), float32 or float64, in any order of memory; a statistic that sees
        tokens is given `Tokens`, one that sees attention `Weights`.
        """

    def by_image(self, extracts: Extracts) -> Arrays:
        """Values of each image of a batch, by block or another key, of extracts on the CPU."""
        return {key: x.numpy() for key, x in extracts.items()}

    def sums(self, extracts: Extracts, batch: int, seed: int) -> Arrays:
        """Sums over the images of a batch, of what is too large to keep by image; none.

        Args:
            extracts: of the batch, on the CPU.
            batch: its number in the data.
            seed: of the run, for random draws.
        """
        return {}

    @abstractmethod
    def results(self, seen: Seen) -> Sequence[Result]:
        """The results, the main one first, from what was gathered over all images."""

    def notes(self, anatomy: Anatomy) -> tuple[str, ...]:
        """Sentences on what this statistic does not cover for these blocks."""
        return ()
