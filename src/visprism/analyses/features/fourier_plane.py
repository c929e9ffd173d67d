"""Fourier spectrum over the whole frequency plane."""

from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.measure.features.fourier_plane import FourierPlaneProbe
from visprism.measure.features.probe import Probe
from visprism.passes.residual_branches import residual_branches
from visprism.results.fourier_plane import FourierPlane as FourierPlaneResult


@ANALYSES.register
@dataclass(frozen=True)
class FourierPlane(FeatureAnalysis):
    """Log amplitude by vertical and horizontal frequency, of blocks, branches or heads."""

    name = "fourier-plane"
    source = "Park & Kim (2022), app. D.2, over the whole plane"
    claims = ("C6",)
    default = False
    sections = (
        Section(
            FourierPlaneResult,
            "Fourier plane",
            "Each picture is a block, a residual branch or an attention head: the log "
            "amplitude of its feature maps minus that at frequency 0, which is in the middle. "
            "Rows are vertical and columns horizontal frequencies. A bright cross is structure "
            "along rows and columns, such as that of patches.",
            table=False,
        ),
    )

    maps: Literal["blocks", "branches", "heads"] = option(
        "blocks",
        "feature maps: of blocks, of what residual branches add, or of attention heads",
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the planes."""
        return FourierPlaneProbe(self.maps)

    def inapplicable(self, subject: Subject) -> str | None:
        """Models without the parts."""
        if self.maps == "branches" and not residual_branches(subject.anatomy):
            return "the model has no residual branch with an identity shortcut"
        if self.maps == "heads" and (reason := subject.without_attention()) is not None:
            return reason
        return super().inapplicable(subject)
