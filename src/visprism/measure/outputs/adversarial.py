"""Adversarial robustness: what attacks of several kinds and strengths cost."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.batches import Batch
from visprism.measure.outputs.attacks import attacked
from visprism.measure.outputs.perturbation_ball import Attack
from visprism.measure.outputs.perturbed_evaluation import Progress, evaluate_perturbed
from visprism.measure.outputs.pixel_space import PixelSpace
from visprism.measure.outputs.wilson import wilson
from visprism.results.base import Result, column, result_type, scalar


@result_type("adversarial")
class Adversarial(Result):
    """One row for each attack."""

    attack: np.ndarray = column("Attack", "", "'fgsm', 'pgd', 'random'")
    norm: np.ndarray = column("Norm", "", "'linf' or 'l2'")
    epsilon: np.ndarray = column("Largest change", "", "in pixels of 0 ... 1")
    frequency: np.ndarray = column(
        "Band", "π rad/pixel", "middle of the band, in pi rad/pixel; NaN without one"
    )
    steps: np.ndarray = column("Steps", "", "1 but for PGD")
    restarts: np.ndarray = column("Starts")
    accuracy: np.ndarray = column("Accuracy", "", "under the attack")
    low: np.ndarray = column("Low", "", "95 % Wilson interval of the accuracy")
    high: np.ndarray = column("High")
    drop: np.ndarray = column("Drop")
    drop_error: np.ndarray = column("Drop error", "", "standard error, paired by image")
    nll: np.ndarray = column("Nll")
    nll_rise: np.ndarray = column("Rise of NLL")
    nll_rise_error: np.ndarray = column("Nll rise error")
    clean_accuracy: float = scalar("Clean accuracy", default=float("nan"))
    clean_nll: float = scalar("Clean nll", default=float("nan"))

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        worst = int(np.lexsort((self.epsilon, self.accuracy))[0])  # by the smallest change
        size = f"{self.epsilon[worst]:.3g}"
        if self.norm[worst] == "linf":
            size = f"{255 * self.epsilon[worst]:.3g}/255"
        return [
            f"{self.accuracy[worst]:.1%} of the images are right under {self.attack[worst]} "
            f"with {self.norm[worst]} {size}, {self.clean_accuracy:.1%} without"
        ]


def adversarial(
    model: nn.Module,
    batches: Iterable[Batch],
    attacks: Sequence[Attack],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> Adversarial:
    """Accuracy and NLL under each attack, on the same images.

    Attacks know the model and the targets. A low accuracy is a bound from above of what the
    best attack would leave; a high one under few steps proves nothing.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        attacks: one or several.
        mean: by which the images were standardised, of each channel.
        std: the same.
        seed: of random starts and signs.
        compute: device and precision.
        progress: wraps the batches to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if there is no attack; the images have no labels or other channels, or are
            not in 0 ... 1 when the standardisation is undone; or the model is in training mode.

    Source: see `visprism.measure.outputs.attacks`.
    """
    if not attacks:
        raise InputError("there is no attack; give at least one, as Attack('fgsm')")
    space = PixelSpace(mean, std)

    def changed(which: int, pixels: Tensor, targets: Tensor, numbers: range) -> Tensor:
        with compute.autocast():
            return attacked(
                model, pixels, targets, attacks[which], space, seed=seed, numbers=numbers
            )

    sums, facts = evaluate_perturbed(
        model,
        batches,
        space,
        len(attacks),
        changed,
        compute=compute,
        progress=progress,
        provenance=provenance,
    )
    many = [a.name == "pgd" for a in attacks]
    columns = sums.columns()
    right = (columns["accuracy"] * sums.images).round().astype(np.int64)
    low, high = wilson(right, np.full(len(right), sums.images))
    return Adversarial(
        attack=np.array([a.name for a in attacks]),
        norm=np.array([a.norm for a in attacks]),
        epsilon=np.array([a.epsilon for a in attacks]),
        frequency=np.array([np.nan if a.frequency is None else a.frequency for a in attacks]),
        steps=np.array([a.steps if m else 1 for a, m in zip(attacks, many, strict=True)]),
        restarts=np.array([a.restarts if m else 1 for a, m in zip(attacks, many, strict=True)]),
        **columns,
        low=low,
        high=high,
        clean_accuracy=sums.accuracy,
        clean_nll=sums.nll,
        provenance=replace(facts, seed=seed),
    )
