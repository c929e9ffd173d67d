"""What is tested: one primary hypothesis for each row of protocol P16, and secondary ones.

The primary hypotheses were written on 2026-11-25, before the runs that decide them. A test
holds them to the table in docs/claims.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log
from typing import Literal

from visprism.analyses.predictions.frequency_noise import EQUAL_ENERGY, PAPER
from visprism.claims.claim_networks import NETWORKS, Scale
from visprism.core.errors import InputError
from visprism.core.registry import suggestion
from visprism.estimates.questions import PAPER_CLAIMS
from visprism.table.kinds import SCALE_FREE, TO_LOWEST, TO_MEAN, VARIANCE, Change

Direction = Literal["lower", "higher"]
Phase = Literal["end of training", "after the warm-up"]
END: Phase = "end of training"
WARM_UP: Phase = "after the warm-up"
TRAINED, CLEAN = "trained objective", "NLL of clean images"  # objectives of Hessians
FIT = "NLL of training images, snapshots"


def change(kind: str, quantity: Change) -> str:
    """Name of the mean change of a quantity across the blocks of a kind."""
    logs = {VARIANCE: "log variance", SCALE_FREE: "log of variance over mean square"}
    return f"{kind} blocks, change of {logs.get(quantity, quantity.label)}"


def late_minus_early(kind: str) -> str:
    """Name of the difference of accuracy drops between halves of the blocks of a kind."""
    return f"difference of accuracy drops, late minus early {kind} of a stage"


def contrast(noise: str) -> str:
    """Name of the difference of accuracy drops between halves of the frequencies."""
    return f"difference of accuracy drops, high minus low frequencies, {noise} noise"


def rise(batch_norm: str) -> str:
    """Name of the mean increase of the NLL on circles around the weights."""
    return f"rise of the NLL at filter-normalized distance 0.5, {batch_norm} BatchNorm"


@dataclass(frozen=True)
class Hypothesis:
    """A network has a lower or higher value of a quantity than another one, or than 0.

    Values are paired by seed. With `logarithm`, the effect of a seed is the difference of the
    logarithms. With `also`, the same networks must differ in the other direction in a second
    quantity too, and the weaker of the two comparisons decides.
    """

    row: str  # such as "C6a"; of secondary hypotheses the row that they belong to
    network: str
    direction: Direction
    quantity: str
    control: str = ""  # network; "" to compare with 0
    unit: str = ""  # "points" of a fraction, "nats" or ""
    margin: float = 0.0  # 0: secondary, without verdict
    logarithm: bool = False
    phase: Phase = END
    also: str = ""
    equal_fit: bool = False  # whether snapshots of equal training NLL are compared, too

    @property
    def words(self) -> str:
        """What the claim expects, for a figure."""
        return _WORDS[self.row]

    @property
    def claim(self) -> str:
        """Code of the claim: ``C6``."""
        return self.row.rstrip("abc")

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that are compared."""
        return (self.network, self.control) if self.control else (self.network,)

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is measured of each network."""
        return (self.quantity, self.also) if self.also else (self.quantity,)

    def __str__(self) -> str:
        """``vit lower than cnn``."""
        return f"{self.network} {self.direction} than {self.control or '0'}"

    def testable(self, scale: Scale) -> bool:
        """Whether the scale has the networks."""
        return all(NETWORKS[name].model in scale.models for name in self.networks)


_WORDS = {
    "C1": "ViT: smaller eigenvalues than CNN",
    "C2": "ViT: more negative eigenvalues than CNN",
    "C3": "GAP: fewer negative eigenvalues",
    "C4a": "ViT, 10% of images, same epochs: worse fit",
    "C4b": "ViT, 10% of images, same updates: worse fit",
    "C5": "Local attention: more accurate",
    "C6a": "Attention lowers high frequencies",
    "C6b": "Convolutions raise high frequencies",
    "C6c": "MLPs raise high frequencies",
    "C7": "High-frequency noise: hurts ViT less",
    "C8a": "Attention lowers relative variance",
    "C8b": "Convolutions raise relative variance",
    "C9": "CNN: block structure in CKA",
    "C10a": "CNN: early convolutions matter most",
    "C10b": "ViT: late attention matters most",
    "C11": "AlterNet: more accurate than CNN",
    "C12": "Strong augmentation: underconfident",
    "C13": "More heads: fewer negative eigenvalues",
    "C14": "Smaller patches: less accurate",
    "C15": "ViT: NLL rises less around the weights",
    "C16": "The objective decides which is flatter",
}
_APE, _NEP = f"APE, {TRAINED}", f"NEP, {TRAINED}"
_NLL, _ACCURACY, _CKA = "NLL of training images", "test accuracy", "block structure of CKA"
_LEADING = "leading eigenvalue"
_FULL, _WEAK = "vit, full attention", "vit, weak augmentation"
_FACTOR = log(1.25)
# fmt: off
PRIMARY = {h.row: h for h in (
    Hypothesis("C1", "vit", "lower", _APE, "cnn", "", _FACTOR, True, equal_fit=True),
    Hypothesis("C2", "vit", "higher", _NEP, "cnn", "points", 0.05, False, WARM_UP, "", True),
    Hypothesis("C3", "vit, GAP", "lower", _NEP, "vit", "points", 0.05, False, WARM_UP),
    Hypothesis("C4a", "vit 10%", "higher", _NLL, "vit", "nats", 0.05),
    Hypothesis("C4b", "vit 10%, same updates", "higher", _NLL, "vit", "nats", 0.05),
    Hypothesis("C5", "vit, 3x3 attention", "higher", _ACCURACY, _FULL, "points", 0.01),
    Hypothesis("C6a", "vit", "lower", change("attention", TO_LOWEST), margin=0.02),
    Hypothesis("C6b", "cnn", "higher", change("conv", TO_LOWEST), margin=0.02),
    Hypothesis("C6c", "vit", "higher", change("mlp", TO_LOWEST), margin=0.02),
    Hypothesis("C7", "vit", "lower", contrast(EQUAL_ENERGY), "cnn", "points", 0.02),
    Hypothesis("C8a", "vit", "lower", change("attention", SCALE_FREE), margin=0.02),
    Hypothesis("C8b", "cnn", "higher", change("conv", SCALE_FREE), margin=0.02),
    Hypothesis("C9", "cnn", "higher", _CKA, margin=0.01),
    Hypothesis("C10a", "cnn", "lower", late_minus_early("conv"), "", "points", 0.02),
    Hypothesis("C10b", "vit", "higher", late_minus_early("attention"), "", "points", 0.02),
    Hypothesis("C11", "alternet", "higher", _ACCURACY, "cnn", "points", 0.01),
    Hypothesis("C12", "vit, strong augmentation", "lower", "signed ECE", _WEAK, "points", 0.02),
    Hypothesis("C13", "vit, many heads", "lower", _NEP, "vit, few heads", "points", 0.05, False,
               WARM_UP),
    Hypothesis("C14", "vit, small patches", "lower", _ACCURACY, "vit", "points", 0.01),
    Hypothesis("C15", "vit", "lower", rise("reestimated"), "cnn", "", _FACTOR, True, END, "",
               True),
    Hypothesis("C16", "vit", "higher", f"{_LEADING}, {CLEAN}", "cnn", "", _FACTOR, True, END,
               f"{_LEADING}, {TRAINED}", True),
)}
# fmt: on


def _secondary(row: str, **changes: object) -> Hypothesis:
    """A hypothesis that differs from the primary one of the row, without margin and verdict."""
    plain = {"margin": 0.0, "equal_fit": False, "also": ""}
    return replace(PRIMARY[row], **(plain | changes))  # pyrefly: ignore


SECONDARY = (
    _secondary("C1", quantity=f"APE, {CLEAN}"),
    _secondary("C2", quantity=f"NEP, {CLEAN}"),
    _secondary("C2", network="vit 10%", control="vit"),
    _secondary("C3", quantity=f"NEP, {CLEAN}"),
    _secondary("C3", network="vit, SAM"),
    _secondary("C5", network="vit, 5x5 attention"),
    _secondary("C5", quantity=_NLL, unit="nats", direction="lower"),
    _secondary("C6a", quantity=change("attention", TO_MEAN)),
    _secondary("C6b", quantity=change("conv", TO_MEAN)),
    _secondary("C6c", quantity=change("mlp", TO_MEAN)),
    _secondary("C7", quantity=contrast(PAPER)),
    _secondary("C8a", quantity=change("attention", VARIANCE)),
    _secondary("C8b", quantity=change("conv", VARIANCE)),
    _secondary("C9", network="multi-stage transformer"),
    _secondary("C10b", network="multi-stage transformer"),
    _secondary("C11", network="alternet 10%", control="cnn 10%"),
    _secondary("C11", quantity="accuracy on corrupted images"),
    _secondary("C11", quantity=_APE, unit="", logarithm=True, direction="lower"),
    _secondary("C12", network="cnn, strong augmentation", control="cnn, weak augmentation"),
    _secondary("C12", control=""),
    _secondary("C13", quantity=_APE, unit="", logarithm=True),
    _secondary("C15", quantity=rise("frozen")),
)


def primary_of(codes: Iterable[str] | None, scale: Scale) -> list[Hypothesis]:
    """The primary hypotheses of claims, such as C6, or of rows, such as C6a; None for all."""
    if codes is None:
        return [h for h in PRIMARY.values() if h.testable(scale)]
    chosen: dict[str, Hypothesis] = {}
    for code in codes:
        rows = {row: h for row, h in PRIMARY.items() if code in (row, h.claim)}
        if not rows:
            raise InputError(f"unknown claim {code!r}. {suggestion(code, list(PAPER_CLAIMS))}")
        if not all(h.testable(scale) for h in rows.values()):
            raise InputError(f"claim {code} must be tested at another scale, got {scale.name}")
        chosen |= rows
    return list(chosen.values())


def secondary_of(primary: Iterable[Hypothesis], scale: Scale) -> list[Hypothesis]:
    """The secondary hypotheses of the rows of primary ones."""
    rows = {h.row for h in primary}
    return [h for h in SECONDARY if h.row in rows and h.testable(scale)]
