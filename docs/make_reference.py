"""Write docs/reference.md, the commands in docs/command_line.md, and the tables of options.

    python docs/make_reference.py

The groups are from src/visprism/__init__.pyi. Tests compare all files with the code. An
analysis without a page gets one from its docstrings; it is edited by hand from then on.
"""

import re
import sys
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import UnionType

import visprism
from visprism import ANALYSES
from visprism.cli.parser import commands
from visprism.core.options import Option, options_of
from visprism.kit import Analysis
from visprism.table.result import result_types

FILE = Path(__file__).parent / "reference.md"
COMMANDS = Path(__file__).parent / "command_line.md"
ANALYSIS_PAGES = Path(__file__).parent / "analyses"
STUB = Path(visprism.__file__).with_suffix(".pyi")

_STUDY = " MODEL ... --data DATA --out DIR"
_ARGUMENTS = {
    "demo": "",
    "look": " IMAGE MODEL ...",
    "view": " [STUDY ...]",
    "merge": " STUDY ... --out DIR",
    "evolve": " RUN ... --data DATA --out DIR",
    "trajectory": " MODEL ... --data DATA --checkpoints FILE,FILE,FILE --out DIR",
    "mode-connectivity": " MODEL ... --data DATA --checkpoints FILE,FILE --out DIR",
    "out-of-distribution": " MODEL ... --data DATA --ood-data DATA --out DIR",
    "shape-bias": " MODEL ... --data 'shapes?cues=conflict' --out DIR",
    "anatomy": " MODEL",
    "models": " [PATTERN] [--cost] [--trained]",
    "data": "",
    "train": " RECIPE --model MODEL --data DATA --out DIR",
    "recipes": " [RECIPE]",
    "harmonize": " MODEL --out DIR",
    "doctor": "",
    "completion": " SHELL",
}

HEAD = """\
# Reference

The names of `import visprism as vp`; `help(vp.NAME)` shows the whole docstring. This page is
written by `python docs/make_reference.py`, and a test compares it with the code.
"""


def groups() -> dict[str, list[tuple[str, str]]]:
    """Title of each group -> (module, name) in the order of the stub."""
    by_title: dict[str, list[tuple[str, str]]] = {}
    title = ""
    text = re.sub(r"import \(\n\s*(.*),\n\)", r"import \1", STUB.read_text("utf-8"))
    for line in text.splitlines():
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
    types = [t for t in result_types().values() if t.__module__.startswith("visprism.")]
    rows = sorted(f"| `{t.__name__}` | {_first_line(t)} |" for t in types)
    head = "## Types of results, in `vp.results`"
    parts.append("\n".join([head, "", "| name | what it is |", "|---|---|", *rows]))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _summary(module: str, name: str) -> str:
    return _first_line(getattr(import_module(module), name))


def _first_line(documented: object) -> str:
    if isinstance(documented, UnionType):
        text = re.sub(r"[\w.]+\.", "", str(documented)).replace("|", "\\|")
        return f"Type of an argument: `{text}`"
    doc = documented.__doc__ or ""
    return doc.strip().partition("\n")[0].replace("|", "\\|")


def command_page() -> str:
    """The text of the page with the present table of commands."""
    rows = [
        f"| `visprism {name}{_ARGUMENTS.get(name, _STUDY)}` | {command.help} |"
        for name, command in commands().items()
    ]
    table = "\n".join(["| command | shows |", "|---|---|", *rows, ""])
    text = COMMANDS.read_text("utf-8")
    return re.sub(r"\| command \| shows \|\n(?:\|.*\n)+", lambda _: table, text)


def analysis_pages() -> dict[Path, str]:
    """The page of each analysis that has options, with the present table of options."""
    pages = {}
    for name, analysis in ANALYSES.items():
        path, options = ANALYSIS_PAGES / f"{name}.md", options_of(analysis)
        if not path.exists() and analysis.__module__.startswith("visprism."):
            pages[path] = new_page(analysis)
        elif options and path.exists():  # a plug-in has no page here
            text, table = path.read_text("utf-8"), _option_table(analysis)
            pages[path] = re.sub(
                r"\| option \| default \| meaning \|\n(?:\|.*\n)+", lambda _, t=table: t, text
            )
    return pages


def new_page(analysis: type[Analysis]) -> str:
    """The first page of an analysis that has none, from its docstrings; then it is edited."""
    title, name = analysis.name.replace("-", " ").capitalize(), analysis.name
    options = ["## Options", "", _option_table(analysis)] if options_of(analysis) else []
    lines = [
        f"# {title}",
        "",
        cleandoc(sys.modules[analysis.__module__].__doc__ or ""),
        "",
        f"`visprism {name}{_ARGUMENTS.get(name, _STUDY)}`, or in Python:",
        "",
        "```python",
        "import visprism as vp",
        "",
        f'study = vp.examine(model, data, analyses=["{name}"])',
        f'study["{name}"]  # the result of each model',
        "```",
        "",
        "## How to read it",
        "",
        *(f"**{section.title}.** {section.text}\n" for section in analysis.sections),
        *options,
        "## Reference",
        "",
        f"{analysis.source}.",
        "",
    ]
    return "\n".join(lines)


def _option_table(analysis: type[Analysis]) -> str:
    python = bool(analysis.measured_by)  # no command of this name
    rows = [_option_row(option, python=python) for option in options_of(analysis).values()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows, ""])


def _option_row(option: Option, *, python: bool) -> str:
    meaning, _, default = option.help.rpartition(" (default: ")
    flag = option.name if python else f"--{option.name.replace('_', '-')}"
    return f"| `{flag}` | {default[:-1]} | {meaning} |"


if __name__ == "__main__":
    for path, text in analysis_pages().items():
        path.write_text(text, encoding="utf-8")
    FILE.write_text(reference(), encoding="utf-8")
    COMMANDS.write_text(command_page(), encoding="utf-8")
