"""Regrouping: the same labeled images in the same order, in batches of another size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from visprism.anatomy import Images, batch_size
from visprism.passes.batches import Batch

LabeledBatch = tuple[Images, Int64[Tensor, " b"]]


def peek(batches: Iterable[Batch]) -> tuple[Batch | None, int | None, Iterable[Batch]]:
    """The first batch (None: none), the number of all (None: unknown), and all batches."""
    number = len(batches) if isinstance(batches, Sized) else None
    if isinstance(batches, Sequence):
        return (batches[0] if number else None), number, batches
    rest = iter(batches)
    first = list(islice(rest, 1))
    return (first[0] if first else None), number, chain(first, rest)


def grouped(batches: Iterable[Batch], number: int) -> Iterable[Iterable[Batch]]:
    """Groups of `number` consecutive batches; a sequence of them where batches are one."""
    if isinstance(batches, Sequence):
        return _Groups(batches, number, range(-(-len(batches) // number)))
    rest = iter(batches)
    return iter(lambda: list(islice(rest, number)), [])


def regrouped(batches: Iterable[LabeledBatch], size: int | None) -> Iterator[LabeledBatch]:
    """The images of several batches in equal batches of at most `size`; None: as given.

    Neighbors of different shape or names stay in separate batches, so that no batch has
    images of two shapes.
    """
    if size is None:
        yield from batches
        return
    for _, alike in groupby(batches, key=lambda batch: _form(batch[0])):
        images, targets = zip(*alike, strict=True)
        joined, labels = _joined(images), torch.cat(targets)
        parts = -(-len(labels) // size)
        rows = -(-len(labels) // parts)
        for start in range(0, len(labels), rows):
            part = slice(start, start + rows)
            yield _rows(joined, part, len(labels)), labels[part]


@dataclass(frozen=True)
class _Groups(Sequence):
    """Groups of consecutive batches; batches are read when a group is iterated over."""

    batches: Sequence
    number: int
    groups: range

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return replace(self, groups=self.groups[index])
        start = self.groups[index] * self.number
        return self.batches[start : start + self.number]

    def __iter__(self) -> Iterator:
        if self.groups.step != 1 or len(self) * self.number < len(self.batches):
            return (self[i] for i in range(len(self)))
        rest = iter(self.batches)  # one pass, in which batches are prepared ahead
        return iter(lambda: list(islice(rest, self.number)), [])


def _form(images: Images) -> tuple:
    """What images must share to be joined."""
    if not isinstance(images, Mapping):
        return tuple(images.shape[1:]), images.dtype
    number = batch_size(images)
    form = [(name, tuple(t.shape[1:]), t.dtype) for name, t in images.items()]
    return *form, all(len(t) == number for t in images.values()) or id(images)


def _joined(images: Sequence[Any]) -> Images:
    if len(images) == 1:
        return images[0]
    if isinstance(images[0], Mapping):
        return {name: torch.cat([part[name] for part in images]) for name in images[0]}
    return torch.cat(list(images))


def _rows(images: Images, rows: slice, number: int) -> Images:
    if not isinstance(images, Mapping):
        return images[rows]
    return {n: t[rows] if len(t) == number else t for n, t in images.items()}
