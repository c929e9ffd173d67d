"""What is tested: one primary hypothesis for each row of protocol P16, and secondary ones.

The primary hypotheses were written on 2026-11-25, before the runs that decide them. A test
holds them to the table in docs/claims.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log
from typing import Literal

import visprism as vp
from experiments.claims.networks import NETWORKS, Scale
from experiments.claims.statements import STATEMENTS

Direction = Literal["lower", "higher"]
Phase = Literal["end of training", "after the warm-up"]
END: Phase = "end of training"
WARM_UP: Phase = "after the warm-up"
TRAINED, CLEAN = "trained objective", "NLL of clean images"  # objectives of Hessians


@dataclass(frozen=True)
class Quantity:
    """A number of a trained network, and the measurement in `measure.py` that gives it."""

    name: str  # stored values have it as their key; it never changes
    measurement: str
    objective: str = ""  # of a Hessian

    def __str__(self) -> str:
        return self.name


ACCURACY = Quantity("test accuracy", "outputs")
NLL = Quantity("NLL of training images", "outputs")
SIGNED_ECE = Quantity("signed ECE", "outputs")
FIT = Quantity("NLL of training images, snapshots", "fit")
BLOCK_STRUCTURE = Quantity("block structure of CKA", "features")
CORRUPTED = Quantity("accuracy on corrupted images", "corruptions")

# What changes across blocks, by its identifier in `vp.results.KindSummary`.
CHANGES = {
    "high-frequency": "high-frequency log amplitude relative to the mean",
    "high-frequency-to-lowest": "high-frequency log amplitude relative to the lowest frequency",
    "log-variance": "log variance",
    "log-relative-variance": "log of variance over mean square",
}


def change(kind: str, of: str) -> Quantity:
    """The mean change of a quantity across the blocks of a kind."""
    return Quantity(f"{kind} blocks, change of {CHANGES[of]}", "features")


def late_minus_early(kind: str) -> Quantity:
    """The difference of accuracy drops between halves of the blocks of a kind."""
    name = f"difference of accuracy drops, late minus early {kind} of a stage"
    return Quantity(name, "ablations")


def contrast(noise: str) -> Quantity:
    """The difference of accuracy drops between halves of the frequencies."""
    name = f"difference of accuracy drops, high minus low frequencies, {noise} noise"
    return Quantity(name, "noise")


def rise(batch_norm: str) -> Quantity:
    """The mean increase of the NLL on circles around the weights."""
    name = f"rise of the NLL at filter-normalized distance 0.5, {batch_norm} BatchNorm"
    return Quantity(name, "landscape")


def nep(objective: str) -> Quantity:
    """The fraction of negative eigenvalues among the leading ones of mini-batches."""
    return Quantity(f"NEP, {objective}", "hessian", objective)


def ape(objective: str) -> Quantity:
    """The arithmetic mean of the positive leading eigenvalues of mini-batches."""
    return Quantity(f"APE, {objective}", "hessian", objective)


def leading(objective: str) -> Quantity:
    """The largest Hessian eigenvalue of the mean loss of all measured images."""
    return Quantity(f"leading eigenvalue, {objective}", "leading", objective)


@dataclass(frozen=True)
class Hypothesis:
    """A network has a lower or higher value of a quantity than another one, or than 0.

    Values are paired by seed. With `logarithm`, the effect of a seed is the difference of the
    logarithms. With `also`, the same networks must differ in the other direction in a second
    quantity too, and the weaker of the two comparisons decides.
    """

    row: str  # such as "C6a"; of secondary hypotheses the row that they belong to
    words: str  # what the claim expects, for a figure
    network: str
    direction: Direction
    quantity: Quantity
    control: str = ""  # network; "" to compare with 0
    unit: str = ""  # "points" of a fraction, "nats" or ""
    margin: float = 0.0  # 0: secondary, without verdict
    logarithm: bool = False
    phase: Phase = END
    also: Quantity | None = None
    equal_fit: bool = False  # whether snapshots of equal training NLL are compared, too

    @property
    def claim(self) -> str:
        """Code of the claim: ``C6``."""
        return self.row.rstrip("abc")

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that are compared."""
        return (self.network, self.control) if self.control else (self.network,)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is measured of each network."""
        return (self.quantity, self.also) if self.also else (self.quantity,)

    def text(self, scale: Scale) -> str:
        """``vit lower than cnn``, in which "model" stands for the user's."""
        first, *other = (scale.title(NETWORKS[name]) for name in self.networks)
        return f"{first} {self.direction} than {other[0] if other else '0'}"

    def testable(self, scale: Scale) -> bool:
        """Whether the scale has the networks; the user's model is one, and no other."""
        models = {NETWORKS[name].model for name in self.networks}
        return models <= scale.models.keys() and not (scale.own_model and len(models) > 1)


_FULL, _WEAK = "vit, full attention", "vit, weak augmentation"
_FACTOR = log(1.25)
_ROWS = (
    Hypothesis(
        "C1",
        "ViT: smaller eigenvalues than CNN",
        "vit",
        "lower",
        ape(TRAINED),
        control="cnn",
        margin=_FACTOR,
        logarithm=True,
        equal_fit=True,
    ),
    Hypothesis(
        "C2",
        "ViT: more negative eigenvalues than CNN",
        "vit",
        "higher",
        nep(TRAINED),
        control="cnn",
        unit="points",
        margin=0.05,
        phase=WARM_UP,
        equal_fit=True,
    ),
    Hypothesis(
        "C3",
        "GAP: fewer negative eigenvalues",
        "vit, GAP",
        "lower",
        nep(TRAINED),
        control="vit",
        unit="points",
        margin=0.05,
        phase=WARM_UP,
    ),
    Hypothesis(
        "C4a",
        "ViT, 10% of images, same epochs: worse fit",
        "vit 10%",
        "higher",
        NLL,
        control="vit",
        unit="nats",
        margin=0.05,
    ),
    Hypothesis(
        "C4b",
        "ViT, 10% of images, same updates: worse fit",
        "vit 10%, same updates",
        "higher",
        NLL,
        control="vit",
        unit="nats",
        margin=0.05,
    ),
    Hypothesis(
        "C5",
        "Local attention: more accurate",
        "vit, 3x3 attention",
        "higher",
        ACCURACY,
        control=_FULL,
        unit="points",
        margin=0.01,
    ),
    Hypothesis(
        "C6a",
        "Attention lowers high frequencies",
        "vit",
        "lower",
        change("attention", "high-frequency-to-lowest"),
        margin=0.02,
    ),
    Hypothesis(
        "C6b",
        "Convolutions raise high frequencies",
        "cnn",
        "higher",
        change("conv", "high-frequency-to-lowest"),
        margin=0.02,
    ),
    Hypothesis(
        "C6c",
        "MLPs raise high frequencies",
        "vit",
        "higher",
        change("mlp", "high-frequency-to-lowest"),
        margin=0.02,
    ),
    Hypothesis(
        "C7",
        "High-frequency noise: hurts ViT less",
        "vit",
        "lower",
        contrast("equal energy"),
        control="cnn",
        unit="points",
        margin=0.02,
    ),
    Hypothesis(
        "C8a",
        "Attention lowers relative variance",
        "vit",
        "lower",
        change("attention", "log-relative-variance"),
        margin=0.02,
    ),
    Hypothesis(
        "C8b",
        "Convolutions raise relative variance",
        "cnn",
        "higher",
        change("conv", "log-relative-variance"),
        margin=0.02,
    ),
    Hypothesis(
        "C9",
        "CNN: block structure in CKA",
        "cnn",
        "higher",
        BLOCK_STRUCTURE,
        margin=0.01,
    ),
    Hypothesis(
        "C10a",
        "CNN: early convolutions matter most",
        "cnn",
        "lower",
        late_minus_early("conv"),
        unit="points",
        margin=0.02,
    ),
    Hypothesis(
        "C10b",
        "ViT: late attention matters most",
        "vit",
        "higher",
        late_minus_early("attention"),
        unit="points",
        margin=0.02,
    ),
    Hypothesis(
        "C11",
        "AlterNet: more accurate than CNN",
        "alternet",
        "higher",
        ACCURACY,
        control="cnn",
        unit="points",
        margin=0.01,
    ),
    Hypothesis(
        "C12",
        "Strong augmentation: underconfident",
        "vit, strong augmentation",
        "lower",
        SIGNED_ECE,
        control=_WEAK,
        unit="points",
        margin=0.02,
    ),
    Hypothesis(
        "C13",
        "More heads: fewer negative eigenvalues",
        "vit, many heads",
        "lower",
        nep(TRAINED),
        control="vit, few heads",
        unit="points",
        margin=0.05,
        phase=WARM_UP,
    ),
    Hypothesis(
        "C14",
        "Smaller patches: less accurate",
        "vit, small patches",
        "lower",
        ACCURACY,
        control="vit",
        unit="points",
        margin=0.01,
    ),
    Hypothesis(
        "C15",
        "ViT: NLL rises less around the weights",
        "vit",
        "lower",
        rise("reestimated"),
        control="cnn",
        margin=_FACTOR,
        logarithm=True,
        equal_fit=True,
    ),
    Hypothesis(
        "C16",
        "The objective decides which is flatter",
        "vit",
        "higher",
        leading(CLEAN),
        control="cnn",
        margin=_FACTOR,
        logarithm=True,
        also=leading(TRAINED),
        equal_fit=True,
    ),
)
PRIMARY = {h.row: h for h in _ROWS}


def _secondary(row: str, **changes: object) -> Hypothesis:
    """A hypothesis that differs from the primary one of the row, without margin and verdict."""
    plain = {"margin": 0.0, "equal_fit": False, "also": None}
    return replace(PRIMARY[row], **(plain | changes))  # pyrefly: ignore


SECONDARY = (
    _secondary("C1", quantity=ape(CLEAN)),
    _secondary("C2", quantity=nep(CLEAN)),
    _secondary("C2", network="vit 10%", control="vit"),
    _secondary("C3", quantity=nep(CLEAN)),
    _secondary("C3", network="vit, SAM"),
    _secondary("C5", network="vit, 5x5 attention"),
    _secondary("C5", quantity=NLL, unit="nats", direction="lower"),
    _secondary("C6a", quantity=change("attention", "high-frequency")),
    _secondary("C6b", quantity=change("conv", "high-frequency")),
    _secondary("C6c", quantity=change("mlp", "high-frequency")),
    _secondary("C7", quantity=contrast("paper")),
    _secondary("C8a", quantity=change("attention", "log-variance")),
    _secondary("C8b", quantity=change("conv", "log-variance")),
    _secondary("C9", network="multi-stage transformer"),
    _secondary("C10b", network="multi-stage transformer"),
    _secondary("C11", network="alternet 10%", control="cnn 10%"),
    _secondary("C11", quantity=CORRUPTED),
    _secondary("C11", quantity=ape(TRAINED), unit="", logarithm=True, direction="lower"),
    _secondary("C12", network="cnn, strong augmentation", control="cnn, weak augmentation"),
    _secondary("C12", control=""),
    _secondary("C13", quantity=ape(TRAINED), unit="", logarithm=True),
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
            raise vp.InputError(f"row must be one of {', '.join(STATEMENTS)}, got {code!r}")
        if not all(h.testable(scale) for h in rows.values()):
            if scale.own_model:
                raise vp.InputError(
                    f"row {code} must measure networks of one architecture where a model is "
                    "given. It compares two: leave out --model."
                )
            raise vp.InputError(f"row {code} must be tested at another scale, got {scale.name}")
        chosen |= rows
    return list(chosen.values())


def secondary_of(primary: Iterable[Hypothesis], scale: Scale) -> list[Hypothesis]:
    """The secondary hypotheses of the rows of primary ones.

    Some compare another network; with the user's model they are the primary ones again.
    """
    seen = {(h.row, h.text(scale), h.quantity) for h in primary}
    rows = {row for row, _, _ in seen}
    return [
        h
        for h in SECONDARY
        if h.row in rows
        and h.testable(scale)
        and (h.row, h.text(scale), h.quantity) not in seen
    ]
