"""Examinations: from names of models and images to results, figures and a report."""

from visprism.examine.attention_maps import attention_maps_of, write_attention_maps
from visprism.examine.budget import landscape_within
from visprism.examine.examining import examine, examine_and_compare, examine_prepared
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

__all__ = [
    "Bending",
    "Evaluation",
    "Inquiry",
    "Progress",
    "Survey",
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
    "load_models",
    "output_folder",
    "perturbed",
    "prepare",
    "take_apart",
    "write_attention_maps",
    "write_comparisons",
    "write_figures",
    "write_paths",
    "write_report",
    "write_tables",
]
