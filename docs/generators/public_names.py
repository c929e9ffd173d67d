"""The reference of the public names with their types, from the package."""

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import visprism
from visprism.table.result import result_types

DOCS = Path(__file__).parents[1]
_MODULES = ("analyses", "results")


def pages(folder: Path) -> dict[str, str]:
    """One page for each group of `visprism`, and one for the types of results."""
    names = {title: [n for _, n in rows] for title, rows in _groups().items()}
    texts = {f"api/{_slug(title)}.rst": _page(title, names[title]) for title in names}
    types = sorted(
        t.__name__
        for t in result_types().values()
        if t.__module__.startswith("visprism.") and t.__name__ not in visprism.__all__
    )
    texts["api/types-of-results.rst"] = "\n\n".join(
        [_title("Types of results"), "They are in ``vp.results``."]
        + [f".. autoclass:: visprism.results.{name}\n   :members:" for name in types]
    )
    order = "\n".join(Path(name).stem for name in texts)
    texts["api/index.md"] = (
        "# Public names by topic\n\nEvery name of `import visprism as vp`, with types, "
        f"errors, cost and source.\n\n```{{toctree}}\n\n{order}\n```\n"
    )
    return texts


def with_links(docname: str, text: str) -> str:
    """The page of all names, where each name leads to its entry."""
    if docname != "reference":
        return text
    public = set(visprism.__all__) - set(_MODULES)

    def row(match: re.Match[str]) -> str:
        name = match[1]
        target = f"visprism.{name}" if name in public else f"visprism.results.{name}"
        return f"| {{py:obj}}`{name} <{target}>` |" if name not in _MODULES else match[0]

    return re.sub(r"^\| `(\w+)` \|", row, text, flags=re.MULTILINE)


def with_factories(*event: Any) -> tuple[str | None, str | None]:
    """A signature in which the default of a field with a factory is ``...``, valid Python."""
    *_, signature, result = event
    return (signature and signature.replace("<factory>", "...")), result


def with_bars(*event: Any) -> None:
    """Escape ``|`` in the prose of a docstring: there it is a norm, not a substitution."""
    lines: list[str] = event[-1]
    literal: int | None = None  # indentation of the paragraph that a literal block follows
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None:
            parts = re.split(r"(`[^`]*`)", line)
            lines[i] = "".join(p if p[:1] == "`" else p.replace("|", r"\|") for p in parts)
            if line.rstrip().endswith("::"):
                literal = indent


def _groups() -> dict[str, list[tuple[str, str]]]:
    return runpy.run_path(str(DOCS / "make_reference.py"))["groups"]()


def _page(title: str, names: list[str]) -> str:
    parts = [_title(title.partition(";")[0])]
    parts += [_directive(name, getattr(visprism, name)) for name in names]
    return "\n\n".join(part for part in parts if part) + "\n"


def _directive(name: str, documented: Any) -> str:
    if inspect.ismodule(documented):
        return ""
    if inspect.isclass(documented):
        return f".. autoclass:: visprism.{name}\n   :members:"
    if callable(documented) and hasattr(documented, "__name__"):
        return f".. autofunction:: visprism.{name}"
    return f".. autodata:: visprism.{name}\n   :no-value:"


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}"


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.partition(";")[0].lower()).strip("-")
