"""Values of arguments: text to value, or one sentence on what it must be."""

import os
from argparse import ArgumentTypeError
from math import isfinite, nan
from pathlib import Path

_LARGEST_SIDE = 2**16  # of an image, in pixels
_DIGITS = 19  # of the largest number of 64 bits
FORMATS = ("png", "svg", "pdf")


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not _is_number(text) or int(text) < 1:
        raise ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def nonnegative(text: str) -> int:
    """An integer of at least 0."""
    if not _is_number(text):
        raise ArgumentTypeError(f"must be an integer of at least 0, got {text!r}")
    return int(text)


def _is_number(text: str) -> bool:
    """Whether a text is digits of a number that a computer can count to."""
    return text.isascii() and text.isdecimal() and len(text.lstrip("0")) < _DIGITS


def _real(text: str) -> float:
    """A number; NaN where a text is none, or not in digits from 0 to 9."""
    try:
        return float(text) if text.isascii() and "_" not in text else nan
    except ValueError:
        return nan


def minutes(text: str) -> float:
    """A number of minutes above 0."""
    value = _real(text)
    if not isfinite(value) or value <= 0:
        raise ArgumentTypeError(f"must be a positive number of minutes, got {text!r}")
    return value


def minutes_or_none(text: str) -> float | None:
    """A number of minutes above 0, or ``none`` for no limit."""
    if text.lower() == "none":
        return None
    try:
        return minutes(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(
            f"must be a positive number of minutes, or none for no limit, got {text!r}"
        ) from error


def fraction(text: str) -> float:
    """A number above 0 and at most 1."""
    value = _real(text)
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"must be positive and at most 1, got {text!r}")
    return value


def folder(text: str) -> Path:
    """A path that is not empty."""
    if not text:
        raise ArgumentTypeError("must be the name of a folder, got an empty text")
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise ArgumentTypeError(f"must be a name that a file can have, got {text!r}")
    return Path(text)


def size(text: str) -> tuple[int, int]:
    """(height, width), from ``224`` or ``224x160``."""
    height, separator, width = text.partition("x")
    try:
        sides = positive(height), positive(width if separator else height)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(
            f"must be N or HxW in pixels, such as 224 or 224x160, got {text!r}"
        ) from error
    if max(sides) > _LARGEST_SIDE:
        raise ArgumentTypeError(f"must be at most {_LARGEST_SIDE} pixels, got {text!r}")
    return sides


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ArgumentTypeError(f"must be names separated by commas, got {text!r}")
    return parts


def formats(text: str) -> tuple[str, ...]:
    """Formats of figure files separated by commas."""
    chosen = names(text)
    if not set(chosen) <= set(FORMATS):
        raise ArgumentTypeError(f"must be of {', '.join(FORMATS)}, got {text!r}")
    return chosen
