"""Examinations: from names of models and images to results, figures and a report."""

from visprism.examine.attention_maps import attention_maps_of, write_attention_maps
from visprism.examine.examining import examine, examine_and_compare, examine_prepared
from visprism.examine.grids import landscape_within
from visprism.examine.hessians import Bending, densities_of, hessians_of
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.landscapes import (
    Survey,
    landscapes_of,
    write_paths,
)
from visprism.examine.materials import load_models, prepare, take_apart
from visprism.examine.output import (
    output_folder,
    write_comparisons,
    write_figures,
    write_report,
    write_tables,
)
from visprism.examine.outputs import Evaluation, corrupted, evaluate, perturbed
from visprism.examine.trials import (
    Trial,
    attacks_of,
    lesions_of,
    noise_of,
    shape_bias_of,
    trials,
    write_beside_attention,
)

__all__ = [
    "Bending",
    "Evaluation",
    "Inquiry",
    "Progress",
    "Survey",
    "Trial",
    "attacks_of",
    "attention_maps_of",
    "corrupted",
    "densities_of",
    "evaluate",
    "examine",
    "examine_and_compare",
    "examine_prepared",
    "hessians_of",
    "landscape_within",
    "landscapes_of",
    "lesions_of",
    "load_models",
    "noise_of",
    "output_folder",
    "perturbed",
    "prepare",
    "shape_bias_of",
    "take_apart",
    "trials",
    "write_attention_maps",
    "write_beside_attention",
    "write_comparisons",
    "write_figures",
    "write_paths",
    "write_report",
    "write_tables",
]
