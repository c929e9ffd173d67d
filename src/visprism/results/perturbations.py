"""Perturbations: accuracy under noise of frequency bands and waves, and under attacks."""

from math import nan

import numpy as np

from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.chance import at_chance, chance_findings
from visprism.estimates.findings import Finding
from visprism.estimates.text import (
    images_text,
    interval_text,
    missing_interval,
    points_text,
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


@result_type("frequency-robustness")
class FrequencyRobustness(Result):
    """Accuracy under noise confined to a band of frequencies; one row for each band.

    Drops are paired by image, with the interval of Bonett and Price.
    """

    frequency: np.ndarray = column("Frequency", "π rad/pixel", "center of the band")
    rms: np.ndarray = column(
        "RMS of the noise", "", "root mean square over all images, in pixels of 0 ... 1"
    )
    accuracy: np.ndarray = column("Accuracy", "", "accuracy on noisy images")
    drop: np.ndarray = column("Accuracy drop", "", "accuracy without noise minus with noise")
    drop_low: np.ndarray = column(
        "Accuracy drop, low", "", "lower end of the 95% interval over images"
    )
    drop_high: np.ndarray = column(
        "Accuracy drop, high", "", "upper end of the 95% interval over images"
    )
    nll: np.ndarray = column("NLL", "nats", "negative log-likelihood on noisy images")
    nll_rise: np.ndarray = column("NLL rise", "nats", "NLL with noise minus without noise")
    nll_rise_error: np.ndarray = column(
        "Standard error of the NLL rise", "nats", "over images, paired"
    )
    clean_accuracy: float = scalar(
        "Clean accuracy", "", "accuracy without noise", default=float("nan")
    )
    clean_nll: float = scalar("Clean NLL", "nats", "NLL without noise", default=float("nan"))
    contrast: float = scalar(
        "High minus low",
        "",
        "mean accuracy drop of bands above 0.5 π rad/pixel minus that of bands below",
        default=float("nan"),
    )
    contrast_low: float = scalar(
        "High minus low, low", "", "lower end of its 95% interval", default=float("nan")
    )
    contrast_high: float = scalar(
        "High minus low, high", "", "upper end of its 95% interval", default=float("nan")
    )
    mean_drop_low: float = scalar(
        "Mean drop, low", "", "lower end of its 95% interval over images", default=float("nan")
    )
    mean_drop_high: float = scalar(
        "Mean drop, high", "", "upper end of its 95% interval", default=float("nan")
    )
    high_drop_low: float = scalar(
        "Drop above 0.5 π rad/pixel, low", "", "lower end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    high_drop_high: float = scalar(
        "Drop above 0.5 π rad/pixel, high", "", "upper end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    low_drop_low: float = scalar(
        "Drop below 0.5 π rad/pixel, low", "", "lower end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    low_drop_high: float = scalar(
        "Drop below 0.5 π rad/pixel, high", "", "upper end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    high_accuracy_low: float = scalar(
        "Accuracy above 0.5 π rad/pixel, low", "", "lower end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    high_accuracy_high: float = scalar(
        "Accuracy above 0.5 π rad/pixel, high", "", "upper end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    low_accuracy_low: float = scalar(
        "Accuracy below 0.5 π rad/pixel, low", "", "lower end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    low_accuracy_high: float = scalar(
        "Accuracy below 0.5 π rad/pixel, high", "", "upper end of its 95% interval",
        default=float("nan"),
    )  # fmt: skip
    width: float = scalar("Band width", "π rad/pixel", "of each band", default=BAND_WIDTH)
    band_shape: str = scalar(
        "Band shape", "", "shape of the bands in the frequency plane", default="square"
    )
    left_out: str = scalar(
        "Empty bands", "", "bands without any frequency of images this small", default=""
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)
    mixing: str = scalar(
        "Mixing",
        "",
        "'attention' or 'conv', whichever most blocks of the model are; '' for neither",
        default="",
    )

    def findings(self) -> tuple[Finding, ...]:
        """Largest drop over bands, named as a maximum, and high against low frequencies."""
        images = images_text(self.provenance.images, self.provenance.split)
        worst = int(self.drop.argmax())
        significant = int((self.drop_low > 0).sum())
        same = np.allclose(self.rms, self.rms[0], rtol=0.01)
        noise = f"noise of RMS {self.rms[0]:.3g} in each band" if same else "the paper's noise"
        tests = "" if len(self) == 1 else ", not adjusted for multiple comparisons"
        text = (
            f"{noise}: accuracy drops significantly from {self.clean_accuracy:.1%} in "
            f"{significant} of {len(self)} bands ({images}{tests})"
        )
        if significant:
            drop = points_text(self.drop[worst], self.drop_low[worst], self.drop_high[worst])
            text += (
                f"; largest drop of {len(self)} at {self.frequency[worst]:.3g} π rad/pixel, "
                f"{drop}{selection_text(len(self))}"
            )
        findings = [Finding(text)]
        if np.isfinite(self.contrast):
            significance = (
                ", not significant" if self.contrast_low <= 0 <= self.contrast_high else ""
            )
            findings.append(
                Finding(
                    f"mean accuracy drop of bands above {SPLIT_FREQUENCY:g} π rad/pixel minus "
                    f"bands below: "
                    f"{points_text(self.contrast, self.contrast_low, self.contrast_high)}"
                    f"{missing_interval(self.contrast_low, self.provenance.images)}"
                    f"{significance}, over {images}"
                )
            )
        return (*findings, *_chance(self, self.clean_accuracy))

    def answers(self) -> tuple[Answer, ...]:
        """Mean drops over all bands, and drops and accuracies of high and low frequencies.

        Models are compared by them: claim C7 expects that noise of high frequency costs the
        attention model less accuracy, and noise of low frequency the convolutional model. The
        verdict is undecided unless drop and accuracy agree. The claim says nothing about a
        model whose accuracy is not significantly above chance.
        `FrequencyContrasts` has high against low frequencies within one model.
        """
        high, low = self.frequency > SPLIT_FREQUENCY, self.frequency < SPLIT_FREQUENCY
        every = np.ones(len(self), dtype=bool)
        values = (
            (questions.NOISE, MEAN_DROP, self.drop, every, "mean_drop"),
            (questions.HIGH_NOISE, HIGH_DROP, self.drop, high, "high_drop"),
            (questions.HIGH_NOISE, HIGH_ACCURACY, self.accuracy, high, "high_accuracy"),
            (questions.LOW_NOISE, LOW_DROP, self.drop, low, "low_drop"),
            (questions.LOW_NOISE, LOW_ACCURACY, self.accuracy, low, "low_accuracy"),
        )
        return tuple(
            Answer(
                question=question.text,
                quantity=quantity,
                value=float(of_bands[bands].mean()),
                low=getattr(self, f"{ends}_low"),
                high=getattr(self, f"{ends}_high"),
                unit="%" if of_bands is self.accuracy else POINTS,
                over="images",
                in_pixels=True,
                claim="C7" if quantity in _CLAIMED else "",
                place=self._place(quantity),
            )
            for question, quantity, of_bands, bands, ends in values
            if bands.any()
        )

    def _place(self, quantity: str) -> float:
        """Place of the model in the order that claim C7 expects; NaN if it has none."""
        order = _CLAIMED.get(quantity, ())
        guessing = at_chance(self.clean_accuracy, self.provenance.images, self.classes)
        return float(order.index(self.mixing)) if self.mixing in order and not guessing else nan


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


def _chance(result: FrequencyRobustness | Adversarial, accuracy: float) -> tuple[Finding, ...]:
    origin = result.provenance
    return chance_findings(accuracy, origin.images, result.classes, origin.split)


def _size(norm: str, epsilon: float) -> str:
    """The size of a perturbation: "L∞ norm 8/255"."""
    return f"L∞ norm {255 * epsilon:.3g}/255" if norm == "linf" else f"L2 norm {epsilon:.3g}"
