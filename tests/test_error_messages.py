"""Error messages: held by a file, so that wording changes on purpose.

``VISPRISM_WRITE_ERRORS=1 python -m pytest tests/test_error_messages.py`` writes the file anew.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import visprism

PACKAGE = Path(visprism.__file__).parent
MESSAGES = Path(__file__).parent / "error_messages.txt"


def template(node: ast.expr) -> str | None:
    """A message with ``{}`` for values; None if it is not a literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
        return "".join(map(str, parts))
    return None


def messages(path: Path) -> Iterator[str]:
    """The messages of errors that a module raises, or makes for others to raise."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        raised = node.exc if isinstance(node, ast.Raise) else node
        is_input_error = (
            isinstance(raised, ast.Call)
            and isinstance(raised.func, ast.Name)
            and (isinstance(node, ast.Raise) or raised.func.id == "InputError")
        )
        if is_input_error:
            for argument in raised.args:
                text = template(argument)
                if text and " " in text:
                    yield text


def listed() -> str:
    """Every message under its package, in alphabetical order."""
    by_package: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        by_package.setdefault(name, set()).update(messages(path))
    sections = (
        f"{name}\n" + "".join(f"    {text}\n" for text in sorted(by_package[name]))
        for name in sorted(by_package)
        if by_package[name]
    )
    return "\n".join(sections)


def test_the_messages_are_those_of_the_file():
    if os.environ.get("VISPRISM_WRITE_ERRORS"):
        MESSAGES.write_text(listed(), "utf-8")
    assert listed() == MESSAGES.read_text("utf-8"), f"{MESSAGES} differs"


def test_no_message_below_the_command_line_names_a_flag():
    below = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "cli"]
    named = [text for path in below for text in messages(path) if " --" in f" {text}"]
    # a program of others, and the flags of a command that is quoted in full
    assert [text for text in named if "torchrun --" not in text] == []
