"""Text of numbers in findings."""

import re
from collections.abc import Sequence
from math import isclose, isfinite
from typing import Any

DASH = "\N{EN DASH}"  # where there is no number
MINUS = "\N{MINUS SIGN}"
_MORE_DIGITS = 4  # at most, so that a value and the ends of its interval differ as text


def resolved(
    value: float, low: float, high: float, form: str, *, null: float | None = None
) -> str:
    """The format with as many digits as the value needs to differ from the ends as text.

    The ends also differ from `null`, the value without any effect, unless they are equal to it.

    Example:
        >>> resolved(15.02, 14.99, 15.06, ".3g"), resolved(15.0, 13.0, 17.0, ".3g")
        ('.4g', '.3g')
    """
    digits = re.search(r"\.(\d+)", form)
    if digits is None or not all(map(isfinite, (value, low, high))):
        return form
    ends = [end for end in (low, high) if not isclose(end, value, rel_tol=1e-6, abs_tol=1e-12)]
    for more in range(_MORE_DIGITS + 1):
        longer = form.replace(digits[0], f".{int(digits[1]) + more}")
        apart = all(_rounded(end, longer) != _rounded(value, longer) for end in ends)
        if apart and all(_rounded(end, longer) != null or end == null for end in (low, high)):
            return longer
    return form


def _rounded(value: float, form: str) -> float:
    """The number that the text shows; percent as they stand."""
    return float(f"{value:{form}}".removesuffix("%"))


def selection_text(number: int) -> str:
    """What the interval of an extreme of several values lacks; "" for a single value."""
    return "" if number < 2 else ", interval not adjusted for this selection"


def interval_text(
    value: float, low: float, high: float, form: str = ".3g", *, null: float | None = None
) -> str:
    """A value with its interval, where there is one.

    Example:
        >>> interval_text(0.931, 0.926, 0.936, ".1%"), interval_text(0.25, float("nan"), 1.0)
        ('93.1% [92.6%, 93.6%]', '0.25')
    """
    if not (isfinite(low) and isfinite(high)):
        return f"{value:{form}}"
    form = resolved(value, low, high, form, null=null)
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def images_text(images: int, split: str = "") -> str:
    """The images of a measurement, with their split: ``10,000 test images``.

    Example:
        >>> images_text(512, "train"), images_text(1)
        ('512 training images', '1 image')
    """
    kind = {"train": "training "}.get(split, f"{split} " if split else "")
    return f"{images:,} {kind}image{'' if images == 1 else 's'}"


def points_text(number: float) -> str:
    """A difference of two fractions in percentage points, with its interval, if it has one.

    Example:
        >>> points_text(0.215)
        '21.5 percentage points'
    """
    low, high = (getattr(number, end, float("nan")) for end in ("low", "high"))
    value, low, high = 100 * float(number), 100 * low, 100 * high
    if not (isfinite(low) and isfinite(high)):
        return f"{value:.1f} percentage points"
    form = resolved(value, low, high, ".1f")
    return f"{value:{form}} percentage points [{low:{form}}, {high:{form}}]"


def some_of(names: Sequence[str], number: int = 3) -> str:
    """The first of several names, separated by commas: ``a, b, c, ...``."""
    return ", ".join(names[:number]) + (", ..." if len(names) > number else "")


def text_of(number: float, form: str = ".3g") -> str:
    """A number with its interval, where it has one."""
    low, high = (getattr(number, end, float("nan")) for end in ("low", "high"))
    return interval_text(float(number), low, high, form)


def missing_text(number: Any, of: str = "") -> str:
    """Why a number has no interval: `` (no interval: fewer than 32 images)``; "" if it has."""
    reason = getattr(number, "missing", "")
    return f" (no interval{of}: {reason})" if reason and not isfinite(number.low) else ""


def number_of(number: int, noun: str) -> str:
    """A number of things: ``1 corruption``, ``15 corruptions``."""
    plural = "es" if noun.endswith("batch") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def readable(name: str) -> str:
    """The name of a corruption or an option as text: ``JPEG compression``."""
    return str(name).replace("_", " ").replace("jpeg", "JPEG")


def titled(name: str) -> str:
    """The name of a corruption with a capital: ``JPEG compression``, ``Fog``."""
    text = readable(name)
    return text[:1].upper() + text[1:]
