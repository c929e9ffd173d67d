"""Examinations: from names of models and images to results, figures and a report."""

from visprism.examine.inquiry import Inquiry, Progress, examine, load_models, take_apart
from visprism.examine.output import output_folder, write_figures, write_report, write_tables

__all__ = [
    "Inquiry",
    "Progress",
    "examine",
    "load_models",
    "output_folder",
    "take_apart",
    "write_figures",
    "write_report",
    "write_tables",
]
