"""RandAugment in timm's notation, ``rand-m9-n2-mstd1.0``."""

import re
from dataclasses import dataclass

from visprism.core.errors import InputError

_EXAMPLE = "rand-m9-n2-mstd1.0"
_PART = re.compile(r"(mstd|mmax|inc|m|n|p)(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class RandAugment:
    """Number, probability and magnitude of the operations."""

    layers: int = 2  # operations drawn for each image, one after the other
    magnitude: float = 10.0  # 0 ... 10
    deviation: float = 0.0  # standard deviation of the magnitude
    probability: float = 0.5  # that an operation that was drawn is carried out
    highest: float = 10.0  # magnitudes are cut off at 0 and here
    increasing: bool = False  # every operation is stronger at a higher magnitude


def read_rand_augment(text: str) -> RandAugment:
    """Parse timm's notation, such as ``rand-m9-n2-mstd1.0``.

    ``m`` is the magnitude (10), ``n`` the number of operations (2), ``p`` the probability of
    each (0.5), ``mstd`` the deviation of the magnitude (0), ``mmax`` its upper end (10), and
    ``inc1`` makes every operation stronger with it. timm's sets of weights (``t...``) and its
    uniform magnitudes (``mstd`` over 100) are not supported.

    Raises:
        InputError: if it has another form.
    """
    first, *parts = text.split("-")
    matches = [_PART.fullmatch(part) for part in parts]
    wrong = [part for part, match in zip(parts, matches, strict=True) if match is None]
    if first != "rand" or wrong:
        raise InputError(
            f"rand_augment must be like {_EXAMPLE} (m, n, p, mstd, mmax, inc), got "
            f"{wrong[0] if wrong else first!r} in {text!r}"
        )
    values = {match[1]: float(match[2]) for match in matches if match}
    layers, probability = values.get("n", 2), values.get("p", 0.5)
    magnitude, highest = values.get("m", 10.0), values.get("mmax", 10.0)
    if not (layers == int(layers) >= 1 and probability <= 1 and highest > 0):
        raise InputError(
            "rand_augment must have a positive integer n, p up to 1 and a positive mmax, as in "
            f"{_EXAMPLE}, got {text!r}"
        )
    if values.get("mstd", 0.0) > 100 or values.get("inc", 0.0) not in (0, 1):
        raise InputError(
            f"rand_augment must have mstd up to 100 and inc0 or inc1, as in {_EXAMPLE}, got "
            f"{text!r}"
        )
    return RandAugment(
        layers=int(layers),
        magnitude=magnitude,
        deviation=values.get("mstd", 0.0),
        probability=probability,
        highest=highest,
        increasing=values.get("inc") == 1,
    )
