"""Reports: results of several models as one self-contained HTML page."""

from visprism.report.content import (
    Cell,
    Chapter,
    Content,
    Omission,
    Question,
    SectionContent,
    chapters_of,
)
from visprism.report.drawings import Drawing, drawings, rendered
from visprism.report.page import PageFigures, page_html, script_hash, style_sheet

__all__ = [
    "Cell",
    "Chapter",
    "Content",
    "Drawing",
    "Omission",
    "PageFigures",
    "Question",
    "SectionContent",
    "chapters_of",
    "drawings",
    "page_html",
    "rendered",
    "script_hash",
    "style_sheet",
]
