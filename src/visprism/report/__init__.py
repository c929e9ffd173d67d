"""Reports: results of several models as one self-contained HTML page."""

from visprism.report.content import (
    Cell,
    Chapter,
    Comparison,
    Content,
    Measure,
    Omission,
    QuestionRows,
    SectionContent,
    SummarySentence,
    chapters_of,
)
from visprism.report.drawings import Drawing, drawings, rendered
from visprism.report.page import PageFigures, inline_svg, page_html, script_hash, style_sheet

__all__ = [
    "Cell",
    "Chapter",
    "Comparison",
    "Content",
    "Drawing",
    "Measure",
    "Omission",
    "PageFigures",
    "QuestionRows",
    "SectionContent",
    "SummarySentence",
    "chapters_of",
    "drawings",
    "inline_svg",
    "page_html",
    "rendered",
    "script_hash",
    "style_sheet",
]
