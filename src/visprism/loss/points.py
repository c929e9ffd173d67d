"""Losses of a model at points of its weight space, image by image, on the same samples."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.anatomy.trace.forward import Images, as_written, check_repeatable, forward, pixels
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.core.statistics import t_quantile
from visprism.estimates.estimated import Estimated
from visprism.loss.directions import Direction, norm, parameters_of
from visprism.loss.double_backward import BatchNorm, batch_statistics, clear_caches
from visprism.loss.objective import Loss, cross_entropy, loss_of, losses_of
from visprism.loss.planes import Plane
from visprism.passes.batches import first_images, on_device, with_targets

Tick = Callable[[], object]  # called before each batch: progress and deadline
Point = tuple[int, float, float]  # index of the plane, a, b
Terms = Iterable[tuple[float, Mapping[str, Tensor]]]  # coefficients of directions

TREATMENTS = ("frozen", "reestimated")  # of BatchNorm

# Images that BatchNorm's statistics are computed from at once, at most: their feature maps are
# in memory together, about 1 GiB of a ResNet-50 at 224x224.
_MOST_IMAGES, _MOST_PIXELS = 512, 2**23


@dataclass(frozen=True)
class Samples:
    """Images and targets on the device, in the batches and the order of the data."""

    batches: tuple[tuple[Images, Tensor], ...]

    def __len__(self) -> int:
        """Number of images."""
        return sum(len(targets) for _, targets in self.batches)

    @property
    def batch_size(self) -> int:
        """Number of images in the largest batch."""
        return max(len(targets) for _, targets in self.batches)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(pixels(self.batches[0][0]).shape[1:])

    def provenance(self, run: Run) -> Provenance:
        """The provenance of a result on these samples."""
        return run.measured(
            images=len(self), batch_size=self.batch_size, image_shape=self.image_shape
        )

    def for_statistics(self) -> list[Images]:
        """All images in as few equal parts as memory allows, however they come in batches."""
        height, width = self.image_shape[-2:]
        most = min(_MOST_IMAGES, max(16, _MOST_PIXELS // (height * width)))
        parts = -(-len(self) // most)
        images = [images for images, _ in self.batches]
        if isinstance(images[0], Mapping):
            names = images[0].keys()
            columns = [torch.cat([i[n] for i in images]).tensor_split(parts) for n in names]  # pyrefly: ignore
            return [dict(zip(names, rows, strict=True)) for rows in zip(*columns, strict=True)]
        return list(torch.cat(images).tensor_split(parts))  # pyrefly: ignore


def read_samples(batches: Iterable, compute: Compute) -> Samples:
    """Read batches of (images, targets) once.

    A loader that draws a new augmentation in each pass is read once, so that all points see the
    same samples. Targets are classes (B,) or probabilities (B, K). The images stay in memory.
    """
    parts = [with_targets(batch) for batch in batches]
    if not parts:
        raise InputError("batches must hold at least one image, got none")
    shapes = {tuple(pixels(images).shape[1:]) for images, _ in parts}
    if len(shapes) > 1:
        sizes = ", ".join(sorted("x".join(map(str, shape)) for shape in shapes))
        raise InputError(f"images must have one shape, got {sizes}. Resize them.")
    device = compute.torch_device
    return Samples(tuple((on_device(i, compute), targets.to(device)) for i, targets in parts))


@dataclass(frozen=True)
class PointLosses:
    """Loss and correctness of each image."""

    nll: Float[np.ndarray, " n"]
    correct: Float[np.ndarray, " n"]  # 1 where the class is correct, else 0
    classes: int


def over_images(values: Float[np.ndarray, "points n"]) -> Estimated:
    """Means over images with Student's intervals; infinite or NaN where a loss overflows."""
    n = values.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        average = values.mean(1)
        half = t_quantile(n) * values.std(1, ddof=1) / n**0.5 if n > 1 else np.nan
        return Estimated(average, average - half, average + half)


@dataclass(frozen=True)
class Evaluation:
    """The losses of a model on fixed samples, with one treatment of BatchNorm."""

    model: nn.Module
    samples: Samples
    loss: Loss
    batch_norm: BatchNorm
    run: Run

    @property
    def ticks_per_point(self) -> int:
        """Forward passes for each point."""
        return len(self.samples.batches) + (self.batch_norm == "reestimated")

    @torch.no_grad()
    def losses(self, tick: Tick) -> PointLosses:
        """The loss of each image at the present weights, and whether its class is correct.

        For targets that are probabilities, the most probable class counts as the correct one.
        """
        compute = self.run.compute
        if self.batch_norm == "reestimated":
            tick()
            reestimate(self.model, self.samples.for_statistics(), compute)
        outputs = []
        with compute.autocast():  # for this point only: it caches the weights that it has cast
            for images, _ in self.samples.batches:
                tick()
                outputs.append(forward(self.model, images))
        logits = torch.cat(outputs)
        if self.loss is cross_entropy:  # a difference of two losses may be tiny
            logits = logits.cpu().double()
        else:  # another loss may hold tensors, such as weights of classes
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        targets = torch.cat([targets for _, targets in self.samples.batches]).to(logits.device)
        if (loss := loss_of(self.loss, self.run)) is not self.loss:
            logits, task = logits.cpu().double(), self.run.task
            values = (f(logits, targets.cpu()).double() for f in (loss, task.outcome))
            nll, correct = (value.numpy() for value in values)
            return PointLosses(nll, correct, logits.shape[1])
        soft = targets.ndim == 2
        nll = losses_of(self.loss, logits, targets.to(logits) if soft else targets)
        correct = logits.argmax(1) == (targets.argmax(1) if soft else targets)
        nll, correct = nll.cpu().double(), correct.cpu().double()
        return PointLosses(nll.numpy(), correct.numpy(), logits.shape[1])

    def origin(self, tick: Tick) -> PointLosses:
        """The losses at the model's weights."""
        losses = self.losses(tick)
        if not np.isfinite(losses.nll).all():
            raise InputError(
                "the loss of the model's weights must be finite, got "
                f"{losses.nll.mean()}. Check the weights, the images and the precision."
            )
        return losses

    def points(
        self, planes: Sequence[Plane], points: Iterable[Point], tick: Tick
    ) -> list[PointLosses]:
        """The losses at each point; points of one plane should come in succession."""
        losses = []
        for pair, of_plane in groupby(points, key=itemgetter(0)):
            plane = planes[pair]
            with displaced_weights(self.model, plane.first, plane.second) as move:
                for _, a, b in of_plane:
                    move(a, b)
                    losses.append(self.losses(tick))
        still = all(np.array_equal(point.nll, losses[0].nll) for point in losses)
        if len(losses) > 2 and still and any(norm(plane.first) for plane in planes):
            raise InputError(
                "the loss must depend on the weights that move, and all points have the same "
                "losses: the model computes with copies of its weights. Unwrap or rebuild it."
            )
        return losses

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Inside, the model is on the device and may be changed; on exit it is restored."""
        with ExitStack() as stack:
            stack.enter_context(self.run.compute.borrow(self.model))
            stack.enter_context(as_written())
            stack.enter_context(preserved_statistics(self.model))
            check_repeatable(self.model, first_images(self.samples.batches[0][0]))
            yield


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """The layers that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@torch.no_grad()
def reestimate(model: nn.Module, parts: Sequence[Images], compute: Compute) -> None:
    """Overwrite the running statistics of every BatchNorm: they are then of all these images.

    In each part, every layer normalizes by the statistics of its input: the mean over images
    and positions, and the unbiased variance around it. Over parts, each image with weight 1,
    the variance is the total one: within parts and between their means. In one part, which
    holds 512 images or fewer large ones, nothing is approximate; of several, later layers see
    inputs that are normalized by their own part.

    Cost: one forward pass of all images, with the memory of the feature maps of one part.
    """
    norms = batch_norms(model)
    if not norms:
        return
    before = [(norm.momentum, norm.training) for norm in norms]
    images = [len(pixels(part)) for part in parts]
    try:
        statistics = []
        for part in parts:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # a cumulative average, of one part
                norm.training = True
            with compute.autocast(), batch_statistics():
                forward(model, part)
            statistics.append([torch.stack(_running(norm)) for norm in norms])
    finally:
        for norm, (momentum, training) in zip(norms, before, strict=True):
            norm.momentum, norm.training = momentum, training
    for norm, of_parts in zip(norms, zip(*statistics, strict=True), strict=True):
        weights = torch.tensor(images).to(of_parts[0]) / sum(images)
        means, variances = torch.stack(of_parts).unbind(1)
        running_mean, running_var = _running(norm)
        running_mean.copy_(weights @ means)
        running_var.copy_(weights @ (variances + (means - running_mean) ** 2))


def _running(norm: _BatchNorm) -> list[Tensor]:
    return [norm.get_buffer("running_mean"), norm.get_buffer("running_var")]


@contextmanager
def preserved_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, running statistics may be overwritten; on exit they are restored."""
    before = [
        (buffer, buffer.clone()) for norm in batch_norms(model) for buffer in norm.buffers()
    ]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


def loss_name(loss: Callable) -> str:
    """Name of a loss function, for the result."""
    return getattr(loss, "__name__", type(loss).__name__)


@contextmanager
def displaced_weights(
    model: nn.Module, first: Direction, second: Direction
) -> Iterator[Callable[[float, float], None]]:
    """Inside, ``move(a, b)`` gives the model the weights w + a first + b second.

    On exit it has its original tensors. Needs three times the memory of the parameters that
    move.
    """
    names = first.keys() | second.keys()
    parameters = {name: p for name, p in parameters_of(model).items() if name in names}
    d1, d2 = ({n: d[n].to(parameters[n]) for n in d} for d in (first, second))
    with displaced_tensors(model, parameters) as displace:
        yield lambda a, b: displace([(a, d1), (b, d2)])


@contextmanager
def displaced_tensors(
    model: nn.Module, tensors: Mapping[str, Tensor]
) -> Iterator[Callable[[Terms], None]]:
    """Inside, a call adds to each of the model's tensors t the sum of c d[t] over terms (c, d).

    The sum starts from the original tensors, which the model has again on exit.
    """
    original = {name: tensor.data for name, tensor in tensors.items()}

    def displace(terms: Terms) -> None:
        terms = list(terms)
        for name, tensor in tensors.items():
            tensor.data.copy_(original[name])
            for coefficient, direction in terms:
                if name in direction:
                    tensor.data.add_(direction[name], alpha=coefficient)
        clear_caches(model)

    try:
        for name, tensor in tensors.items():
            tensor.data = original[name].clone()
        yield displace
    finally:
        for name, tensor in tensors.items():
            tensor.data = original[name]
        clear_caches(model)
