"""The table of a result in a notebook: few rows, and the columns that are read first."""

import html
from collections.abc import Collection, Mapping
from math import isnan

import numpy as np

from visprism.estimates.text import DASH

ROWS = 12  # of the table; `to_pandas` has all of them
COLUMNS = 8  # a wider table is without standard errors and constant columns


def columns_read_first(
    headings: Mapping[str, str],
    columns: Mapping[str, np.ndarray],
    scalars: Collection[str],
    value: str = "",
) -> list[str]:
    """Names of the columns that a notebook shows.

    Up to 8 columns are all shown. With more, these are left out: standard errors, scalars if
    there is a column, columns without a number, and columns of equal numbers. Columns of
    text, which name the rows, stay in any case, as does the main value with its interval.
    """
    if len(headings) <= COLUMNS:
        return list(headings)
    arrays = [name for name in headings if name not in scalars]
    floats = (name for name in arrays if columns[name].dtype.kind == "f")
    main = value or next(floats, "")
    prefixed = [f"{main}_low", f"{main}_high"]
    ends = prefixed if prefixed[0] in arrays else ["low", "high"]
    return [
        name
        for name in arrays or headings
        if name in (main, *ends)
        or not ("standard error" in headings[name].lower() or _tells_nothing(columns[name]))
    ]


def html_table(
    headings: Mapping[str, str], columns: Mapping[str, np.ndarray], names: Collection[str]
) -> str:
    """The first rows of some columns as HTML, and how many rows and columns are not in it."""
    head = "".join(f"<th>{html.escape(headings[name])}</th>" for name in names)
    values = [columns[name][:ROWS].tolist() for name in names]
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row) + "</tr>"
        for row in zip(*values, strict=True)
    )
    counts = {
        "rows": max((len(column) for column in columns.values()), default=0) - ROWS,
        "columns": len(headings) - len(names),
    }
    more = " and ".join(f"{count} more {of}" for of, count in counts.items() if count > 0)
    note = f"<p>{more} in <code>to_pandas()</code></p>" if more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _tells_nothing(column: np.ndarray) -> bool:
    """Whether a column has no number, or the same one in each of several rows."""
    if column.dtype.kind not in "fiub":
        return False
    if column.dtype.kind == "f" and np.isnan(column).all():
        return True
    return len(column) > 1 and bool((column == column[0]).all())


def _cell(value: object) -> str:
    if isinstance(value, float):
        return DASH if isnan(value) else f"{value:.4g}"
    return str(value)
