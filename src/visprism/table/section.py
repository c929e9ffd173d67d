"""Sections: how reports and figures present the results of an analysis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Any


@dataclass(frozen=True)
class Section:
    """How the report and the figures present one type of result of an analysis."""

    result: type[Any]
    title: str
    text: str  # what the figure shows and how to read it; two or three plain sentences
    # Ending of a figure's file name, after a hyphen -> options of the figure; the first is the
    # main one; empty: the result has no figure. In a report an option that is a type of result
    # is the model's result of that type, if there is one.
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    table: bool = True  # whether the report shows the rows
    # Axis label in the overview of a model by depth -> options of the figure.
    overview: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def reading_of(documented: type) -> str:
    """The second paragraph of a docstring: what the figure shows and how to read it."""
    paragraphs = cleandoc(documented.__doc__ or "").split("\n\n")
    return " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""
