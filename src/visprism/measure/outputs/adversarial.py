"""Adversarial robustness: robust accuracy under attacks of several kinds and sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.processes import add_up
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import paired_proportions_interval, wilson
from visprism.measure.outputs.attacks import attack_images
from visprism.measure.outputs.perturbation_ball import Attack
from visprism.passes.batches import Batch
from visprism.passes.paired import Paired
from visprism.passes.perturbed_evaluation import evaluate_perturbed
from visprism.passes.pixel_space import PixelSpace
from visprism.passes.predictions import Predictions
from visprism.results.per_image import PerImage
from visprism.results.perturbations import WORST_CASE, Adversarial


def adversarial(
    model: nn.Module,
    batches: Iterable[Batch],
    attacks: Sequence[Attack],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    clean: Predictions | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[Adversarial, PerImage]:
    """Robust accuracy: images classified correctly without and under each attack.

    Images that are misclassified without attack count as misclassified under it. Where several
    attacks of one norm and size are given, a row for the worst case is added: images that are
    classified correctly under all of them. Robust accuracy is an upper bound of what the
    strongest possible attack would leave.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        attacks: one or several.
        mean: of the normalization, by channel.
        std: of the normalization, by channel.
        clean: predictions of the same images, where they exist already.
        run: device, precision, seed of random starts and signs, and progress.

    Returns:
        One row per attack, and per image whether it is classified correctly without and under
        each attack.

    Source: see `visprism.measure.outputs.attacks`; Croce and Hein (2020), Reliable evaluation
    of adversarial robustness with an ensemble of diverse parameter-free attacks, for the worst
    case over attacks.
    """
    if not attacks:
        raise InputError("attacks must hold at least one, got none. Pass Attack('fgsm').")
    space = PixelSpace(mean, std)
    # Correct images with a zero gradient, and correct images, by attack.
    flat = torch.zeros(len(attacks), 2, dtype=torch.float64)

    def perturb(condition: int, pixels: Tensor, targets: Tensor, indices: range) -> Tensor:
        attack = attacks[condition]
        with run.compute.autocast():
            attacked = attack_images(
                model, pixels, targets, attack, space, seed=run.seed, indices=indices
            )
        counts = [attacked.zero_gradient.sum(), attacked.correct.sum()]
        flat[condition] += torch.stack(counts).double().cpu()
        return attacked.pixels

    paired, provenance = evaluate_perturbed(
        model, batches, space, len(attacks), perturb, clean=clean, run=run
    )
    rows = [*_rows(attacks, paired, add_up(flat).numpy()), *_worst_cases(attacks, paired)]
    return _result(rows, paired, provenance)


@dataclass(frozen=True)
class _Row:
    """An attack, or the worst case over several, with its outcome for each image."""

    attack: Attack
    name: str
    loss: str
    steps: int
    restarts: int
    correct: Float[np.ndarray, " n"]  # without and under the attack
    losses: Float[np.ndarray, " n"]  # NLL
    zero_gradient: float


def _rows(
    attacks: Sequence[Attack], paired: Paired, flat: Float[np.ndarray, "attacks 2"]
) -> list[_Row]:
    clean = paired.correct[:, 0]
    return [
        _Row(
            attack=attack,
            name=attack.name,
            loss=attack.loss if attack.gradients else "",
            steps=attack.steps if attack.iterative else attack.gradients,
            restarts=attack.restarts if attack.iterative else 1,
            correct=clean * paired.correct[:, 1 + i],
            losses=paired.losses[:, 1 + i],
            zero_gradient=flat[i, 0] / max(1, flat[i, 1]) if attack.gradients else np.nan,
        )
        for i, attack in enumerate(attacks)
    ]


def _worst_cases(attacks: Sequence[Attack], paired: Paired) -> list[_Row]:
    """Images that are classified correctly under all attacks of one size."""
    sizes = [(a.norm, a.epsilon, a.frequency, a.band_shape) for a in attacks]
    rows = []
    for size in dict.fromkeys(sizes):
        members = [i for i, other in enumerate(sizes) if other == size]
        if len(members) > 1:
            columns = [0, *(1 + i for i in members)]
            rows.append(
                _Row(
                    attack=attacks[members[0]],
                    name=WORST_CASE,
                    loss="",
                    steps=0,
                    restarts=0,
                    correct=paired.correct[:, columns].min(1),
                    losses=paired.losses[:, columns].max(1),
                    zero_gradient=np.nan,
                )
            )
    return rows


def _result(
    rows: Sequence[_Row], paired: Paired, provenance: Provenance
) -> tuple[Adversarial, PerImage]:
    n = paired.images
    clean, clean_losses = paired.correct[:, 0], paired.losses[:, 0]
    correct = np.stack([row.correct for row in rows], axis=1)
    losses = np.stack([row.losses for row in rows], axis=1)
    low, high = wilson(correct.sum(0).round().astype(np.int64), np.full(len(rows), n))
    lost = (clean.sum() - correct.sum(0)).round().astype(int)
    drop_ends = np.array([paired_proportions_interval(int(k), 0, n) for k in lost])
    rises = losses - clean_losses[:, None]
    errors = rises.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(rows), np.nan)
    attacks = [row.attack for row in rows]
    result = Adversarial(
        attack=np.array([row.name for row in rows]),
        loss=np.array([row.loss for row in rows]),
        norm=np.array([a.norm for a in attacks]),
        epsilon=np.array([a.epsilon for a in attacks]),
        frequency=np.array([np.nan if a.frequency is None else a.frequency for a in attacks]),
        steps=np.array([row.steps for row in rows]),
        restarts=np.array([row.restarts for row in rows]),
        accuracy=correct.mean(0),
        low=low,
        high=high,
        drop=clean.mean() - correct.mean(0),
        drop_low=drop_ends[:, 0],
        drop_high=drop_ends[:, 1],
        nll=losses.mean(0),
        nll_rise=rises.mean(0),
        nll_rise_error=errors,
        zero_gradient=np.array([row.zero_gradient for row in rows]),
        clean_accuracy=float(clean.mean()),
        clean_nll=float(clean_losses.mean()),
        classes=paired.classes,
        provenance=provenance,
    )
    strongest = result.strongest()
    names = [*map(_name, rows), *strongest]
    columns = [*range(len(rows)), *strongest.values()]
    return result, PerImage(
        quantity=np.repeat(names, n),
        image=np.tile(paired.indices, len(names)),
        value=correct[:, columns].T.ravel(),
        provenance=provenance,
    )


def _name(row: _Row) -> str:
    """The quantity of an attack in `PerImage`."""
    a = row.attack
    size = f"{255 * a.epsilon:.3g}/255" if a.norm == "linf" else f"{a.epsilon:.3g}"
    parts = [f"robust accuracy, {row.name}", row.loss, f"{a.norm} {size}"]
    if row.name == a.name and a.iterative:
        parts.append(f"{row.steps} steps, {row.restarts} restarts")
    if a.frequency is not None:
        parts.append(f"{a.frequency:.3g} π rad/pixel")
    return ", ".join(filter(None, parts))
