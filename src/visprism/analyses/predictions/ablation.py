"""Ablation of blocks, convolutions, heads, channels and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs.ablation_plan import AblationSpec, ablation_passes
from visprism.measure.outputs.block_ablation import ablation
from visprism.passes.tokens import token_roles
from visprism.results.ablation import Ablations, JointAblations, KindAblations
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Ablation(Analysis):
    """Accuracy drop without each block, convolution, attention head, channel or token."""

    name = "ablation"
    group = "robustness"
    images = Sizes(fewest=16, quick=128, standard=512)
    needs = Needs.TARGETS | Needs.OUTPUTS
    source = (
        "Park & Kim (2022), fig. 10 and app. D.4; Veit et al. (2016); Morcos et al. (2018) for "
        "replacements"
    )
    claims = ("C10",)
    sections = (
        Section(
            Ablations,
            "Ablation",
            "Each point is the accuracy drop when what one block adds is replaced, with its "
            "95% interval over images. The sentence names the replacement; zero is the "
            "identity. Replacing one convolution inside a block is another experiment, drawn "
            "apart.",
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

    parts: tuple[Literal["blocks", "convolutions", "heads", "channels", "tokens"], ...] = (
        option(("blocks", "convolutions"), "parts to ablate one by one")
    )
    replacement: Literal["zero", "mean", "shuffle"] = option(
        "zero",
        "what replaces that which a part adds: zero, its mean over images and positions, or "
        "that of another image",
    )
    channels: int = option(
        4, "number of random channels of each block, if parts has channels", minimum=1
    )
    joint: tuple[int, ...] = option((), "numbers of blocks to ablate together", minimum=1)
    draws: int = option(
        10, "number of random sets of blocks for each number in joint", minimum=1
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Ablate each part in turn."""
        with_tokens = "tokens" in self.parts
        rows, kinds, per_image = ablation(
            subject.anatomy,
            subject.batches(self._batch_size(subject)),
            parts=self.parts,
            replacement=self.replacement,
            num_channels=self.channels,
            roles=token_roles(subject.anatomy) if with_tokens else None,
            joint=self.joint,
            draws=self.draws,
            run=run,
        )
        joint = (rows.joint(),) if self.joint else ()
        return (rows, kinds, *joint, per_image)

    def cost(self, subject: Subject) -> Cost:
        """Half a forward pass per ablation on average, as only what follows is computed."""
        spec = AblationSpec(self.parts, self.replacement, self.channels)
        passes = ablation_passes(subject.anatomy, spec, self.joint, self.draws)
        return Cost(per_image=passes)

    def _batch_size(self, subject: Subject) -> int:
        """The largest batch size up to the usual one that leaves no image alone, to shuffle."""
        if self.replacement != "shuffle" or subject.num_images < 2:
            return subject.batch_size
        sizes = range(subject.batch_size, 1, -1)
        return next((n for n in sizes if subject.num_images % n != 1), subject.batch_size)
