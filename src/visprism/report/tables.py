"""Tables: a result's rows as text to read, and where it differs, a value to sort by."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import SupportsFloat

from visprism.results.base import Result

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
AMOUNTS = {"parameters", "macs"}  # columns that are read as 25.6 M, not as 25557032


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    numeric: bool
    value: str = ""  # to sort by, where the text does not do


def rows(result: Result, columns: Mapping[str, str]) -> list[list[Cell]]:
    """These columns of a result, row by row, numbered in forward order."""
    table = result.columns()
    chosen = [[cell(name, value) for value in table[name].tolist()] for name in columns]
    numbers = [Cell(str(i), numeric=True) for i in range(1, len(result) + 1)]
    return [list(row) for row in zip(numbers, *chosen, strict=True)]


def cell(column: str, value: str | int | float) -> Cell:
    """One value: four digits, large amounts with a prefix, a dash where there is no number."""
    if isinstance(value, str):
        return Cell(value, numeric=False)
    if isinstance(value, bool):
        return Cell("yes" if value else "", numeric=False)
    if not isfinite(value):
        return Cell(DASH, numeric=True)
    if column in AMOUNTS:
        return Cell(amount(value), numeric=True, value=str(value))
    text = str(value) if isinstance(value, int) else f"{value:.4g}"
    return Cell(text.replace("-", MINUS), numeric=True)


def amount(number: SupportsFloat) -> str:
    """A large number in three digits: 25.6 M."""
    number = float(number)
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:  # 999 500 is 1.00 M
            return f"{number / size:#.3g}".removesuffix(".") + f"\N{NO-BREAK SPACE}{prefix}"
    return f"{number:.0f}"
