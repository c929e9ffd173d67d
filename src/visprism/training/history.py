"""Histories: what happened in training, epoch by epoch."""

from dataclasses import dataclass

import numpy as np

from visprism.result import Result


@dataclass(frozen=True)
class History(Result):
    """What happened in training; one row per epoch."""

    epoch: np.ndarray  # 1 for the first
    step: np.ndarray  # updates made by its end
    seconds: np.ndarray  # of work since the beginning, evaluation included, breaks left out
    lr: np.ndarray  # of the epoch's last step
    train_loss: np.ndarray  # mean over the epoch's images, as each was seen
    images_per_second: np.ndarray  # that were trained on, evaluation left out
    test_accuracy: np.ndarray  # fraction of the test images that are right; NaN: not evaluated
    test_nll: np.ndarray  # in nats
    test_ece: np.ndarray  # expected calibration error
    ema_accuracy: np.ndarray  # of the moving average of the weights; NaN: none is kept
    ema_nll: np.ndarray

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        last = f"after {self.epoch[-1]} epochs the training loss is {self.train_loss[-1]:.3g}"
        found = [f"{last}, at {self.images_per_second.mean():.0f} images/s"]
        seen = np.isfinite(self.test_accuracy)
        if seen.any():
            accuracy, best = self.test_accuracy[seen], np.nanargmax(self.test_accuracy)
            found.append(
                f"{accuracy[-1]:.1%} of the test images are right, NLL "
                f"{self.test_nll[seen][-1]:.3g}, ECE {self.test_ece[seen][-1]:.1%}; at best "
                f"{self.test_accuracy[best]:.1%}, after epoch {self.epoch[best]}"
            )
        return found
