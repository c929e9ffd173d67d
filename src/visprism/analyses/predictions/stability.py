"""Stability: whether predictions stay the same along sequences of slightly changed images.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations, sec. 4.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from torch import Tensor, nn

from visprism import kit
from visprism.analyses.predictions.corruptions import not_corruptible, seconds_to_corrupt
from visprism.drawing import style
from visprism.estimates.estimated import stacked, within_one
from visprism.estimates.text import titled
from visprism.images.corruptions.sequences import PERTURBATIONS, SequenceBatches
from visprism.passes.outcomes import outcomes
from visprism.passes.predict import predict

Perturbation = Literal[
    "gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "brightness",
    "translate", "rotate", "tilt", "scale",
]  # fmt: skip
_FRAMES = 31  # of nearly all sequences


@kit.result("stability", "Flip rate along perturbation sequences")
class FlipRates(kit.Result):
    """How often the predicted class changes along sequences; one row per perturbation.

    Each point is a perturbation: the fraction of frames whose predicted class differs from
    the previous frame's, or for noise from the first frame's.
    """

    perturbation: kit.Texts = kit.column("Perturbation", "", "name of the perturbation")
    frames: np.ndarray = kit.column("Frames", "", "frames of a sequence")
    flip_rate: kit.Estimated = kit.estimate(
        "Flip rate", "%", "fraction of frames with another class than their reference frame"
    )
    mean_flip_rate: kit.Number = kit.estimate(
        "mean flip rate",
        "%",
        "over perturbations",
        asks="Are predictions stable along perturbation sequences?",
    )


@kit.analysis
class Stability(kit.Analysis):
    """Flip rate of predictions along sequences of slightly changed images."""

    name = "stability"
    group = "robustness"
    images = kit.Sizes(fewest=16, quick=64, standard=512)
    needs = kit.Needs.TARGETS | kit.Needs.PIXELS | kit.Needs.OUTPUTS
    source = "Hendrycks & Dietterich (2019), sec. 3.2 and 4.2"
    default = False
    gives = FlipRates

    perturbations: tuple[Perturbation, ...] = kit.option(
        PERTURBATIONS, "names of the perturbations", quick=PERTURBATIONS[::2]
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Predict every frame of the sequences."""
        way = subject.known_preprocessing
        sequences: dict[str, SequenceBatches] = {
            name: SequenceBatches(
                lambda: subject.pixel_batches(1), name, way.mean, way.std, run.seed
            )
            for name in self.perturbations
        }
        return (stability(subject.model, sequences, run=run),)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One pass per frame, and the time to make the frames."""
        frames = _FRAMES * len(self.perturbations)
        return kit.Cost(
            per_image=frames, seconds_per_image=frames * seconds_to_corrupt(subject)
        )

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Also where images are not RGB, or too small."""
        return super().inapplicable(subject) or not_corruptible(subject)


Frames = Tensor  # (images, frames, C, H, W)


def stability(
    model: nn.Module,
    sequences: Mapping[str, Iterable[Frames]],
    *,
    run: kit.Run = kit.DEFAULT_RUN,
) -> FlipRates:
    """Flip rate for each perturbation.

    The flip rate is the fraction of frames with another prediction than their reference frame:
    the frame before, or the first one in perturbations whose name contains "noise", where each
    frame has new noise and the first is clean. Intervals are over images. Without any flip
    among n images the upper end is 1 - 0.025^(1/n), Clopper and Pearson's for a fraction.

    Args:
        model: in evaluation mode.
        sequences: for each perturbation batches of frames (images, frames, C, H, W).
        run: device, precision and progress.

    Source: Hendrycks and Dietterich (2019), eq. 2.
    """
    if not sequences:
        raise kit.InputError("sequences must hold at least one perturbation, got none")
    silent = replace(run, progress=None)
    rows: list[tuple[int, kit.Number]] = []  # frames and flip rate
    for name in run.track(list(sequences), "perturbations"):
        sizes: set[int] = set()
        predictions = predict(model, _flat(sequences[name], sizes), run=silent)
        if len(sizes) > 1:
            raise kit.InputError(
                f"sequences must have one number of frames, got {sorted(sizes)}"
            )
        classes = outcomes(predictions).predicted.reshape(-1, sizes.pop())
        reference = classes[:, :1] if "noise" in name else classes[:, :-1]
        flips = kit.mean((classes[:, 1:] != reference).mean(1), within_one)
        rows.append((classes.shape[1], flips))
    frames, rates = zip(*rows, strict=True)
    every = np.mean([rate.by_unit for rate in rates], axis=0)
    return FlipRates(
        perturbation=np.array(list(sequences)),
        frames=np.array(frames),
        flip_rate=stacked(rates),
        mean_flip_rate=kit.mean(every, within_one),
        provenance=replace(predictions.provenance, images=len(every)),
    )


def _flat(batches: Iterable[Frames], sizes: set[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Frames as images, with targets that do not matter; adds their numbers to `sizes`."""
    for frames in batches:
        if frames.ndim != 5 or frames.shape[1] < 2:
            raise kit.InputError(
                "sequences must be frames (images, frames, C, H, W), at least two of each "
                f"image, got {tuple(frames.shape)}"
            )
        sizes.add(frames.shape[1])
        images = frames.flatten(0, 1)
        yield images, torch.zeros(len(images), dtype=torch.long)


@kit.figure(width=2.7, height=2.3, share=False)
def _(result: FlipRates, ax: Axes) -> Axes:
    """Flip rate of each perturbation with its 95% interval."""
    names, rates = list(map(titled, result.perturbation.tolist())), result.flip_rate
    about = [f"{n} · {r:.2%} of frames" for n, r in zip(names, rates.tolist(), strict=True)]
    style.named_points(ax, names, rates, about, [style.KIND_COLORS["conv"]] * len(names))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlim=(0, None), xlabel=result.infos()["flip_rate"].heading)
    return ax
