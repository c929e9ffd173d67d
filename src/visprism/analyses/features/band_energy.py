"""High-band energy of feature maps."""

from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.measure.features.band_energy import BandEnergyProbe
from visprism.measure.features.probe import Probe
from visprism.results.band_energy import BandEnergies


@ANALYSES.register
@dataclass(frozen=True)
class BandEnergy(FeatureAnalysis):
    """Fraction of the energy of feature maps at high spatial frequencies."""

    name = "band-energy"
    source = "Parseval's theorem; complements Park & Kim (2022), fig. 8"
    default = False
    sections = (
        Section(
            BandEnergies,
            "High-band energy",
            "Each point is a block: the fraction of its feature maps' energy, without the "
            "mean, at frequencies above half of the Nyquist frequency. White noise has most of "
            "its energy there, since most frequencies are high.",
        ),
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the energies."""
        return BandEnergyProbe()
