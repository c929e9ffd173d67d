"""Perturbations: accuracy under noise of frequency bands and waves, and under attacks."""


import numpy as np

from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.chance import chance_findings
from visprism.estimates.findings import Finding
from visprism.estimates.text import (
    images_text,
    interval_text,
    selection_text,
)
from visprism.table.result import Result, column, result_type, scalar

BAND_WIDTH = 0.1  # π rad/pixel
SPLIT_FREQUENCY = 0.5  # π rad/pixel; bands above it are "high", those below "low"
MEAN_DROP = "accuracy drop, mean over frequency bands"
HIGH_DROP = f"accuracy drop, mean over bands above {SPLIT_FREQUENCY:g} π rad/pixel"
LOW_DROP = f"accuracy drop, mean over bands below {SPLIT_FREQUENCY:g} π rad/pixel"
HIGH_ACCURACY = f"accuracy, mean over bands above {SPLIT_FREQUENCY:g} π rad/pixel"
LOW_ACCURACY = f"accuracy, mean over bands below {SPLIT_FREQUENCY:g} π rad/pixel"

# Claim C7: what most blocks of the model are, from the lowest value. Accuracy counts beside its
# drop, since a model with a higher accuracy without noise can lose more.
_CLAIMED = {
    HIGH_DROP: ("attention", "conv"),
    HIGH_ACCURACY: ("conv", "attention"),
    LOW_DROP: ("conv", "attention"),
    LOW_ACCURACY: ("attention", "conv"),
}
WORST_CASE = "worst case"  # correct without attack and under every attack of the same size


@result_type("adversarial")
class Adversarial(Result):
    """Robust accuracy: images that are classified correctly without and under an attack.

    One row for each attack, and one for the worst case over all attacks of one size: images
    that are classified correctly under every one of them.
    """

    attack: np.ndarray = column(
        "Attack", "", "'random', 'fgsm', 'pgd', 'apgd', 'apgd-t' or 'worst case'"
    )
    loss: np.ndarray = column(
        "Loss", "", "'cross-entropy', 'margin' or 'dlr'; '' without a gradient"
    )
    norm: np.ndarray = column("Norm", "", "'linf' or 'l2'")
    epsilon: np.ndarray = column(
        "Largest perturbation", "", "norm of the perturbation, in pixels of 0 ... 1"
    )
    frequency: np.ndarray = column(
        "Frequency band", "π rad/pixel", "center of the band; NaN for all frequencies"
    )
    steps: np.ndarray = column("Steps", "", "gradient steps of each start")
    restarts: np.ndarray = column("Restarts", "", "number of random starts")
    accuracy: np.ndarray = column(
        "Robust accuracy", "", "fraction of images correct without and under the attack"
    )
    low: np.ndarray = column("Low", "", "lower end of the 95% Wilson interval")
    high: np.ndarray = column("High", "", "upper end of the 95% Wilson interval")
    drop: np.ndarray = column("Accuracy drop", "", "clean accuracy minus robust accuracy")
    drop_low: np.ndarray = column(
        "Accuracy drop, low", "", "lower end of the 95% interval over images, paired"
    )
    drop_high: np.ndarray = column(
        "Accuracy drop, high", "", "upper end of the 95% interval over images, paired"
    )
    nll: np.ndarray = column("NLL", "nats", "negative log-likelihood under the attack")
    nll_rise: np.ndarray = column("NLL rise", "nats", "NLL under the attack minus without")
    nll_rise_error: np.ndarray = column(
        "Standard error of the NLL rise", "nats", "over images, paired"
    )
    zero_gradient: np.ndarray = column(
        "Zero gradient",
        "",
        "fraction of correct images at which the gradient of the loss is 0 in every pixel",
    )
    clean_accuracy: float = scalar(
        "Clean accuracy", "", "accuracy without attack", default=float("nan")
    )
    clean_nll: float = scalar("Clean NLL", "nats", "NLL without attack", default=float("nan"))
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def findings(self) -> tuple[Finding, ...]:
        """Smallest robust accuracy of each norm, and vanishing gradients."""
        images = images_text(self.provenance.images, self.provenance.split)
        findings = []
        for norm in dict.fromkeys(self.norm.tolist()):
            rows = self.select(self.norm == norm)
            worst = int(np.lexsort((rows.attack != WORST_CASE, rows.epsilon, rows.accuracy))[0])
            values = (rows.accuracy[worst], rows.low[worst], rows.high[worst])
            several = len(rows) > 1 and bool(np.ptp(rows.accuracy))
            selected = f", smallest of {len(rows)} attacks" * several
            unadjusted = selection_text(len(rows)) * several
            attack = rows.attack[worst] + (f" ({rows.loss[worst]})" if rows.loss[worst] else "")
            findings.append(
                Finding(
                    f"robust accuracy {interval_text(*values, '.1%')} under {attack} with "
                    f"{_size(norm, rows.epsilon[worst])}{selected}, clean accuracy "
                    f"{self.clean_accuracy:.1%} ({images}){unadjusted}"
                )
            )
        if np.isin(self.attack, ["apgd", "apgd-t"]).any():
            findings.append(
                Finding(
                    "APGD is a part of AutoAttack: FAB and Square were not run, so AutoAttack "
                    "may leave a smaller robust accuracy"
                )
            )
        with_gradient = self.zero_gradient[np.isfinite(self.zero_gradient)]
        if with_gradient.size and (largest := with_gradient.max()) > 0:
            findings.append(
                Finding(
                    f"gradient of the loss is 0 in every pixel of {largest:.1%} of the correct "
                    "images: gradient attacks cannot change them, so robust accuracy is an "
                    "upper bound",
                    code="VP103",
                )
            )
        return (*findings, *_chance(self, self.clean_accuracy))

    def answers(self) -> tuple[Answer, ...]:
        """Robust accuracy of each size of perturbation, over the strongest attacks measured."""
        return tuple(
            Answer(
                question=questions.ADVERSARIAL.text,
                quantity=quantity,
                value=float(self.accuracy[row]),
                low=float(self.low[row]),
                high=float(self.high[row]),
                unit="%",
                over="images",
            )
            for quantity, row in self.strongest().items()
        )

    def strongest(self) -> dict[str, int]:
        """Row of the smallest robust accuracy for each size of perturbation, by quantity.

        Attacks that are confined to a band of frequencies are left out.
        """
        rows: dict[str, int] = {}
        for row in np.lexsort((self.attack != WORST_CASE, self.accuracy)).tolist():
            if not np.isfinite(self.frequency[row]):
                size = _size(self.norm[row], self.epsilon[row])
                rows.setdefault(f"robust accuracy, {size}", row)
        return dict(sorted(rows.items(), key=lambda item: item[1]))


def _chance(
    result: Adversarial, accuracy: float
) -> tuple[Finding, ...]:
    origin = result.provenance
    return chance_findings(accuracy, origin.images, result.classes, origin.split)


def _size(norm: str, epsilon: float) -> str:
    """The size of a perturbation: "L∞ norm 8/255"."""
    return f"L∞ norm {255 * epsilon:.3g}/255" if norm == "linf" else f"L2 norm {epsilon:.3g}"
