"""Values: what an option takes, read from text; anything else is told in one sentence."""

import argparse
from collections.abc import Callable
from pathlib import Path


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def from_zero(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def minutes(text: str) -> float:
    """A length of time above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return found


def query(text: str) -> tuple[int, int] | str:
    """A pixel, or one of the words for a query."""
    row, comma, column = text.partition(",")
    if comma and row.isdecimal() and column.isdecimal():
        return int(row), int(column)
    if text not in {"class", "mean"}:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no query; wants a pixel, as 112,80, or class, or mean"
        )
    return text


def folder(text: str) -> Path:
    """A path that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name; name a folder")
    return Path(text)


def size(text: str) -> tuple[int, int]:
    """(height, width), from ``224`` or ``224x160``."""
    height, _, width = text.partition("x")
    return positive(height), positive(width or height)


def listed(kind: Callable) -> Callable[[str], tuple]:
    """Values of one kind, with commas between them."""

    def read(text: str) -> tuple:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers") from None

    return read


def share(text: str) -> float:
    """A number, or a fraction such as 8/255."""
    above, slash, below = text.partition("/")
    try:
        return float(above) / float(below) if slash else float(above)
    except ZeroDivisionError:
        raise ValueError(text) from None


def confidence(text: str) -> float:
    """A cut-off of the confidence."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no confidence from 0 up to but not 1")
    return value
