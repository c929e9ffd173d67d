"""docs/numbers.md: the table of intervals holds what the benchmark measured.

``VISPRISM_WRITE_NUMBERS=1 python -m pytest tests/test_numbers_page.py`` writes it anew.
"""

import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "numbers.md"
MEASURED = ROOT / "benchmarks" / "results" / "interval_coverage.json"
HEAD = "| quantity | over | method |"


def coverages() -> dict[str, list[float]]:
    """Coverage in each situation that has intervals, by interval."""
    rows = json.loads(MEASURED.read_text("utf-8"))["rows"]
    by_interval = {row["interval"]: [] for row in rows}
    for row in rows:
        if row["coverage"] is not None:
            by_interval[row["interval"]].append(row["coverage"])
    return by_interval


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def measured_cells(values: list[float]) -> tuple[str, str]:
    """The range of the coverage, and the number of situations outside 0.92 to 0.97."""
    below, above = (sum(v < 0.92 for v in values), sum(v > 0.97 for v in values))
    counts = [f"{n} {side}" for n, side in ((below, "below"), (above, "above")) if n]
    outside = f"{', '.join(counts)} of {len(values)}" if counts else f"none of {len(values)}"
    return f"{min(values):.2f} to {max(values):.2f}", outside


def table() -> tuple[list[str], range]:
    """The lines of the page, and the indices of the rows of the table."""
    lines = PAGE.read_text("utf-8").split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith(HEAD)) + 2
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return lines, range(first, last)


def test_the_table_of_intervals_holds_what_was_measured():
    by_interval = coverages()
    lines, rows = table()
    expected = list(lines)
    for i in rows:
        *text, names, _, _ = cells(lines[i])
        values = [v for name in names.split(", ") for v in by_interval[name]]
        expected[i] = f"| {' | '.join([*text, names, *measured_cells(values)])} |"
    if os.environ.get("VISPRISM_WRITE_NUMBERS"):
        PAGE.write_text("\n".join(expected), "utf-8")
    assert PAGE.read_text("utf-8") == "\n".join(expected), f"{PAGE} differs"


def test_the_table_of_intervals_names_each_that_was_measured_once():
    lines, rows = table()
    names = [name for i in rows for name in cells(lines[i])[3].split(", ")]
    assert sorted(names) == sorted(coverages())


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`([\w/.]*test_\w+\.py)`", PAGE.read_text("utf-8"))
    assert len(named) > 30
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_no_interval_covers_the_truth_less_often_than_chance_allows():
    """1,000 samples have a standard error of 0.7 percentage points at 0.95."""
    assert min(v for values in coverages().values() for v in values) >= 0.91


def test_the_page_on_real_networks_has_the_intervals_of_its_run():
    stored = ROOT / "benchmarks" / "results" / "real_networks.json"
    lines = json.loads(stored.read_text("utf-8"))["networks"].values()
    intervals = re.findall(
        r"-?[\d.]+%?(?: \w+ points| pixels)? \[-?[\d.]+%?, -?[\d.]+%?\]",
        (ROOT / "docs" / "real_networks.md").read_text("utf-8"),
    )
    assert len(intervals) == 15
    assert [i for i in intervals if not any(i in line for ls in lines for line in ls)] == []
