"""Measurements of feature maps, by probes in one pass over the data."""

from visprism.measure.features.attention import AttentionProbe
from visprism.measure.features.attention_maps import Query, attention_maps
from visprism.measure.features.attention_rollout import rollout, rollouts
from visprism.measure.features.band_energy import BandEnergyProbe
from visprism.measure.features.branch_transfer import BranchTransferProbe
from visprism.measure.features.cka import CKAProbe
from visprism.measure.features.cka_between_models import compare
from visprism.measure.features.fourier import FourierProbe
from visprism.measure.features.fourier_plane import FourierPlaneProbe
from visprism.measure.features.observe import observe
from visprism.measure.features.probe import Probe
from visprism.measure.features.receptive_field_gradients import receptive_field, receptive_map
from visprism.measure.features.singular_values import SingularValueProbe
from visprism.measure.features.token_norms import TokenNormProbe
from visprism.measure.features.token_similarity import TokenSimilarityProbe
from visprism.measure.features.variance import VarianceProbe
from visprism.passes.residual_branches import residual_branches

__all__ = [
    "AttentionProbe",
    "BandEnergyProbe",
    "BranchTransferProbe",
    "CKAProbe",
    "FourierPlaneProbe",
    "FourierProbe",
    "Probe",
    "Query",
    "SingularValueProbe",
    "TokenNormProbe",
    "TokenSimilarityProbe",
    "VarianceProbe",
    "attention_maps",
    "compare",
    "observe",
    "receptive_field",
    "receptive_map",
    "residual_branches",
    "rollout",
    "rollouts",
]
