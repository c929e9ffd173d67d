"""Analyses of feature maps: probes gather them in one pass over the data."""

from visprism.measure.features.attention import AttentionProbe, AttentionStatistics
from visprism.measure.features.attention_maps import AttentionMaps, Query, attention_maps
from visprism.measure.features.attention_rollout import Rollout, rollout
from visprism.measure.features.block_structure import BlockStructure, block_structure
from visprism.measure.features.cka import CKAProbe, Similarity
from visprism.measure.features.cka_between_models import compare
from visprism.measure.features.fourier import (
    FourierProbe,
    HighFrequency,
    Spectrum,
    high_frequency,
)
from visprism.measure.features.observe import observe
from visprism.measure.features.probe import Probe
from visprism.measure.features.receptive_extent import ReceptiveField, ReceptiveMaps
from visprism.measure.features.receptive_field_gradients import receptive_field
from visprism.measure.features.singular_values import (
    EffectiveRanks,
    SingularValueProbe,
    SingularValues,
    effective_ranks,
)
from visprism.measure.features.tally import Tally, tally
from visprism.measure.features.variance import VarianceProbe, Variances

__all__ = [
    "AttentionMaps",
    "AttentionProbe",
    "AttentionStatistics",
    "BlockStructure",
    "CKAProbe",
    "EffectiveRanks",
    "FourierProbe",
    "HighFrequency",
    "Probe",
    "Query",
    "ReceptiveField",
    "ReceptiveMaps",
    "Rollout",
    "Similarity",
    "SingularValueProbe",
    "SingularValues",
    "Spectrum",
    "Tally",
    "VarianceProbe",
    "Variances",
    "attention_maps",
    "block_structure",
    "compare",
    "effective_ranks",
    "high_frequency",
    "observe",
    "receptive_field",
    "rollout",
    "tally",
]
