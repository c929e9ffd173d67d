"""Statistics of the one pass: what is extracted of each block, kept, and made into results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.core.provenance import Provenance
from visprism.passes.blocks import Neighbors, block_columns, source_columns
from visprism.table.kinds import Change, KindSummary, summarize_by_kind
from visprism.table.result import Result
from visprism.table.shapes import ChangePerBlock, SeriesPerBlock

R = TypeVar("R", bound=Result)
S = TypeVar("S", bound=SeriesPerBlock)
Sees = Literal["feature maps", "tokens", "attention", "residual branches"]
Extract = Mapping[str, Tensor]  # values of each image, (B, ...), by name
Extracts = Mapping[Any, Extract]  # by block, attention or end of a branch
Arrays = dict[Any, np.ndarray]


class Value(NamedTuple):
    """The key of one named value of one source."""

    source: Any
    name: str


@dataclass(frozen=True)
class PassResult:
    """What a pass gathered for one statistic."""

    by_image: Arrays  # (images, ...) in the order of the data, by `Value`
    sums: Arrays  # by `Value`, or by the keys of a statistic's own `sums`
    images: int
    anatomy: Anatomy
    between: Mapping[str, str]  # blocks off the grid right before a block, by its name
    seed: int
    provenance: Provenance

    @property
    def blocks(self) -> list[Block]:
        """The blocks on a spatial grid, in forward order."""
        return [block for block in self.anatomy if block.layout is not None]

    @property
    def neighbors(self) -> Neighbors:
        """These blocks, and what stands before each."""
        return Neighbors(self.blocks, self.between)

    def sources(self, *names: str) -> list[Any]:
        """What has values of all these names, in forward order."""
        every = dict.fromkeys(key.source for key in self.by_image)
        return [s for s in every if all(Value(s, name) in self.by_image for name in names)]

    def __getitem__(self, name: str) -> Float[np.ndarray, "n sources *_"]:
        """The values of a name by image, of every source that has it."""
        return self._of(name, self.sources(name))

    def _of(self, name: str, sources: Sequence[Any]) -> Float[np.ndarray, "n sources *_"]:
        values = [self.by_image[Value(source, name)] for source in sources]
        return np.stack(values, axis=1).astype(np.float64)

    def each(self, name: str) -> dict[Any, Float[np.ndarray, "n *_"]]:
        """The values of a name by image, of each source that has it."""
        sources = self.sources(name)
        return {s: self.by_image[Value(s, name)].astype(np.float64) for s in sources}

    def total(self, name: str) -> dict[Any, np.ndarray]:
        """The sum over images of the values of a name, by source."""
        return {k.source: v for k, v in self.sums.items() if k.name == name}

    def before(self, values: Float[np.ndarray, "n blocks *_"]) -> np.ndarray:
        """The values of the block before each; NaN where there is none on its grid."""
        return self.neighbors.before(values)

    def result(
        self,
        kind: type[R],
        values: Mapping[str, np.ndarray] = MappingProxyType({}),
        **columns: Any,
    ) -> R:
        """A result with a row for each source, whose estimates are reduced by their names.

        Args:
            kind: of result.
            values: by image and source, which come before the pass's values of these names.
            **columns: what is no estimate.
        """
        needed = {n for k, e in kind.estimates().items() for n in e.reduce.names or (k,)}
        extracted = [name for name in needed - {*values} if self.sources(name)]
        sources = self.sources(*extracted) if extracted else self.blocks
        place = source_columns(sources)
        if issubclass(kind, ChangePerBlock):
            place |= self.neighbors.columns()
        every = {name: self._of(name, sources) for name in extracted} | {**values}
        return kind.reduced(every, **place | columns)

    def series(
        self,
        kind: type[S],
        labels: Mapping[str, str],
        compute: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> S:
        """A `SeriesPerBlock` with a row for each block and each of these values that it has.

        Args:
            kind: of result.
            labels: by name of the value.
            compute: from the values of a name to one number of each image.
        """
        rows = [(b, n) for b in self.blocks for n in labels if Value(b, n) in self.by_image]
        columns = block_columns([block for block, _ in rows])
        columns[kind.series_name] = np.array([labels[name] for _, name in rows])
        values = [self.by_image[Value(*row)].astype(np.float64) for row in rows]
        values = np.stack([compute(v) if compute else v for v in values], axis=1)
        return kind.reduced({kind.value_name: values}, **columns)

    def by_kind(self, changes: Mapping[Change, Float[np.ndarray, "n blocks"]]) -> KindSummary:
        """The mean change of each quantity across the blocks of each kind."""
        return summarize_by_kind(changes, self.neighbors.kinds, self.neighbors.eligible)


class FeatureStatistic(ABC):
    """A statistic of feature maps or of attention, computed in the one pass over the data.

    It holds options only; the pass holds what is gathered. `visprism.check_statistic`
    checks that it depends neither on the batches nor on the number of processes.
    """

    # If a statistic sees several, those that the model does not have are left out.
    sees: ClassVar[Sees | tuple[Sees, ...]] = "feature maps"
    summed: ClassVar[tuple[str, ...]] = ()  # values that are added up over images, not kept

    @property
    def all_seen(self) -> tuple[Sees, ...]:
        """What it sees, as a tuple."""
        return (self.sees,) if isinstance(self.sees, str) else self.sees

    @abstractmethod
    def extract(self, x: Any) -> Extract:
        """Values of one block for each image, (B, ...), by name; called in the forward pass.

        They are new memory, and finite where `x` is; `x` is not changed. `x` is the feature
        map (B, C, H, W), float32 or float64, in any order of memory; a statistic that sees
        tokens is given `Tokens`, one that sees attention `Weights`.
        """

    def by_image(self, extracts: Extracts) -> Arrays:
        """Values of each image of a batch, of extracts on the CPU."""
        return {
            Value(source, name): x.numpy()
            for source, values in extracts.items()
            for name, x in values.items()
            if name not in self.summed
        }

    def sums(self, extracts: Extracts, batch: int, seed: int) -> Arrays:
        """Sums over the images of a batch, of what is too large to keep by image: `summed`.

        Args:
            extracts: of the batch, on the CPU.
            batch: its number in the data.
            seed: of the run, for random draws.
        """
        return {
            Value(source, name): values[name].sum(0).numpy()
            for source, values in extracts.items()
            for name in self.summed
            if name in values
        }

    @abstractmethod
    def results(self, seen: PassResult) -> Sequence[Result]:
        """The results, the main one first, from what was gathered over all images."""

    def notes(self, anatomy: Anatomy) -> tuple[str, ...]:
        """Sentences on what this statistic does not cover for these blocks."""
        return ()
