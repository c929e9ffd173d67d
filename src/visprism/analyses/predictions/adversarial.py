"""Robust accuracy: images that are classified correctly without and under an attack.

Images that are misclassified without attack count as misclassified under it. The worst case
counts images that are correct under all attacks of one size. Robust accuracy is an upper bound
of what the strongest possible attack would leave.

Source: see `visprism.analyses.predictions.attacks`; for the worst case Croce and Hein (2020),
Reliable evaluation of adversarial robustness with diverse parameter-free attacks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import nan
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter
from torch import Tensor, nn

from visprism import kit
from visprism.analyses.predictions.attacks import Attack, attack_images
from visprism.core.processes import add_up
from visprism.drawing import style
from visprism.estimates import estimated
from visprism.estimates.findings import chance_findings
from visprism.passes.batches import Batch
from visprism.passes.perturbed import PixelSpace, evaluate_perturbed
from visprism.passes.predictions import Predictions

WORST_CASE = "worst case"  # correct without attack and under every attack of the same size
# The losses of each attack; the user chooses the losses of "pgd".
_LOSSES: dict[str, tuple[Literal["cross-entropy", "dlr"], ...]] = {
    "apgd": ("cross-entropy", "dlr"),
    "apgd-t": ("dlr",),
}


@kit.result("adversarial", "Adversarial robustness")
class RobustAccuracy(kit.Result):
    """Robust accuracy; a row for each attack, and for the worst case at each size.

    Fraction of images that are classified correctly without and under each attack, with its
    95% interval. The worst case counts images that are correct under all attacks of one
    size; it is an upper bound of the true robust accuracy. apgd and apgd-t, if chosen, are
    two of AutoAttack's four attacks; FAB and Square are not run.
    """

    row_names: ClassVar[tuple[str, ...]] = ("size",)

    attack: kit.Texts = kit.column(
        "Attack", "", "'random', 'fgsm', 'pgd', 'apgd', 'apgd-t' or 'worst case'"
    )
    loss: kit.Texts = kit.column(
        "Loss", "", "'cross-entropy', 'margin' or 'dlr'; '' without a gradient"
    )
    norm: kit.Texts = kit.column("Norm", "", "'linf' or 'l2'")
    epsilon: np.ndarray = kit.column(
        "Largest perturbation", "", "norm of the perturbation, in pixels of 0 ... 1"
    )
    accuracy: kit.Estimated = kit.estimate(
        "Robust accuracy",
        "%",
        "fraction of images correct without and under the attack",
        asks="How robust is the model to adversarial perturbations?",
        better="higher",
    )
    drop: kit.Estimated = kit.estimate(
        "Accuracy drop", kit.POINTS, "clean accuracy minus robust accuracy, paired"
    )
    zero_gradient: np.ndarray = kit.column(
        "Zero gradient",
        "",
        "fraction of correct images at which the gradient of the loss is 0 in every pixel",
    )
    clean_accuracy: float = kit.scalar(
        "Clean accuracy", "", "accuracy without attack", default=nan
    )
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)

    @property
    def size(self) -> list[str]:
        """The size of each perturbation: "L∞ norm 8/255"."""
        return [
            f"L∞ norm {255 * epsilon:.3g}/255" if norm == "linf" else f"L2 norm {epsilon:.3g}"
            for norm, epsilon in zip(self.norm.tolist(), self.epsilon.tolist(), strict=True)
        ]

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Smallest robust accuracy of each size, and vanishing gradients."""
        yield from super().sentences()
        if np.isin(self.attack, ["apgd", "apgd-t"]).any():
            yield (
                "APGD is a part of AutoAttack: FAB and Square were not run, so AutoAttack "
                "may leave a smaller robust accuracy"
            )
        if (largest := np.nan_to_num(self.zero_gradient).max(initial=0)) > 0:
            yield kit.Finding(
                f"gradient of the loss is 0 in every pixel of {largest:.1%} of the correct "
                "images: gradient attacks cannot change them, so robust accuracy is an "
                "upper bound",
                code="VP103",
            )
        yield from chance_findings(self.clean_accuracy, self.provenance, self.classes)

    def answered(self, name: str) -> np.ndarray:
        """The smallest robust accuracy for each size."""
        rows: dict[str, int] = {}
        for row in np.lexsort((self.attack != WORST_CASE, np.asarray(self.accuracy))).tolist():
            rows.setdefault(self.size[row], row)
        return np.array(sorted(rows.values()), dtype=int)


@kit.analysis
class Adversarial(kit.Analysis):
    """Robust accuracy under random, FGSM, PGD and APGD perturbations."""

    name = "adversarial"
    group = "robustness"
    images = kit.Sizes(fewest=16, quick=64, standard=512, work=2)
    rank = 3
    needs = kit.Needs.TARGETS | kit.Needs.PIXELS | kit.Needs.OUTPUTS | kit.Needs.GRADIENTS
    source = (
        "Goodfellow et al. (2015); Madry et al. (2018); Carlini & Wagner (2017); Croce & Hein "
        "(2020) for APGD"
    )
    gives = RobustAccuracy

    attacks: tuple[Literal["random", "fgsm", "pgd", "apgd", "apgd-t"], ...] = kit.option(
        ("random", "fgsm", "pgd"),
        "attacks; apgd is Auto-PGD with the cross-entropy and the DLR loss, apgd-t is targeted "
        "with the DLR loss",
    )
    losses: tuple[Literal["cross-entropy", "margin", "dlr"], ...] = kit.option(
        ("cross-entropy", "margin"), "losses that PGD maximizes"
    )
    epsilons: tuple[float, ...] = kit.option(
        (1 / 255, 2 / 255, 4 / 255),
        "largest norm of the perturbation, for pixel values in [0, 1], such as 4/255; choose "
        "larger values for norm l2",
        above=0,
        quick=(1 / 255,),
    )
    norm: Literal["linf", "l2"] = kit.option("linf", "norm of the perturbation")
    steps: int = kit.option(
        10, "number of steps of PGD and APGD; AutoAttack takes 100", minimum=1, quick=5
    )
    restarts: int = kit.option(1, "number of random starts of PGD and APGD", minimum=1)
    target_classes: int = kit.option(
        9, "number of other classes that apgd-t aims at, the most likely ones", minimum=1
    )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """What belongs to some of the attacks."""
        iterative = {"pgd", "apgd", "apgd-t"} & set(self.attacks), "attack pgd, apgd or apgd-t"
        return {
            "losses": ("pgd" in self.attacks, "attack pgd"),
            "steps": iterative,
            "restarts": iterative,
            "target_classes": ("apgd-t" in self.attacks, "attack apgd-t"),
        }

    def grid(self) -> list[Attack]:
        """Every attack at every size: PGD with each of `losses`, the others with their own."""
        return [
            Attack(
                name,
                epsilon,
                self.norm,
                loss,
                steps=self.steps,
                restarts=self.restarts,
                target_classes=self.target_classes,
            )
            for name in self.attacks
            for loss, epsilon in product(
                self.losses if name == "pgd" else _LOSSES.get(name, ("cross-entropy",)),
                self.epsilons,
            )
        ]

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Attack the images."""
        way = subject.known_preprocessing
        return (
            adversarial(
                subject.model,
                subject.output_batches(run),
                self.grid(),
                mean=way.mean,
                std=way.std,
                clean=subject.predictions(run),
                run=run,
            ),
        )

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """A forward and backward pass per gradient, two forward passes per attack."""
        attacks = self.grid()
        return kit.Cost(per_image=1 + 3 * sum(a.gradients for a in attacks) + 3 * len(attacks))

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Where the model has too few classes for the DLR loss."""
        reason = super().inapplicable(subject)
        fewest = max((attack.min_classes for attack in self.grid()), default=1)
        if reason is None and subject.num_classes < fewest:
            return (
                f"the DLR loss needs at least {fewest} classes, and the model has "
                f"{subject.num_classes}"
            )
        return reason


def adversarial(
    model: nn.Module,
    batches: Iterable[Batch],
    attacks: Sequence[Attack],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    clean: Predictions | None = None,
    run: kit.Run = kit.DEFAULT_RUN,
) -> RobustAccuracy:
    """Robust accuracy under given attacks; `Adversarial` makes a grid of them.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        attacks: one or several.
        mean: of the normalization, by channel.
        std: of the normalization, by channel.
        clean: predictions of the same images, where they exist already.
        run: device, precision, seed of random starts and signs, and progress.
    """
    if not attacks:
        raise kit.InputError("attacks must hold at least one, got none. Pass Attack('fgsm').")
    space = PixelSpace(mean, std)
    # Correct images with a zero gradient, and correct images, by attack.
    flat = torch.zeros(len(attacks), 2, dtype=torch.float64)

    def perturb(condition: int, pixels: Tensor, targets: Tensor, indices: range) -> Tensor:
        with run.compute.autocast():
            attacked = attack_images(
                model, pixels, targets, attacks[condition], space, seed=run.seed,
                indices=indices,
            )  # fmt: skip
        counts = [attacked.zero_gradient.sum(), attacked.correct.sum()]
        flat[condition] += torch.stack(counts).cpu().double()
        return attacked.pixels

    outcomes, origin = evaluate_perturbed(
        model, batches, space, len(attacks), perturb, clean=clean, run=run
    )
    zero, attacked = add_up(flat).numpy().T
    rows = [(str(a.name), [i]) for i, a in enumerate(attacks)]  # with the attacks behind
    sizes = [(a.norm, a.epsilon) for a in attacks]
    for size in dict.fromkeys(sizes):
        if sizes.count(size) > 1:
            rows.append((WORST_CASE, [i for i, other in enumerate(sizes) if other == size]))
    every, alone = [(attacks[m[0]], m[0]) for _, m in rows], len(attacks)
    # At worst over the attacks behind a row; an image that is misclassified without stays so.
    correct = np.stack(
        [outcomes.correct[:, [0, *(1 + i for i in m)]].min(1) for _, m in rows], axis=1
    )

    def single(value: Callable[[Attack, int], Any], worst_case: Any) -> np.ndarray:
        values = [value(*pair) for pair in every[:alone]]
        return np.array(values + [worst_case] * (len(rows) - alone))

    return RobustAccuracy(
        attack=np.array([name for name, _ in rows]),
        loss=single(lambda a, _: a.loss if a.gradients else "", ""),
        norm=np.array([a.norm for a, _ in every]),
        epsilon=np.array([a.epsilon for a, _ in every]),
        accuracy=estimated.mean(correct, estimated.proportion),
        drop=estimated.mean(outcomes.correct[:, :1] - correct, estimated.paired_proportion),
        zero_gradient=single(
            lambda a, i: zero[i] / max(1, attacked[i]) if a.gradients else nan, nan
        ),
        clean_accuracy=outcomes.accuracy,
        classes=outcomes.classes,
        provenance=origin,
    )


# Colors of Okabe and Ito, and a marker each for prints in gray.
_STYLES = {
    "random": ("#56B4E9", "s"),
    "fgsm": ("#E69F00", "^"),
    "pgd": ("#D55E00", "o"),
    "apgd": ("#0072B2", "v"),
    "apgd-t": ("#CC79A7", "P"),
    WORST_CASE: ("#000000", "D"),
}
_NAMES = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "apgd": "APGD",
    "apgd-t": "targeted APGD",
    "linf": "L∞",
    "l2": "L2",
}
_LABELED = {"margin": " (margin)", "dlr": " (DLR)"}  # the cross-entropy is not named


@kit.figure(width=2.7, height=2.2, share=False)
def _(result: RobustAccuracy, ax: Axes) -> Axes:
    """Robust accuracy with its 95% interval against the size of the perturbation.

    The dashed line is the clean accuracy. Attacks of one size are drawn below each other.
    """
    rows, place = result, result.epsilon
    if len(np.unique(place)) == 1:
        return _by_attack(ax, rows)
    ax.axhline(rows.clean_accuracy, color=style.FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    for attack, loss, norm in dict.fromkeys(
        zip(rows.attack.tolist(), rows.loss.tolist(), rows.norm.tolist(), strict=True)
    ):
        at = np.flatnonzero((rows.attack == attack) & (rows.loss == loss) & (rows.norm == norm))
        at = at[np.argsort(place[at], kind="stable")]
        color, marker = _STYLES.get(attack, (style.FAINT, "X"))
        name = _NAMES.get(attack, attack) + _LABELED.get(loss, "")
        accuracy = rows.accuracy[at]
        ax.errorbar(
            place[at],
            accuracy,
            yerr=[accuracy - accuracy.low, accuracy.high - accuracy],
            color=color,
            marker=marker,
            markersize=3.6,
            linewidth=1.0,
            elinewidth=0.8,
            linestyle="-" if norm == "linf" else "--",
            markerfacecolor="white" if loss in _LABELED else color,
            label=f"{name}, {_NAMES.get(norm, norm)}",
            gid=style.tip(f"{name} · {norm}"),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    largest = (rows.norm == "linf").all()
    if largest:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{255 * value:.3g}"))
        ax.set_xticks(np.unique(place))
    ax.set(ylim=(0, 1.02), ylabel=rows.infos()["accuracy"].heading)
    ax.set_xlabel(
        "L∞ norm of the perturbation (1/255)" if largest else "Norm of the perturbation"
    )
    style.legend(ax, fontsize=6, handlelength=1.8)
    return ax


def _by_attack(ax: Axes, rows: RobustAccuracy) -> Axes:
    """A point with its 95% interval for each attack, all of one size."""
    attacks = rows.attack.tolist()
    names = [
        _NAMES.get(attack, attack) + _LABELED.get(loss, "")
        for attack, loss in zip(attacks, rows.loss.tolist(), strict=True)
    ]
    about = [f"{n} · {v:.1%}" for n, v in zip(names, rows.accuracy.tolist(), strict=True)]
    colors, markers = zip(*(_STYLES[attack] for attack in attacks), strict=True)
    style.named_points(ax, names, rows.accuracy, about, colors, markers)
    ax.axvline(rows.clean_accuracy, color=style.FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    size = f"{255 * rows.epsilon[0]:.3g}/255" if rows.norm[0] == "linf" else rows.epsilon[0]
    label = f"{rows.infos()['accuracy'].heading}, {_NAMES[rows.norm[0]]} norm {size}"
    ax.set(xlim=(0, 1.02), xlabel=label)
    return ax
