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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

import visprism as vp
from visprism.estimates.estimated import mean
from visprism.estimates.questions import Question

QUESTION = Question("How sparse are feature maps?", "sparsity")


@vp.result_type("sparsity")
class Sparsity(vp.ScalarPerBlock):
    """Fraction of activations near 0; one row per block."""

    value_name = "sparsity"
    sparsity: np.ndarray = vp.estimate("Sparsity", "", "fraction of activations near 0")
    overall: float = vp.estimate("Mean sparsity of all blocks", question=QUESTION)


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

    def extract(self, x: Tensor) -> Tensor:
        largest = x.abs().amax((1, 2, 3), keepdim=True)
        return (x.abs() <= self.threshold * largest).double().mean((1, 2, 3))

    def results(self, seen: vp.Seen) -> Sequence[vp.Result]:
        by_image = seen.stacked()  # images by blocks
        blocks = vp.block_columns(seen.blocks)
        return (Sparsity(**blocks, sparsity=mean(by_image), overall=mean(by_image.mean(1))),)


if __name__ == "__main__":
    study = vp.examine(
        ["resnet20.shapes", "vit_pico_patch4_32.shapes"],
        "shapes",
        analyses=["sparsity"],
        images=vp.DataOptions(limit=32),
    )
    print(*study.lines(), sep="\n")
