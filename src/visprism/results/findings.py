"""Findings: sentences that a result says about itself, some with a code to look up."""

from dataclasses import dataclass
from typing import Literal

from visprism.core.errors import InputError

Severity = Literal["", "note", "warning"]


@dataclass(frozen=True)
class Code:
    """A condition that a reader should know of; docs/findings.md has a heading for each."""

    title: str
    severity: Severity


# Codes never change their meaning; a code that is not used any more is not used again.
CODES: dict[str, Code] = {
    "VP101": Code("Accuracy not significantly above chance", "warning"),
    "VP102": Code("Too few images for the expected calibration error", "note"),
    "VP103": Code("The gradient of the attack vanishes", "warning"),
    "VP104": Code("CKA is near its permutation null", "note"),
    "VP105": Code("Frozen and re-estimated BatchNorm disagree", "warning"),
    "VP106": Code("Eigenvalues did not converge", "warning"),
    "VP107": Code("The two references of the high-frequency amplitude disagree", "note"),
    "VP108": Code("Dead channels", "note"),
    "VP109": Code("Blocks that change nothing", "note"),
    "VP110": Code("Sharpness above 2 / learning rate", "note"),
    "VP111": Code("Negative curvature that the leading eigenvalues do not show", "note"),
}


@dataclass(frozen=True)
class Finding:
    """One sentence: a quantity, its value, its interval, a comparison.

    Raises:
        InputError: if the code is not in `CODES`.
    """

    text: str  # begins in lower case where grammar allows, ends without a full stop
    code: str = ""  # "VP101" ...: a condition to act on or beware of

    def __post_init__(self) -> None:
        if self.code and self.code not in CODES:
            raise InputError(f"code must be one of {', '.join(CODES)}, got {self.code!r}")

    @property
    def severity(self) -> Severity:
        """Severity of the code, "note" or "warning"; "" without a code."""
        return CODES[self.code].severity if self.code else ""

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]" if self.code else self.text
