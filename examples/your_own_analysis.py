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

from torch import Tensor

import visprism as vp
from visprism import kit


@kit.result("sparsity", "Sparsity of feature maps")
class Sparsity(kit.ScalarPerBlock):
    """Fraction of activations near 0; one row for each block.

    An activation counts as 0 if it is at most the threshold times the largest of its image and
    block. ReLU networks are sparse, networks with GELU are not.
    """

    value_name = "sparsity"
    sparsity: kit.Estimated = kit.estimate(
        "Sparsity", "", "fraction of activations near 0", asks="How sparse are feature maps?",
        row="mean over blocks",
    )  # fmt: skip


@kit.analysis
class MeasureSparsity(kit.FeatureAnalysis):
    """Fraction of activations of each block that are near 0."""

    name = "sparsity"
    source = "Glorot et al. (2011), Deep sparse rectifier neural networks"
    gives = Sparsity

    threshold: float = kit.option(
        0.01, "largest absolute value, as a fraction of the largest", minimum=0, maximum=1
    )

    def extract(self, x: Tensor) -> dict[str, Tensor]:
        largest = x.abs().amax((1, 2, 3), keepdim=True)
        near = x.abs() <= self.threshold * largest
        return {"sparsity": near.double().mean((1, 2, 3))}  # of each image


if __name__ == "__main__":
    study = vp.examine(
        ["resnet20.shapes", "vit_pico_patch4_32.shapes"],
        "shapes",
        analyses=["sparsity"],
        limit=32,
    )
    print(*study.lines(), sep="\n")
