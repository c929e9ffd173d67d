"""Transfer function of residual branches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.measure.features.branch_transfer import BranchTransferProbe
from visprism.measure.features.probe import Probe
from visprism.passes.residual_branches import residual_branches
from visprism.results.branch_transfer import BranchTransfer as BranchTransferResult
from visprism.results.branch_transfer import HighFrequencyGain
from visprism.table.kinds import KindSummary
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class BranchTransfer(FeatureAnalysis):
    """Transfer function of residual branches: output over input by spatial frequency."""

    name = "branch-transfer"
    source = "Park & Kim (2022), sec. 3.1; measured before the sum"
    claims = ("C6",)
    default = False
    sections = (
        Section(
            BranchTransferResult,
            "Transfer function of residual branches",
            "Each curve is a residual branch: the log amplitude of its output minus that of "
            "its input, before the sum, at each spatial frequency. A falling curve is a "
            "low-pass filter.",
            table=False,
        ),
        Section(
            HighFrequencyGain,
            "High-frequency gain of residual branches",
            "Each point is a branch: its log gain at the highest frequency minus that at the "
            "lowest frequency that is not 0.",
        ),
        Section(
            KindSummary,
            "Gain of residual branches by kind of block",
            "Each point is the mean over the branches of one kind, with its 95% interval over "
            "images.",
        ),
    )

    profile: Literal["diagonal", "radial"] = option(
        "diagonal", "frequencies along the diagonal, or averaged over directions"
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the transfer functions."""
        return BranchTransferProbe(self.profile)

    def derive(self, result: Result) -> Sequence[Result]:
        """The transfer functions, their highest frequency, and that by kind of block."""
        assert isinstance(result, BranchTransferResult)
        highest = result.high_frequency()
        return result, highest, highest.summarize_by_kind()

    def inapplicable(self, subject: Subject) -> str | None:
        """Models without residual branches have no transfer functions."""
        if not residual_branches(subject.anatomy):
            return "the model has no residual branch with an identity shortcut"
        return super().inapplicable(subject)
