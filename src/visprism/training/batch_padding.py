"""Turns: test batches, as many for each process, as a sharded model needs them all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.processes import world_size


@dataclass(frozen=True)
class Even(Sequence):
    """Batches, and an image of the first one again, so that every process has as many.

    A forward pass needs all processes; one that had none left would leave the others waiting.
    """

    batches: Sequence[tuple[Tensor, Tensor]]

    @property
    def added(self) -> int:
        """How many images more there are, at the end."""
        return -len(self.batches) % world_size()

    def __len__(self) -> int:
        """Batches, with those of one image."""
        return len(self.batches) + self.added

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (as of any sequence)
        """A batch; of a slice, those that are there and those that are added."""
        if not isinstance(index, slice):
            images, targets = self.batches[index if index < len(self.batches) else 0]
            return (images, targets) if index < len(self.batches) else (images[:1], targets[:1])
        numbers = range(len(self))[index]
        there = range(len(self.batches))[index]
        return chain(self.batches[index], (self[n] for n in numbers[len(there) :]))


def pad_batches(test: Iterable[tuple[Tensor, Tensor]]) -> Even:
    """Test batches, as many for every process.

    Raises:
        InputError: if they cannot be counted.
    """
    if not isinstance(test, Sequence):
        raise InputError(
            f"sharded training counts its test batches, and a {type(test).__name__} has no "
            "length and no slices; give a list, or what vp.batches gives"
        )
    return Even(test)
