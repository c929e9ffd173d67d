"""Ablation of blocks, convolutions and heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs import ablation
from visprism.measure.outputs.ablation_plan import ablation_passes
from visprism.results.ablation import Ablations, JointAblations, KindAblations
from visprism.results.base import Result


@ANALYSES.register
@dataclass(frozen=True)
class Ablation(Analysis):
    """Accuracy drop without each block, convolution or attention head."""

    name = "ablation"
    group = "robustness"
    min_images = 16
    max_images = 512
    needs = Needs.TARGETS | Needs.OUTPUTS
    source = "Park & Kim (2022), fig. 10 and app. D.4; Veit et al. (2016)"
    claims = ("C10",)
    sections = (
        Section(
            Ablations,
            "Ablation",
            "Each point is the accuracy drop when one block is replaced by the identity, with "
            "its 95% interval over images. Removing one convolution inside a block is another "
            "experiment, drawn apart.",
            figures={"": {}, "convolutions": {"ablated": "convolution"}},
        ),
        Section(
            KindAblations,
            "Ablation by kind of block",
            "Mean accuracy drop over the blocks of a kind, and differences between kinds and "
            "between late and early blocks of a stage. Intervals are over images.",
        ),
        Section(
            JointAblations,
            "Joint ablation",
            "Accuracy drop when several random blocks are ablated together, with the range "
            "over draws, beside the sum of their single drops.",
        ),
    )

    parts: tuple[Literal["blocks", "convolutions", "heads"], ...] = option(
        ("blocks", "convolutions"), "parts to ablate one by one"
    )
    joint: tuple[int, ...] = option((), "numbers of blocks to ablate together", minimum=1)
    draws: int = option(
        10, "number of random sets of blocks for each number in joint", minimum=1
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Ablate each part in turn."""
        run = subject.for_outputs(run)
        rows, kinds, per_image = ablation(
            subject.anatomy,
            subject.output_batches(run),
            parts=self.parts,
            joint=self.joint,
            draws=self.draws,
            run=run,
        )
        joint = (rows.joint(),) if self.joint else ()
        return (rows, kinds, *joint, per_image)

    def cost(self, subject: Subject) -> Cost:
        """Half a forward pass per ablation on average, as only what follows is computed."""
        passes = ablation_passes(subject.anatomy, self.parts, self.joint, self.draws)
        return Cost(per_image=passes)

    def coarser(self) -> "Ablation | None":
        """Without convolutions, heads and joint ablations."""
        cheaper = replace(self, parts=("blocks",), joint=())
        return cheaper if cheaper != self else None
