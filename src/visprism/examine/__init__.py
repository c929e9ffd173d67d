"""Examinations: from names of models and images to results, figures and a report."""

from visprism.examine.examining import examine, examine_and_compare
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import load_models, take_apart
from visprism.examine.output import (
    output_folder,
    write_comparisons,
    write_figures,
    write_report,
    write_tables,
)

__all__ = [
    "Inquiry",
    "Progress",
    "examine",
    "examine_and_compare",
    "load_models",
    "output_folder",
    "take_apart",
    "write_comparisons",
    "write_figures",
    "write_report",
    "write_tables",
]
