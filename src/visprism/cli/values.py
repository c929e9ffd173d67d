"""Types of command-line values: text to value, or one sentence on what it must be."""

import argparse
from math import isfinite
from pathlib import Path


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def from_zero(text: str) -> int:
    """An integer of at least 0."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be an integer of at least 0, got {text!r}")
    return int(text)


def minutes(text: str) -> float:
    """A number of minutes above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"must be a positive number of minutes, got {text!r}")
    return value


def folder(text: str) -> Path:
    """A path that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a folder, got an empty text")
    return Path(text)


def size(text: str) -> tuple[int, int]:
    """(height, width), from ``224`` or ``224x160``."""
    height, _, width = text.partition("x")
    return positive(height), positive(width or height)


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise argparse.ArgumentTypeError(f"must be names separated by commas, got {text!r}")
    return parts
