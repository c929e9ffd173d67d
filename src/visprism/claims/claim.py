"""Claims: statements of the paper, and the hypotheses that decide them."""

from collections.abc import Iterable
from dataclasses import dataclass

from visprism.claims.arms import arm_of
from visprism.claims.decisions import Direction
from visprism.claims.quantities import QUANTITIES, Quantity, quantity_of
from visprism.claims.scales import Scale


@dataclass(frozen=True)
class Hypothesis:
    """A quantity of one arm is lower or higher than that of another, or than 0.

    Hypotheses of one protocol hold or fail together; those of different protocols stand side by
    side.
    """

    treatment: str  # arm
    direction: Direction
    quantity: str  # key of a quantity
    control: str = ""  # arm; "" to compare with 0
    protocol: str = ""

    def __post_init__(self) -> None:
        for name in (self.treatment, *([self.control] if self.control else [])):
            arm_of(name)
        quantity_of(self.quantity)

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are compared."""
        return (self.treatment, self.control) if self.control else (self.treatment,)

    @property
    def measured(self) -> Quantity:
        """What is measured."""
        return QUANTITIES[self.quantity]

    def __str__(self) -> str:
        """``NEP, NLL of clean images: vit lower than cnn``."""
        return f"{self.quantity}: {self.treatment} {self.direction} than {self.control or '0'}"


@dataclass(frozen=True)
class Claim:
    """A statement, its source, and what decides it, declared before any run."""

    code: str
    statement: str
    source: str
    hypotheses: tuple[Hypothesis, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm that is compared, once."""
        return tuple(dict.fromkeys(arm for h in self.hypotheses for arm in h.arms))

    def testable(self, scale: Scale) -> bool:
        """Whether the scale has every network of the claim."""
        return all(arm_of(arm).network in scale.networks for arm in self.arms)


def quantities_by_arm(claims: Iterable[Claim]) -> dict[str, list[Quantity]]:
    """What is measured of each arm, for all claims together."""
    needed: dict[str, dict[str, Quantity]] = {}
    for claim in claims:
        for hypothesis in claim.hypotheses:
            for arm in hypothesis.arms:
                needed.setdefault(arm, {})[hypothesis.quantity] = hypothesis.measured
    return {arm: list(quantities.values()) for arm, quantities in needed.items()}
