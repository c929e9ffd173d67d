"""What commands print on stdout: tables, JSON, and the findings and failures of a study."""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from visprism.core.errors import InputError, printable, shortage
from visprism.core.interruption import interrupted, signal_number

if TYPE_CHECKING:
    from visprism.study.study import Study


def print_json(content: Any) -> None:
    """Print as JSON, indented, in the encoding of every terminal."""
    print(json.dumps(content, indent=2))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool = False
) -> None:
    """Print rows under a header, or as JSON with an object for each row."""
    if as_json:
        print_json(records(header, rows))
    else:
        print(columns(header, rows))


def records(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Each row as a mapping of names of columns to values.

    Example:
        >>> records(["name", "images/s"], [("stem", 1)])
        [{'name': 'stem', 'images_per_second': 1}]
    """
    keys = [name.lower().replace("/s", "_per_second").replace(" ", "_") for name in header]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def columns(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows under a header, in columns as wide as their longest entry; integers to the right.

    Example:
        >>> print(columns(["name", "size"], [("stem", 1000), ("blocks.0", None)]))
        name       size
        stem      1,000
        blocks.0      -
    """
    rows = list(rows)
    lines = [header, *([_cell(entry) for entry in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = {i for row in rows for i, entry in enumerate(row) if isinstance(entry, int)}

    def text(line: Sequence[str]) -> str:
        cells = enumerate(zip(line, widths, strict=True))
        return "  ".join(e.rjust(w) if i in right else e.ljust(w) for i, (e, w) in cells)

    return "\n".join(text(line).rstrip() for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(value) or "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def print_study(study: "Study", *, verbose: bool = False) -> None:
    """The study at a glance; everything if verbose or of one analysis; what is missing."""
    one = len(study.analyses) < 2
    if not one and study.glance():
        print(f"{study}\n\n± is half of a 95% interval.")
    if verbose or one:
        for line in study.lines():
            print(line)
        _print_findings(study)
    missing: dict[str, dict[str, str]] = {}  # reasons by analysis and model
    for f in study.failures:
        if f.kind != "failed":
            missing.setdefault(f.analysis, {})[f.model] = f.reason
    for alarm in study.alarms:
        print(alarm)
    if missing:
        texts = []
        for analysis, reasons in missing.items():
            some = f" of {', '.join(reasons)}" * (len(reasons) < len(study.models))
            reason = f" ({next(iter(reasons.values()))})" * (len(missing) < 3)
            texts.append(f"{analysis}{some}{reason}")
        print(f"Not measured: {', '.join(texts)}")
    failures = [f for f in study.failures if f.kind == "failed"]
    if failures:
        print("\nFailed")
        for failure in failures:
            print(f"  {failure.analysis} of {failure.model}: {failure.reason}")


def _print_findings(study: "Study") -> None:
    findings = {name: study.model(name).findings() for name in study.models}
    for entry in study.entries:
        if len(entry.models) > 1:
            of_pair = findings.setdefault(" and ".join(entry.models), [])
            of_pair += [finding for result in entry.results for finding in result.findings()]
    for name, sentences in findings.items():
        if sentences:
            print(f"\n{name}")
        for finding in sentences:
            print(f"  {finding}")


def exit_code(study: "Study") -> int:
    """1 if an analysis failed or none gave a result; one that does not apply has not failed."""
    failed = any(failure.kind == "failed" for failure in study.failures)
    return int(failed or not study.entries)


# Errors of the command line: what ended a command, as one sentence and an exit code.


def outcome(error: BaseException, flags: Iterable[str]) -> tuple[str, int] | None:
    """The sentence and the exit code of what ended a command; None for a bug.

    Args:
        error: what was raised.
        flags: of the command, by which its arguments are called.
    """
    if isinstance(error, KeyboardInterrupt):  # a command that has kept results says so
        return interrupted(str(error)), 128 + signal_number()
    if sentence := shortage(error):
        return sentence, 2
    if isinstance(error, InputError | OSError):
        return printable(with_flags(str(error), flags), keep="\n"), 2
    return None


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `InputError`, in the words of every other error."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        typed = re.fullmatch(r"argument (\S+): (?:\w+ )?(must be .*)", message, re.DOTALL)
        if typed is not None:
            message = f"{typed[1]} {typed[2]}"
        raise InputError(f"{message}. `{self.prog} --help` lists the arguments.")


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Every flag of a parser that has a long form."""
    return [f for a in parser._actions for f in a.option_strings if f.startswith("--")]


def with_flags(text: str, flags: Iterable[str]) -> str:
    """The text of an error in which names of arguments are flags.

    Below the command line an error names an argument of Python.

    Example:
        >>> with_flags("out must be a folder, got x. Pass fresh=True.", ["--out", "--fresh"])
        '--out must be a folder, got x. Pass --fresh.'
    """
    names = {flag[2:].replace("-", "_"): flag for flag in flags}
    first = re.match(r"(\w+) must be ", text)
    if first is not None and first[1] in names:
        text = names[first[1]] + text[first.end(1) :]
    return re.sub(r"\b(\w+)=True\b", lambda m: names.get(m[1], m[0]), text)
