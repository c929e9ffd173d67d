"""The table of a result in a notebook: the first rows."""

import html
from collections.abc import Iterable, Sequence
from math import isnan

import numpy as np

from visprism.estimates.text import DASH

ROWS = 12  # of the table; `to_pandas` has all of them
_LONGEST = 80  # characters of a cell, such as of the pixels of a picture


def html_table(headings: Iterable[str], columns: Sequence[np.ndarray]) -> str:
    """The first rows of columns as HTML, and how many more there are."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row) + "</tr>"
        for row in zip(*(c[:ROWS].tolist() for c in columns), strict=True)
    )
    more = max(map(len, columns), default=0) - ROWS
    note = f"<p>{more} more rows in <code>to_pandas()</code></p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return DASH if isnan(value) else f"{value:.4g}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
