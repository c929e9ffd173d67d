"""Histories: what happened in training, epoch by epoch."""

import math

import numpy as np

from visprism.results.base import Result, column, result_type, scalar


@result_type("history")
class History(Result):
    """What happened in training; one row per epoch."""

    epoch: np.ndarray = column("Epoch", "", "1 for the first")
    step: np.ndarray = column("Step", "", "updates made by its end")
    seconds: np.ndarray = column(
        "Seconds", "", "of work since the beginning, evaluation included, breaks left out"
    )
    lr: np.ndarray = column("Lr", "", "of the epoch's last step")
    train_loss: np.ndarray = column(
        "Train loss", "", "mean over the epoch's images, as each was seen"
    )
    images_per_second: np.ndarray = column(
        "Images per second", "", "that were trained on, evaluation left out"
    )
    test_accuracy: np.ndarray = column(
        "Test accuracy", "", "fraction of the test images that are right; NaN: not evaluated"
    )
    test_nll: np.ndarray = column("Test nll", "", "in nats")
    test_ece: np.ndarray = column("Test ece", "", "expected calibration error")
    ema_accuracy: np.ndarray = column(
        "Ema accuracy", "", "of the moving average of the weights; NaN: none is kept"
    )
    ema_nll: np.ndarray = column("Ema nll")
    test_images: int = scalar("Test images", "", "of an evaluation", default=0)

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        last = f"after {self.epoch[-1]} epochs the training loss is {self.train_loss[-1]:.3g}"
        found = [f"{last}, at {self.images_per_second.mean():.0f} images/s"]
        if not self.evaluated:
            return [*found, "nothing was evaluated, as there were no other images to do it on"]
        seen = np.isfinite(self.test_accuracy)
        accuracy, best = self.test_accuracy[seen], np.nanargmax(self.test_accuracy)
        return [
            *found,
            f"{accuracy[-1]:.1%} of the test images are right{self._between()}, NLL "
            f"{self.test_nll[seen][-1]:.3g}, ECE {self.test_ece[seen][-1]:.1%}; at best "
            f"{self.test_accuracy[best]:.1%}, after epoch {self.epoch[best]}",
        ]

    @property
    def evaluated(self) -> bool:
        """Whether the model was evaluated after any epoch."""
        return bool(np.isfinite(self.test_accuracy).any())

    def _between(self) -> str:
        if not self.test_images:
            return ""
        accuracy = self.test_accuracy[np.isfinite(self.test_accuracy)][-1]
        low, high = wilson(accuracy, self.test_images)
        return f" (95 % interval {low:.1%} to {high:.1%}, by Wilson's formula)"


def wilson(part: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a probability, where a part p of n trials has come out so.

    With z = 1.96, (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n).

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    z = 1.959963984540054  # of the normal distribution, 95 % lie within
    middle = part + z**2 / (2 * count)
    reach = z * math.sqrt(part * (1 - part) / count + z**2 / (4 * count**2))
    whole = 1 + z**2 / count
    return max(0.0, (middle - reach) / whole), min(1.0, (middle + reach) / whole)
