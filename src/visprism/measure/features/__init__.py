"""Analyses of feature maps: probes gather them in one pass over the data."""

from visprism.measure.features.attention import AttentionProbe, AttentionStatistics
from visprism.measure.features.block_structure import BlockStructure, block_structure
from visprism.measure.features.cka import CKAProbe, Similarity
from visprism.measure.features.compare import compare
from visprism.measure.features.fourier import (
    FourierProbe,
    HighFrequency,
    Spectrum,
    high_frequency,
)
from visprism.measure.features.observe import observe
from visprism.measure.features.probe import Probe
from visprism.measure.features.singular_values import (
    EffectiveRanks,
    SingularValueProbe,
    SingularValues,
    effective_ranks,
)
from visprism.measure.features.tally import Tally, tally
from visprism.measure.features.variance import VarianceProbe, Variances

__all__ = [
    "AttentionProbe",
    "AttentionStatistics",
    "BlockStructure",
    "CKAProbe",
    "EffectiveRanks",
    "FourierProbe",
    "HighFrequency",
    "Probe",
    "Similarity",
    "SingularValueProbe",
    "SingularValues",
    "Spectrum",
    "Tally",
    "VarianceProbe",
    "Variances",
    "block_structure",
    "compare",
    "effective_ranks",
    "high_frequency",
    "observe",
    "tally",
]
