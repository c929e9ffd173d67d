"""Reports: results of several models as one self-contained HTML page."""

from visprism.report.content import (
    Cell,
    Chapter,
    Comparison,
    Content,
    GlanceRow,
    Measure,
    ModelCard,
    Omission,
    QuestionRows,
    SectionContent,
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
    "GlanceRow",
    "Measure",
    "ModelCard",
    "Omission",
    "PageFigures",
    "QuestionRows",
    "SectionContent",
    "chapters_of",
    "drawings",
    "inline_svg",
    "page_html",
    "rendered",
    "script_hash",
    "style_sheet",
]
