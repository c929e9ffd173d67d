"""Write docs/reference.md from the public names and the first lines of their docstrings.

    python docs/make_reference.py

The groups are those of src/visprism/__init__.pyi. A test compares the file with the code.
"""

import re
from importlib import import_module
from pathlib import Path

import visprism

FILE = Path(__file__).parent / "reference.md"
STUB = Path(visprism.__file__).with_suffix(".pyi")

HEAD = """\
# Reference

The names of `import visprism as vp`; `help(vp.NAME)` shows the whole docstring. This page is
written by `python docs/make_reference.py`, and a test compares it with the code.
"""


def groups() -> dict[str, list[tuple[str, str]]]:
    """Title of each group -> (module, name) in the order of the stub."""
    by_title: dict[str, list[tuple[str, str]]] = {}
    title = ""
    for line in STUB.read_text("utf-8").splitlines():
        if line.startswith("# ") and "ruff" not in line:
            title = line[2:].rstrip(".")
        elif match := re.match(r"from (\S+) import (\w+) as", line):
            by_title.setdefault(title, []).append((match[1], match[2]))
    return by_title


def reference() -> str:
    """The text of the page."""
    parts = [HEAD]
    for title, names in groups().items():
        rows = [f"| `{name}` | {_summary(module, name)} |" for module, name in names]
        parts.append(
            "\n".join([f"## {title}", "", "| name | what it is |", "|---|---|", *rows])
        )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _summary(module: str, name: str) -> str:
    doc = getattr(import_module(module), name).__doc__ or ""
    return doc.strip().partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
