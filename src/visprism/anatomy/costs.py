"""Costs of a model: parameters and arithmetic of each block."""

from collections.abc import Iterator, Sequence

import numpy as np

from visprism.estimates.findings import Finding
from visprism.table.result import Result, column, result_type, scalar


@result_type("costs")
class Costs(Result):
    """Parameters and arithmetic of a model; one row per block, in forward order."""

    block: np.ndarray = column("Block", "", "name of the block in the model")
    kind: np.ndarray = column("Kind", "", "stem, conv, attention, mlp, ... or head")
    stage: np.ndarray = column(
        "Stage", "", "0 for the stem, then one more at each smaller spatial grid"
    )
    depth: np.ndarray = column(
        "Normalized depth", "", "0 for the stem, 1 for the last block before the head"
    )
    subsampling: np.ndarray = column(
        "Subsampling", "", "whether its spatial grid is smaller than that of the block before"
    )
    stream: np.ndarray | int = scalar(
        "Stream", "", "0 for what everything passes through; parallel streams from 1", default=0
    )
    channels: np.ndarray = column("Channels", "", "channels of its output")
    height: np.ndarray = column(
        "Height", "positions", "height of its spatial grid; 1 where its output has none"
    )
    width: np.ndarray = column(
        "Width", "positions", "width of its spatial grid; 1 where its output has none"
    )
    parameters: np.ndarray = column(
        "Parameters", "", "parameters that the block reads, shared ones in every row"
    )
    macs: np.ndarray = column("MACs", "per image", "multiply-accumulate operations")
    distinct_parameters: int = scalar(
        "Distinct parameters", "", "parameters of the model, shared ones counted once"
    )

    def sentences(self) -> Iterator[str | Finding]:
        """Size of the model."""
        kinds, counts = np.unique(self.kind, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        blocks = ", ".join(f"{counts[i]} {kinds[i]}" for i in order)
        streams = len({*np.ravel(self.stream).tolist()} - {0})
        parallel = f" in {streams} parallel streams" if streams else ""
        yield (
            f"{len(self)} blocks{parallel} ({blocks}), "
            f"{short(float(self.distinct_parameters))} parameters, "
            f"{short(float(self.macs.sum()))} MACs per image"
        )


def map_size(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width of an output; height and width 1 without a spatial grid."""
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (shape[-1], 1, 1)


def short(number: float) -> str:
    """With a decimal prefix: 4.09 G."""
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:g}"
