"""Tables of benchmarks, from the files that the scripts in benchmarks/ wrote."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"
HEAD = """\
# Benchmarks

Each table is made from the file that its script wrote, in `benchmarks/results/`. A script
measures visprism and the alternative in one run on one machine. Times are in seconds where a
column has no other unit.
"""


def pages(folder: Path) -> dict[str, str]:
    """One page with a section for each file that holds rows."""
    return {"benchmarks.md": "\n\n".join([HEAD, *map(_section, measured())]) + "\n"}


def measured() -> list[Path]:
    """Files of results that hold rows and belong to a script."""
    return [
        path
        for path in sorted((FOLDER / "results").glob("*.json"))
        if (FOLDER / f"{path.stem}.py").exists() and "rows" in json.loads(path.read_text())
    ]


def _section(path: Path) -> str:
    content = json.loads(path.read_text("utf-8"))
    script = ast.parse((FOLDER / f"{path.stem}.py").read_text("utf-8"))
    purpose = (ast.get_docstring(script) or "").partition("\n")[0]
    setting = content.get("setting") or {k: v for k, v in content.items() if k != "rows"}
    return "\n\n".join(
        [
            f"## {path.stem}",
            f"{purpose} (`python benchmarks/{path.stem}.py`)",
            f"Setting: {_sentence(setting)}.",
            _table([_flat(row) for row in content["rows"]]),
        ]
    )


def _sentence(setting: Mapping[str, Any]) -> str:
    flat = _flat({key: v for key, v in setting.items() if not isinstance(v, Mapping)})
    for nested in setting.values():
        flat |= _flat(nested) if isinstance(nested, Mapping) else {}
    return _cell(", ".join(f"{key.replace('_', ' ')} {value}" for key, value in flat.items()))


def _table(rows: list[dict[str, str]]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    head = "| " + " | ".join(_cell(key.replace("_", " ")) for key in keys) + " |"
    lines = ["| " + " | ".join(_cell(row.get(key, "")) for key in keys) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(keys), *lines])


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Scalars by their key; nested keys are joined, lists of repeats are left out."""
    flat: dict[str, str] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name} ")
        elif not isinstance(value, list):
            flat[name] = _number(value)
    return flat


def _number(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "\\<")
