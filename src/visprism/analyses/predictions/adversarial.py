"""Robust accuracy under adversarial perturbations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs.adversarial import adversarial
from visprism.measure.outputs.perturbation_ball import Attack, attack_grid
from visprism.results.perturbations import Adversarial as RobustAccuracy
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Adversarial(Analysis):
    """Robust accuracy under random, FGSM, PGD and APGD perturbations."""

    name = "adversarial"
    group = "robustness"
    images = Sizes(fewest=16, quick=64, standard=512, work=2)
    rank = 3
    needs = Needs.TARGETS | Needs.PIXELS | Needs.OUTPUTS | Needs.GRADIENTS
    source = (
        "Goodfellow et al. (2015); Madry et al. (2018); Carlini & Wagner (2017); Croce & Hein "
        "(2020) for APGD"
    )
    sections = (
        Section(
            RobustAccuracy,
            "Adversarial robustness",
            "Fraction of images that are classified correctly without and under each attack, "
            "with its 95% interval. The worst case counts images that are correct under all "
            "attacks of one size; it is an upper bound of the true robust accuracy. apgd and "
            "apgd-t, where chosen, are two of the four attacks of AutoAttack, without FAB and "
            "Square.",
        ),
    )

    attacks: tuple[Literal["random", "fgsm", "pgd", "apgd", "apgd-t"], ...] = option(
        ("random", "fgsm", "pgd"),
        "attacks; apgd is Auto-PGD with the cross-entropy and the DLR loss, apgd-t is targeted "
        "with the DLR loss",
    )
    losses: tuple[Literal["cross-entropy", "margin", "dlr"], ...] = option(
        ("cross-entropy", "margin"), "losses that PGD maximizes"
    )
    epsilons: tuple[float, ...] = option(
        (1 / 255, 2 / 255, 4 / 255),
        "largest norm of the perturbation, for pixel values in [0, 1], such as 4/255; choose "
        "larger values for norm l2",
        above=0,
        quick=(1 / 255,),
    )
    norm: Literal["linf", "l2"] = option("linf", "norm of the perturbation")
    steps: int = option(
        10, "number of steps of PGD and APGD; AutoAttack takes 100", minimum=1, quick=5
    )
    restarts: int = option(1, "number of random starts of PGD and APGD", minimum=1)
    target_classes: int = option(
        9, "number of other classes that apgd-t aims at, the most likely ones", minimum=1
    )
    frequencies: tuple[float, ...] = option(
        (),
        "restrict perturbations to frequency bands with these centers, in π rad/pixel; none: "
        "no restriction",
        minimum=0,
        maximum=1.41,
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Attack the images."""
        return adversarial(
            subject.model,
            subject.output_batches(run),
            self._attacks(),
            mean=subject.known_preprocessing.mean,
            std=subject.known_preprocessing.std,
            clean=subject.predictions(run),
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """A forward and backward pass per gradient, two forward passes per attack."""
        gradients = sum(attack.gradients for attack in self._attacks())
        return Cost(per_image=1 + 3 * gradients + 3 * len(self._attacks()))

    def _attacks(self) -> list[Attack]:
        return attack_grid(
            self.attacks,
            self.epsilons,
            losses=self.losses,
            frequencies=self.frequencies,
            norm=self.norm,
            steps=self.steps,
            restarts=self.restarts,
            target_classes=self.target_classes,
        )

    def inapplicable(self, subject: Subject) -> str | None:
        """Where the model has too few classes for the DLR loss."""
        reason = super().inapplicable(subject)
        if reason is None:
            fewest = max((attack.min_classes for attack in self._attacks()), default=1)
            if subject.num_classes < fewest:
                return (
                    f"the DLR loss needs at least {fewest} classes, and the model has "
                    f"{subject.num_classes}"
                )
        return reason
