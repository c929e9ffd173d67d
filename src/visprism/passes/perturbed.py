"""The same images with and without each of several changes of their pixels or of the model.

Differences are taken image by image, so that the difficulty of an image cancels.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from visprism.core.devices import in_float64
from visprism.core.errors import InputError
from visprism.core.processes import add_up, gather, share
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.passes.batches import Batch, check_evaluation_mode, labeled, positioned
from visprism.passes.forward_passes import inference
from visprism.passes.predictions import Predictions

Pixels = Float[Tensor, "b c h w"]
# Returns changed pixels, not clipped, from the number of the condition, the pixels, the targets
# and the indices of the images in the data.
Perturbation = Callable[[int, Pixels, Int64[Tensor, " b"], range], Pixels]
_SLACK = 1e-4  # rounding of normalized pixels


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
        pixels = images * self._of(self.std, images) + self._of(self.mean, images)
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= -_SLACK and high <= 1 + _SLACK):
            raise InputError(
                "pixels must be between 0 and 1 when the normalization is undone, got "
                f"{low:.3g} to {high:.3g}. Pass the mean and std that the images were "
                "normalized with."
            )
        return pixels.clamp(0, 1)

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


class Paired:
    """Correctness and NLL of each image without any change and under each condition.

    For each batch `reference` comes first, then `add` for each condition.
    """

    def __init__(self, conditions: int) -> None:
        self._conditions = conditions
        self._rows: list[np.ndarray] = []  # of each batch: index, and pairs (correct, NLL)
        self._targets = torch.empty(0, dtype=torch.long)
        self.classes = 0  # of the model; 0 without any image in this process
        self.rms = np.zeros(conditions)  # root mean square of each change of the pixels

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(len(rows) for rows in self._rows)

    @property
    def accuracy(self) -> float:
        """Accuracy of the reference."""
        return float(self._values()[:, 0, 0].mean())

    @property
    def nll(self) -> float:
        """Mean NLL of the reference, in nats."""
        return float(self.losses.mean(0)[0])

    @property
    def indices(self) -> Int64[np.ndarray, " n"]:
        """Index of each image in the data, in ascending order once `gathered`."""
        return np.concatenate(self._rows)[:, 0, 0].astype(np.int64)

    @property
    def correct(self) -> Float[np.ndarray, "n conditions"]:
        """1 where an image is classified correctly, 0 where not; the reference comes first."""
        return self._values()[:, :, 0]

    @property
    def losses(self) -> Float[np.ndarray, "n conditions"]:
        """NLL of each image in nats; the reference comes first."""
        return self._values()[:, :, 1]

    @property
    def drops(self) -> Float[np.ndarray, "n conditions"]:
        """Fall of correctness under each condition: 1 lost, -1 gained, 0 equal."""
        return self.correct[:, :1] - self.correct[:, 1:]

    @property
    def rises(self) -> Float[np.ndarray, "n conditions"]:
        """Rise of the NLL under each condition, in nats."""
        return self.losses[:, 1:] - self.losses[:, :1]

    def reference(
        self, logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"], start: int
    ) -> None:
        """Add the logits of a batch without any change."""
        self._targets, self.classes = targets, logits.shape[1]
        rows = np.full((len(targets), 2 + self._conditions, 2), np.nan)
        rows[:, 0, 0] = np.arange(start, start + len(targets))
        rows[:, 1] = _outcome(logits, targets)
        self._rows.append(rows)

    def add(self, condition: int, logits: Float[Tensor, "b k"]) -> None:
        """Add the logits of the same batch under a condition."""
        self._rows[-1][:, 2 + condition] = _outcome(logits, self._targets)

    def gathered(self) -> "Paired":
        """The same for the images of all processes, in the order of the data."""
        rows = [row for rows in gather(self._rows) for row in rows]
        if not rows:
            raise InputError("data must hold at least one image, got none")
        values = np.concatenate(rows)
        united = Paired(self._conditions)
        united.classes = max(gather(self.classes))
        united._rows = [values[np.argsort(values[:, 0, 0], kind="stable")]]
        return united

    def _values(self) -> Float[np.ndarray, "n conditions 2"]:
        return np.concatenate(self._rows)[:, 1:]


def _outcome(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]
) -> Float[np.ndarray, "b 2"]:
    """Whether each image is classified correctly, and its NLL."""
    logits = logits.double()
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return torch.stack([(logits.argmax(1) == targets).double(), loss], dim=1).numpy()


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
    paired = Paired(conditions)
    shape, largest = (), 0
    power = torch.zeros(conditions, 2, dtype=torch.float64)  # sum of squares, and number
    with ExitStack() as stack:
        predict = stack.enter_context(inference(model, run.compute))
        shared = share(batches)
        tick = stack.enter_context(run.ticks(shared, 1 + conditions, "perturbed images"))
        for start, batch in positioned(shared):
            tick()
            images, targets = labeled(batch, run.compute)
            pixels = space.pixels(images)
            shape, largest = tuple(pixels.shape[1:]), max(largest, len(targets))
            indices = range(start, start + len(targets))
            if clean is None:
                logits = predict(space.normalized(pixels)).float().cpu()
            else:
                logits = _rows(clean, targets, start)
            paired.reference(Predictions(logits, targets).logits, targets, start)
            for condition in range(conditions):
                tick()
                new = perturb(condition, pixels, targets.to(pixels.device), indices)
                change = in_float64(new - pixels)
                power[condition, 0] += change.square().sum().cpu()
                power[condition, 1] += change.numel()
                paired.add(condition, predict(space.normalized(new)).float().cpu())
    paired = paired.gathered()
    power = add_up(power)
    paired.rms = (power[:, 0] / power[:, 1]).sqrt().numpy()
    return paired, run.measured(images=paired.images, batch_size=largest, image_shape=shape)


def _rows(clean: Predictions, targets: Int64[Tensor, " b"], start: int) -> Float[Tensor, "b k"]:
    """The logits of a batch among all images' logits."""
    rows = slice(start, start + len(targets))
    if clean.logits.ndim != 2 or not torch.equal(clean.targets[rows], targets):
        raise InputError(
            "clean must be predictions of one pass over the same images in the same order, got "
            f"{len(clean)} predictions whose targets differ, starting at image {start}"
        )
    return clean.logits[rows]
