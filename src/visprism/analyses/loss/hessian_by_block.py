"""Hessian of the training loss with respect to the parameters of each block."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.loss.by_block import hessian_by_block
from visprism.results.hessian_by_block import HessianByBlock as HessianByBlockResult
from visprism.table.result import Result

_PRODUCTS = 14  # Hessian-vector products for a leading eigenvalue


@ANALYSES.register
@dataclass(frozen=True)
class HessianByBlock(Analysis):
    """Hessian trace and leading eigenvalue of each block, kind or stage."""

    name = "hessian-by-block"
    full_precision = True
    group = "loss"
    needs = Needs.TARGETS | Needs.GRADIENTS | Needs.TRAINING_IMAGES
    source = "Dong et al. (2020), HAWQ-V2; Park & Kim (2022), app. C"
    images = Sizes(fewest=16, quick=16, standard=128)
    rank = 3
    default = False
    sections = (
        Section(
            HessianByBlockResult,
            "Hessian of each block",
            "Trace of the Hessian of the mean training loss with respect to the parameters of "
            "one block, with its 95% interval over random vectors. Each line is a number of "
            "images. Large blocks have large traces: the table has the numbers of parameters "
            "and the leading eigenvalues.",
        ),
    )

    by: Literal["block", "kind", "stage"] = option(
        "block", "parts whose parameters are differentiated: block, kind or stage"
    )
    fractions: tuple[float, ...] = option(
        (1.0,), "fractions of the images, the first ones", above=0, maximum=1
    )
    probes: int = option(10, "number of random vectors for each trace", minimum=3, quick=3)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Trace and leading eigenvalue of each part."""
        return (
            hessian_by_block(
                subject.anatomy,
                subject.training_batches(),
                by=self.by,
                fractions=self.fractions,
                probes=self.probes,
                run=subject.named(run, training=True),
            ),
        )

    def cost(self, subject: Subject) -> Cost:
        """Hessian-vector products for each part and fraction."""
        names = {getattr(block, self.by, block.name) for block in subject.anatomy}
        parts = len(subject.anatomy) if self.by == "block" else len(names)
        return Cost(products=(self.probes + _PRODUCTS) * parts * sum(self.fractions))
