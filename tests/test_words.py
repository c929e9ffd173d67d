"""Words: nothing printed or public holds a coined, British or unclear word.

The words are in ``banned_words.txt``, one a line with its remedy; add one there.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import visprism
from visprism.cli.parser import commands

PACKAGE = Path(visprism.__file__).parent
PROJECT = PACKAGE.parents[1]
LIST = Path(__file__).parent / "banned_words.txt"
SOURCES = sorted(PACKAGE.rglob("*.py")) + sorted(PACKAGE.rglob("*.pyi"))
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted((PROJECT / "docs").glob("*.md")),
    *sorted((PROJECT / "docs").glob("[!_g]*/*.md")),  # neither _build nor generated
]
BEFORE, AFTER = r"(?<![\w`])", r"(?!\w)"  # a word begins and ends; code in backticks is none
CHANGELOG = PROJECT / "CHANGELOG.md"


@cache
def entries(kind: str) -> list[tuple[re.Pattern[str], str]]:
    """The pattern and the remedy of each line of this kind."""
    lines = [line for line in LIST.read_text("utf-8").splitlines() if line[:1] not in ("", "#")]
    wrong = [line for line in lines if line.count(" | ") != 2]
    assert not wrong, f"a line of {LIST.name} must be KIND | PATTERN | REMEDY, got {wrong}"
    rows = [[part.strip() for part in line.split(" | ")] for line in lines]
    patterns = [(pattern, remedy) for name, pattern, remedy in rows if name == kind]
    if kind == "text":
        patterns = [(f"{BEFORE}{p}{AFTER}".replace(" ", r"\s+"), r) for p, r in patterns]
    return [(re.compile(pattern, re.IGNORECASE), remedy) for pattern, remedy in patterns]


@cache
def any_banned_text() -> re.Pattern[str]:
    """One pattern for all entries: most texts have none of their words."""
    words = (p.pattern.removeprefix(BEFORE).removesuffix(AFTER) for p, _ in entries("text"))
    return re.compile(f"{BEFORE}(?:{'|'.join(words)}){AFTER}", re.IGNORECASE)


def problems_in_text(text: str) -> Iterator[tuple[int, str]]:
    """The position and the name of each banned word, code in backticks excepted."""
    if not any_banned_text().search(text):
        return
    for allowed, _ in entries("allowed"):
        text = allowed.sub(lambda match: "\n" * match[0].count("\n"), text)
    for pattern, remedy in entries("text"):
        for match in pattern.finditer(text):
            yield match.start(), f"{' '.join(match[0].split())!r}: write {remedy}"


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, string constants, f-strings with ``{}`` for values, and comments."""
    nodes = nodes_of(path)
    parts = {part for n in nodes if isinstance(n, ast.JoinedStr) for part in n.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values),
            )
        elif isinstance(node, ast.Constant) and node not in parts and type(node.value) is str:
            yield node.lineno, node.value
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        yield from ((number, comment) for comment in re.findall(r"(?:^|\s)#(.*)", line))


def names_of(path: Path) -> Iterator[tuple[int, str]]:
    """The module and its public classes, functions, methods and arguments."""
    yield 1, path.stem
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def words_of(name: str) -> list[str]:
    """``token_grids`` and ``TokenGrids`` are ``token`` and ``grids``."""
    return re.findall(r"[a-z]+|[A-Z](?:[a-z]+|[A-Z]*(?![a-z]))", name)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(PROJECT)}:{line}"


def test_strings_and_comments_of_the_source_have_no_banned_word():
    problems = [
        f"{where(path, line + text[:start].count(chr(10)))}: {problem}"
        for path in SOURCES
        for line, text in strings_of(path)
        for start, problem in problems_in_text(text)
    ]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(
    "path", [*PAGES, CHANGELOG], ids=lambda path: str(path.relative_to(PROJECT))
)
def test_pages_have_no_banned_word(path):
    text = path.read_text("utf-8")
    problems = [
        f"{where(path, text[:start].count(chr(10)) + 1)}: {problem}"
        for start, problem in problems_in_text(text)
    ]
    assert not problems, "\n" + "\n".join(problems)


def test_names_are_words_of_the_field():
    problems = [
        f"{where(path, line)}: {name}: write {remedy}"
        for path in SOURCES
        for line, name in names_of(path)
        for pattern, remedy in entries("name")
        if any(pattern.fullmatch(word) for word in words_of(name))
    ]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_commands_in_pages_exist(path):
    named = re.findall(r"(?:^|`)visprism ([a-z][a-z-]*)", path.read_text("utf-8"), re.MULTILINE)
    assert set(named) <= set(commands())


@pytest.mark.parametrize(
    "sentence",
    ["Colours of the images", "k wants 5", "93.1% of the images\nare right", "`a` and b told"],
)
def test_a_banned_word_is_seen(sentence):
    assert list(problems_in_text(sentence))
