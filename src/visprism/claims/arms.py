"""Arms: the networks that claims compare, and the training runs that replicate them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from visprism.claims.scales import Scale
from visprism.core.errors import InputError
from visprism.core.registry import suggestion
from visprism.training import Recipe

Duration = Literal["epochs", "updates"]
Augmentations = Literal["", "weak", "strong"]


@dataclass(frozen=True)
class Arm:
    """A network and what its training varies; its runs differ in the seed."""

    name: str
    network: str  # of the scale
    fraction: float = 1.0  # of the training images of the scale
    # With fewer images: the same number of epochs as with all of them, or of updates.
    same: Duration = "epochs"
    augmentation: Augmentations = ""  # "": that of the recipe of the scale
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields of the recipe

    def recipe(self, scale: Scale, seed: int) -> Recipe:
        """The recipe of a run of this arm."""
        network = scale.network(self.network)
        recipe = scale.recipe.replace(**network.changes, **self.changes, seed=seed)
        if self.augmentation:
            named = {"weak": scale.weak, "strong": scale.strong}
            recipe = replace(recipe, augmentation=named[self.augmentation])
        if self.fraction == 1 or self.same == "epochs":
            return recipe
        factor = 1 / self.fraction
        return recipe.replace(
            epochs=round(recipe.epochs * factor),
            warmup=recipe.warmup * factor,
            eval_every=math.ceil(recipe.eval_every * factor),
            snapshot_every=math.ceil(recipe.snapshot_every * factor),
        )


ARMS = {
    arm.name: arm
    for arm in (
        Arm("cnn", "cnn"),
        Arm("vit", "vit"),
        Arm("alternet", "alternet"),
        *(
            Arm(f"{network} {fraction:.0%}", network, fraction)
            for network in ("cnn", "vit", "alternet")
            for fraction in (0.1, 0.3)
        ),
        *(
            Arm(f"vit {fraction:.0%}, same updates", "vit", fraction, "updates")
            for fraction in (0.1, 0.3)
        ),
        Arm("vit, GAP", "vit, GAP"),
        Arm("vit, SAM", "vit", changes={"sam_rho": 0.05}),
        Arm("vit, few heads", "vit, few heads"),
        Arm("vit, many heads", "vit, many heads"),
        Arm("vit, small patches", "vit, small patches"),
        Arm("vit, 3x3 attention", "vit, 3x3 attention"),
        Arm("vit, 5x5 attention", "vit, 5x5 attention"),
        Arm("vit, full attention", "vit, full attention"),
        Arm("multi-stage transformer", "multi-stage transformer"),
        *(
            Arm(f"{network}, {strength} augmentation", network, augmentation=strength)
            for network in ("cnn", "vit")
            for strength in ("weak", "strong")
        ),
    )
}


def arm_of(name: str) -> Arm:
    """The arm with this name."""
    if name not in ARMS:
        raise InputError(f"unknown arm {name!r}. {suggestion(name, list(ARMS))}")
    return ARMS[name]
