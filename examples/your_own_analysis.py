"""
Add an analysis
===============

This file adds an analysis that visprism does not have: how sparse the feature maps of each
block are. Its command, its place in ``examine``, the plan and the report, and its rows in
results.json follow from the declaration. To install it, name this module in the entry points of
a package::

    [project.entry-points."visprism.plugins"]
    sparsity = "your_own_analysis"

Then ``visprism sparsity --help`` explains it. Run: python examples/your_own_analysis.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

import visprism as vp


@vp.result_type("sparsity")
class Sparsity(vp.ScalarPerBlock):
    """Fraction of activations near 0; one row per block."""

    value_name = "sparsity"
    sparsity: np.ndarray = vp.column("Sparsity", "", "fraction of activations near 0")
    sparsity_error: np.ndarray = vp.column("Standard error", "", "of the sparsity, over images")

    def answers(self) -> tuple[vp.Answer, ...]:
        """The mean over blocks."""
        mean = float(self.sparsity.mean())
        return (vp.Answer("How sparse are feature maps?", "mean sparsity", mean),)


class SparsityProbe(vp.Probe):
    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def extract(self, x: Tensor) -> Tensor:
        largest = x.abs().amax((1, 2, 3), keepdim=True)
        return (x.abs() <= self.threshold * largest).float().mean((1, 2, 3))

    def update(self, batch: Mapping[vp.Block, Tensor]) -> None:
        for block, sparsity in batch.items():
            s = sparsity.double().cpu().numpy()
            self.add({block: np.array([len(s), s.sum(), (s**2).sum()])})

    def result(self) -> Sparsity:
        count, total, squares = np.stack(list(self.gathered().values())).T
        mean = total / count
        variance = np.maximum(squares / count - mean**2, 0)
        return Sparsity(
            **vp.block_columns(list(self.sums)),
            sparsity=mean,
            sparsity_error=np.sqrt(variance / np.maximum(count - 1, 1)),
        )


@vp.ANALYSES.register
@dataclass(frozen=True)
class MeasureSparsity(vp.FeatureAnalysis):
    """Fraction of activations of each block that are near 0."""

    name = "sparsity"
    group = "feature maps"
    source = "Glorot et al. (2011), Deep sparse rectifier neural networks"
    sections = (
        vp.Section(
            Sparsity,
            "Sparsity of feature maps",
            "An activation counts as 0 if it is at most the threshold times the largest of its "
            "image and block. ReLU networks are sparse, networks with GELU are not.",
        ),
    )

    threshold: float = vp.option(
        0.01, "largest absolute value, as a fraction of the largest", minimum=0, maximum=1
    )

    def probe(self, subject: vp.Subject) -> SparsityProbe:
        return SparsityProbe(self.threshold)

    def derive(self, result: vp.Result) -> Sequence[vp.Result]:
        return (result,)


if __name__ == "__main__":
    study = vp.examine(
        ["resnet20.shapes", "vit_pico_patch4_32.shapes"],
        "shapes",
        analyses=["sparsity"],
        images=vp.DataOptions(limit=32),
    )
    print(*study.lines(), sep="\n")
