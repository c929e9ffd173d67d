"""Stability: whether predictions stay the same while an image changes a little.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations, sec. 4.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.outputs.confidence_order import resampled
from visprism.measure.outputs.outcomes import outcomes
from visprism.measure.outputs.predict import Progress, predict
from visprism.results.base import Result, column, result_type, scalar

Frames = Tensor  # (images, frames, C, H, W)


@result_type("stability")
class Stability(Result):
    """How often the predicted class changes along sequences; one row for each perturbation."""

    perturbation: np.ndarray = column("Perturbation")
    frames: np.ndarray = column("Frames", "", "of a sequence")
    flip_rate: (
        np.ndarray
    )  # share of frames with another class than the frame they count against
    flip_low: np.ndarray = column("Flip low", "", "95 % bootstrap interval over images")
    flip_high: np.ndarray = column("Flip high")
    consistency: np.ndarray = column(
        "Consistency", "", "share of frames with the class of the frame before"
    )
    mean_flip_rate: float = scalar(
        "Mean flip rate", "", "over perturbations", default=float("nan")
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        worst = int(self.flip_rate.argmax())
        return [
            f"{self.mean_flip_rate:.2%} of the frames change the prediction; most of "
            f"{self.perturbation[worst]} ({self.flip_rate[worst]:.2%})"
        ]


def stability(
    model: nn.Module | Sequence[nn.Module],
    sequences: Mapping[str, Iterable[Frames]],
    *,
    resamples: int = 400,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> Stability:
    """Flip rate and consistency for each kind of perturbation.

    Frames count against the frame before. Where each frame has noise of its own, in
    perturbations whose name holds "noise", they count against the first, which is clean.

    Args:
        model: in evaluation mode; or several, an ensemble.
        sequences: for each perturbation batches of frames (images, frames, C, H, W).
        resamples: of the bootstrap.
        seed: of the bootstrap.
        compute: device and precision.
        progress: wraps the perturbations to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if there are no sequences, or they are no frames.

    Source: Hendrycks and Dietterich (2019), eq. 2.
    """
    if not sequences:
        raise InputError("there are no sequences; name a perturbation")
    columns: dict[str, list] = {k: [] for k in ("frames", "rate", "low", "high", "same")}
    facts = provenance or Provenance()
    for name in (progress or iter)(list(sequences)):
        number: list[int] = []
        predictions = predict(
            model, _flat(sequences[name], number), compute=compute, provenance=provenance
        )
        facts = replace(predictions.provenance, images=len(predictions) // number[0])
        classes = outcomes(predictions).predicted.reshape(-1, number[0])
        changes = classes[:, 1:] != (classes[:, :1] if "noise" in name else classes[:, :-1])
        low, high = _interval(changes, resamples, seed)
        same = (classes[:, 1:] == classes[:, :-1]).mean()
        for key, value in zip(
            columns, (number[0], changes.mean(), low, high, same), strict=True
        ):
            columns[key].append(value)
    return Stability(
        perturbation=np.array(list(sequences)),
        frames=np.array(columns["frames"]),
        flip_rate=np.array(columns["rate"]),
        flip_low=np.array(columns["low"]),
        flip_high=np.array(columns["high"]),
        consistency=np.array(columns["same"]),
        mean_flip_rate=float(np.mean(columns["rate"])),
        provenance=replace(facts, seed=seed),
    )


def _flat(batches: Iterable[Frames], number: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Frames as images, whose targets do not count; `number` is given that of the frames."""
    for frames in batches:
        if not isinstance(frames, Tensor) or frames.ndim != 5 or frames.shape[1] < 2:
            got = tuple(frames.shape) if isinstance(frames, Tensor) else type(frames).__name__
            raise InputError(
                f"sequences are frames (images, frames, C, H, W), at least two; got {got}"
            )
        if number and frames.shape[1] != number[0]:
            raise InputError(
                f"sequences of {frames.shape[1]} and of {number[0]} frames; wants one number"
            )
        number[:] = [frames.shape[1]]
        images = frames.flatten(0, 1)
        yield images, torch.zeros(len(images), dtype=torch.long)


def _interval(
    changes: Bool[np.ndarray, "n f"], resamples: int, seed: int
) -> tuple[float, float]:
    each = torch.from_numpy(changes.mean(1))
    drawn = [w @ each / len(each) for w in resampled(len(each), resamples, seed)]
    if not drawn:
        return float("nan"), float("nan")
    low, high = np.percentile(torch.cat(drawn).numpy(), [2.5, 97.5])
    return float(low), float(high)
