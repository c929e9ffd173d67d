"""Tables: a result's rows as text to read, and where it differs, a value to sort by."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, SupportsFloat

import numpy as np

from visprism.estimates.text import DASH, MINUS
from visprism.table.result import Result

_NO_BREAK = "\N{NO-BREAK SPACE}"
MAX_ROWS = 300  # of a table in the page; files hold all rows
_LARGE = 1e5  # integers from here on are read as 25.6 M, not as 25557032


@dataclass(frozen=True)
class TableHead:
    """The head of one column."""

    name: str
    text: str  # label with unit
    meaning: str
    numeric: bool


@dataclass(frozen=True)
class Table:
    """A result as a table: columns in the order of declaration, scalars apart."""

    heads: Sequence[TableHead]
    rows: Sequence[Sequence[Any]]
    scalars: Sequence[tuple[TableHead, Any]]
    hidden: int = 0  # rows beyond `MAX_ROWS`


def table_of(result: Result) -> Table:
    """The table of a result, made from the declarations of its columns."""
    columns = {n: v for n in result.infos() if isinstance(v := getattr(result, n), np.ndarray)}
    scalars = {n: getattr(result, n) for n in result.infos() if n not in columns}
    cells = [column[:MAX_ROWS].tolist() for column in columns.values()]
    return Table(
        heads=[_head(result, name, values) for name, values in columns.items()],
        rows=[list(row) for row in zip(*cells, strict=True)],
        scalars=[
            (_head(result, name, np.array(value)), value)
            for name, value in scalars.items()
            if value != ""
        ],
        hidden=max(len(result) - MAX_ROWS, 0) if columns else 0,
    )


def cell_text(value: Any) -> str:
    r"""One value: four digits, large amounts with a prefix, a dash where there is no number.

    Example:
        >>> cell_text(25_557_032), cell_text(-0.12345)
        ('25.6\xa0M', '−0.1235')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or not isfinite(value):
        return DASH
    if is_large(value):
        return amount(value)
    return (str(value) if isinstance(value, int) else f"{value:.4g}").replace("-", MINUS)


def is_large(value: Any) -> bool:
    """Whether the text of a number is an amount, which does not do to sort by."""
    return isinstance(value, int) and abs(value) >= _LARGE


def amount(number: SupportsFloat) -> str:
    """A large number in three digits: 25.6 M."""
    number = float(number)
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * size:  # 999 500 is 1.00 M
            text = f"{number / size:#.3g}".removesuffix(".").replace("-", MINUS)
            return f"{text}\N{NO-BREAK SPACE}{prefix}"
    return f"{number:.0f}"


def typeset(sentence: str) -> str:
    """The sentence with minus signs, and with intervals that never wrap."""
    text = re.sub(r"(?<!\w)-(?=\d)", MINUS, sentence)
    return re.sub(r"\[[^\]]*\]", lambda interval: interval[0].replace(" ", _NO_BREAK), text)


def _head(result: Result, name: str, values: np.ndarray) -> TableHead:
    info = result.infos()[name]
    return TableHead(name, info.heading, info.meaning, values.dtype.kind in "iuf")
