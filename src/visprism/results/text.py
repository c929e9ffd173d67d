"""Text of numbers in findings."""

from math import isfinite


def interval_text(value: float, low: float, high: float, form: str = ".3g") -> str:
    """A value with its interval, where there is one.

    Example:
        >>> interval_text(0.931, 0.926, 0.936, ".1%"), interval_text(0.25, float("nan"), 1.0)
        ('93.1% [92.6%, 93.6%]', '0.25')
    """
    if not (isfinite(low) and isfinite(high)):
        return f"{value:{form}}"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def images_text(images: int, split: str = "") -> str:
    """The images of a measurement, with their split: ``10,000 test images``."""
    return f"{images:,} {split + ' ' if split else ''}image{'' if images == 1 else 's'}"


def points_text(value: float, low: float, high: float) -> str:
    """A difference of two fractions in percentage points, with its interval, if there is one.

    Example:
        >>> points_text(0.215, 0.17, 0.26)
        '21.5 percentage points [17.0, 26.0]'
    """
    text = f"{100 * value:.1f} percentage points"
    if not (isfinite(low) and isfinite(high)):
        return text
    return f"{text} [{100 * low:.1f}, {100 * high:.1f}]"
