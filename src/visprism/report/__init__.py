"""Reports: what was found out about models, as one HTML page that needs nothing else."""

from visprism.report.drawings import Drawing, drawings
from visprism.report.examination import Examination, check_names
from visprism.report.page import file_name, render
from visprism.report.section import Section
from visprism.report.sections import SECTIONS

__all__ = [
    "SECTIONS",
    "Drawing",
    "Examination",
    "Section",
    "check_names",
    "drawings",
    "file_name",
    "render",
]
