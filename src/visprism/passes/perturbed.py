"""The same images with and without each of several changes of their pixels or of the model.

Differences are taken image by image, so that the difficulty of an image cancels.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from visprism.anatomy.trace.forward import Images
from visprism.anatomy.trace.forward import pixels as pixels_of
from visprism.core.devices import in_float64
from visprism.core.errors import InputError
from visprism.core.preprocessing import unnormalized
from visprism.core.processes import add_up, share
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.core.tasks import Task
from visprism.passes.batches import (
    Batch,
    check_evaluation_mode,
    in_order,
    labeled,
    positioned,
)
from visprism.passes.forward_passes import inference
from visprism.passes.predictions import Predictions

Pixels = Float[Tensor, "b c h w"]
# Returns changed pixels, not clipped, from the number of the condition, the pixels, the targets
# and the indices of the images in the data.
Perturbation = Callable[[int, Pixels, Int64[Tensor, " b"], range], Pixels]


@dataclass(frozen=True)
class PixelSpace:
    """How pixels in 0 ... 1 were normalized: minus the mean, over the standard deviation."""

    mean: Sequence[float]  # by channel
    std: Sequence[float]

    def pixels(self, images: object) -> Float[Tensor, "b c h w"]:
        """The pixels of normalized images."""
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise InputError(
                "images must be one tensor (B, C, H, W), so that their pixels can be changed, "
                f"got {type(images).__name__}"
            )
        if not images.shape[1] == len(self.mean) == len(self.std):
            raise InputError(
                f"mean and std must have one value for each of {images.shape[1]} channels, got "
                f"{len(self.mean)} and {len(self.std)}"
            )
        return unnormalized(images, self.mean, self.std).to(images.dtype)

    def normalized(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Pixels as the model takes them."""
        return (pixels - self._of(self.mean, pixels)) / self._of(self.std, pixels)

    def in_pixels(self, difference: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """A difference of normalized images as a difference of pixels."""
        return difference * self._of(self.std, difference)

    def _of(self, values: Sequence[float], like: Tensor) -> Float[Tensor, "c 1 1"]:
        return torch.tensor(tuple(values), dtype=like.dtype, device=like.device)[:, None, None]


def random_numbers(
    draw: Callable[..., Tensor], size: Sequence[int], indices: Iterable[int], *use: object
) -> Tensor:
    """Random numbers of each image, only from its index and from the seed that `use` begins."""
    return torch.stack([draw(size, generator=stream(*use, index)) for index in indices])


@dataclass(frozen=True)
class Paired:
    """Correctness and NLL of each image without any change and under each condition."""

    correct: Float[np.ndarray, "n passes"]  # 1 or 0; the reference comes first
    losses: Float[np.ndarray, "n passes"]  # NLL in nats; the reference comes first
    classes: int  # of the model
    rms: Float[np.ndarray, " conditions"]  # root mean square of each change of the pixels

    @property
    def accuracy(self) -> float:
        """Accuracy of the reference."""
        return float(self.correct[:, 0].mean())

    @property
    def nll(self) -> float:
        """Mean NLL of the reference, in nats."""
        return float(self.losses.mean(0)[0])

    @property
    def drops(self) -> Float[np.ndarray, "n conditions"]:
        """Fall of correctness under each condition: 1 lost, -1 gained, 0 equal."""
        return self.correct[:, :1] - self.correct[:, 1:]

    @property
    def rises(self) -> Float[np.ndarray, "n conditions"]:
        """Rise of the NLL under each condition, in nats."""
        return self.losses[:, 1:] - self.losses[:, :1]


# The logits of a batch without any change and under each condition, each computed when asked
# for, from its images, targets and the indices of the images in the data.
Passes = Callable[[Images, Int64[Tensor, " b"], range], Iterator[Float[Tensor, "b k"]]]


def paired_outcomes(
    batches: Iterable[Batch], passes: Passes, conditions: int, *, label: str, run: Run
) -> tuple[Paired, Provenance]:
    """The outcomes of the same images in each pass, in the order of the data."""
    parts: list[tuple[np.ndarray, int, torch.Size]] = []  # of each batch
    shared = share(batches)
    with run.ticks(shared, 1 + conditions, label) as tick:
        for start, batch in positioned(shared):
            images, targets = labeled(batch, run.compute)
            logits = passes(images, targets, range(start, start + len(targets)))
            tick()
            # Checks both.
            reference = Predictions(next(logits), targets, task=run.task).logits.float()
            outcomes = [_outcome(run.task, reference, targets)]
            for _ in range(conditions):
                tick()
                outcomes.append(_outcome(run.task, next(logits), targets))
            rows = np.stack(outcomes, axis=1)
            parts.append((rows, reference.shape[1], pixels_of(images).shape[1:]))
    rows, (classes, *_), (shape, *_) = zip(*in_order(parts), strict=True)
    correct, losses = np.moveaxis(np.concatenate(rows), 2, 0)
    origin = run.measured(
        images=len(correct), batch_size=max(map(len, rows)), image_shape=shape
    )
    return Paired(correct, losses, classes, np.zeros(conditions)), origin


def _outcome(task: Task, outputs: Tensor, targets: Tensor) -> Float[np.ndarray, "b 2"]:
    """Outcome and loss of each image, as the task defines them."""
    outputs = outputs.float().cpu().double()
    parts = (f(outputs, targets).double() for f in (task.outcome, task.loss))
    return torch.stack(list(parts), dim=1).numpy()


def evaluate_perturbed(
    model: nn.Module,
    batches: Iterable[Batch],
    space: PixelSpace,
    conditions: int,
    perturb: Perturbation,
    *,
    clean: Predictions | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[Paired, Provenance]:
    """Correctness and NLL of each image without and with each change of its pixels."""
    check_evaluation_mode(model)
    run = run.on(model)
    clean = None if run.task.dense else clean  # maps are not kept
    power = torch.zeros(conditions, 2, dtype=torch.float64)  # sum of squares, and number
    with inference(model, run.compute) as predict:

        def passes(
            images: Images, targets: Int64[Tensor, " b"], indices: range
        ) -> Iterator[Float[Tensor, "b k"]]:
            pixels = space.pixels(images)
            if clean is None:
                yield predict(space.normalized(pixels)).float()
            else:
                yield _rows(clean, targets, indices)
            for condition in range(conditions):
                new = perturb(condition, pixels, targets.to(pixels.device), indices)
                change = in_float64(new - pixels)
                power[condition, 0] += change.square().sum().cpu()
                power[condition, 1] += change.numel()
                yield predict(space.normalized(new))

        paired, origin = paired_outcomes(
            batches, passes, conditions, label="perturbed images", run=run
        )
    total = add_up(power)
    return replace(paired, rms=(total[:, 0] / total[:, 1]).sqrt().numpy()), origin


def _rows(
    clean: Predictions, targets: Int64[Tensor, " b"], indices: range
) -> Float[Tensor, "b k"]:
    """The logits of a batch among all images' logits."""
    rows = slice(indices.start, indices.stop)
    same = (clean.targets[rows] == targets) | (targets != targets)  # NaN: an unknown label
    if not same.all():
        raise InputError(
            "clean must be predictions of the same images in the same order, got "
            f"{len(clean)} predictions whose targets differ, starting at image {indices.start}"
        )
    return clean.logits[rows]
