"""Fourier spectrum of feature maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.measure.features import FourierProbe, Probe
from visprism.results.base import Result
from visprism.results.fourier import HighFrequency, Spectrum
from visprism.results.kind_summary import KindSummary


@ANALYSES.register
@dataclass(frozen=True)
class Fourier(FeatureAnalysis):
    """Log amplitude of feature maps by spatial frequency."""

    name = "fourier"
    source = "Park & Kim (2022), fig. 2a and 8"
    claims = ("C6",)
    sections = (
        Section(
            Spectrum,
            "Fourier spectrum",
            "Each curve is a block: the log amplitude of its feature maps at each spatial "
            "frequency, relative to the mean (frequency 0). What a block does is the change "
            "from the curve of the previous block.",
            table=False,
        ),
        Section(
            HighFrequency,
            "High-frequency amplitude",
            "Each point is the highest frequency of a block, relative to the mean as in the "
            "paper and relative to the lowest frequency that is not 0. A block that raises the "
            "mean lowers the first without filtering anything. Changes of grid (blue) are not "
            "counted.",
            figures={"": {}, "lowest": {"reference": "lowest"}},
        ),
        Section(
            KindSummary,
            "High-frequency amplitude by kind of block",
            "Each point is the mean change across the blocks of one kind, with its 95% "
            "interval over images. A kind is called low-pass or high-pass only if both "
            "references agree. The interval describes this network; other trained seeds may "
            "differ.",
        ),
    )

    profile: Literal["diagonal", "radial"] = option(
        "diagonal", "frequencies along the diagonal, or averaged over directions"
    )
    protocol: Literal["default", "paper"] = option(
        "default", "frequency axis: in π rad/pixel, or as in the paper's code"
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the spectrum."""
        return FourierProbe(self.profile, self.protocol)

    def derive(self, result: Result) -> Sequence[Result]:
        """The spectrum, its highest frequency, and that by kind of block."""
        assert isinstance(result, Spectrum)
        highest = result.high_frequency()
        return result, highest, highest.summarize_by_kind()
