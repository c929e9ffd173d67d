"""Moving: a model's weights taken somewhere else for a while, and its losses there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import forward
from visprism.core.devices import Compute
from visprism.measure.loss.landscape.cached_batches import Samples
from visprism.measure.loss.landscape.directions import Direction, owned
from visprism.measure.loss.losses import Loss, losses_of

Move = Callable[[float, float], None]  # a, b

COLUMNS = ("nll", "nll_error", "rise", "rise_error", "accuracy", "accuracy_error")


@dataclass(frozen=True)
class Losses:
    """What a model makes of each image."""

    nll: Float[np.ndarray, " n"]
    right: Float[np.ndarray, " n"]  # 1 where the class is right, else 0
    classes: int

    def against(self, centre: "Losses") -> tuple[float, ...]:
        """Means over images, each followed by its standard error, in the order of `COLUMNS`."""
        values = []
        with np.errstate(invalid="ignore", over="ignore"):  # what overflows stays as it is
            for each in (self.nll, self.nll - centre.nll, self.right):
                spread = each.std(ddof=1) if len(each) > 1 else np.nan
                values += [float(each.mean()), float(spread / len(each) ** 0.5)]
        return tuple(values)


@contextmanager
def moving(model: nn.Module, first: Direction, second: Direction) -> Iterator[Move]:
    """Inside, ``move(a, b)`` gives the model the weights w + a first + b second.

    Afterwards it has its own tensors back, untouched. Needs the memory of the parameters that
    move three times over.
    """
    moved = first.keys() | second.keys()
    own = {name: parameter for name, parameter, _ in owned(model) if name in moved}
    kept = {name: parameter.data for name, parameter in own.items()}
    steps = [
        {name: d[name].to(kept[name]).to(memory_format=_format(kept[name])) for name in d}
        for d in (first, second)
    ]
    fresh = _forgetful(model)

    def move(a: float, b: float) -> None:
        for name, parameter in own.items():
            parameter.data.copy_(kept[name])
            for step, way in zip(steps, (a, b), strict=True):
                if name in step:
                    parameter.data.add_(step[name], alpha=way)
        fresh()

    try:
        for name, parameter in own.items():
            parameter.data = kept[name].clone()
        yield move
    finally:
        for name, parameter in own.items():
            parameter.data = kept[name]
        fresh()


def _format(tensor: Tensor) -> torch.memory_format:
    last = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _forgetful(model: nn.Module) -> Callable[[], None]:
    """What makes a model in evaluation mode forget what it has computed from its weights.

    LeViT, among others, keeps its attention biases until it is next put into training mode.
    """
    keeps = [m for m in model.modules() if type(m).train is not nn.Module.train]

    def forget() -> None:
        if keeps:
            model.train(), model.eval()

    return forget


@contextmanager
def channels_last(model: nn.Module, samples: Samples) -> Iterator[Samples]:
    """Inside, the kernels lie channels last, as convolutions like them; so do the samples.

    Where the model cannot work so, because it looks at a feature map as if it lay otherwise,
    everything stays as it is. Models without 4-D kernels have nothing to gain.
    """
    kernels = [p for _, p, _ in owned(model) if p.ndim == 4]
    kept = [kernel.data for kernel in kernels]
    try:
        for kernel in kernels:
            kernel.data = kernel.data.contiguous(memory_format=torch.channels_last)
        turned = _turned(samples) if kernels else samples
        yield turned if _runs(model, turned) else _back(samples, kernels, kept)
    finally:
        for kernel, data in zip(kernels, kept, strict=True):
            kernel.data = data


def _back(samples: Samples, kernels: list[nn.Parameter], kept: list[Tensor]) -> Samples:
    for kernel, data in zip(kernels, kept, strict=True):
        kernel.data = data
    return samples


def _turned(samples: Samples) -> Samples:
    def turn(tensor: Tensor) -> Tensor:
        last = torch.channels_last
        return tensor.contiguous(memory_format=last) if tensor.ndim == 4 else tensor

    return Samples(
        tuple(
            (
                {name: turn(t) for name, t in images.items()}
                if not isinstance(images, Tensor)
                else turn(images),
                targets,
            )
            for images, targets in samples.batches
        ),
        samples.shape,
    )


def _runs(model: nn.Module, samples: Samples) -> bool:
    try:
        with torch.no_grad():
            forward(model, samples.few())
    except RuntimeError:
        return False
    return True


@torch.no_grad()
def losses(model: nn.Module, samples: Samples, loss: Loss, compute: Compute) -> Losses:
    """The loss of each image, and whether its class is right.

    Of targets that are probabilities, the most probable class counts as the right one.
    """
    with compute.autocast():  # for this point alone: it keeps the weights that it has cast
        logits = torch.cat([forward(model, images) for images, _ in samples.batches])
    # Double precision where there is any: a difference of two losses may be tiny.
    logits = logits.float() if logits.device.type == "mps" else logits.double()
    targets = torch.cat([targets for _, targets in samples.batches])
    soft = targets.is_floating_point()
    nll = losses_of(loss, logits, targets.to(logits) if soft else targets)
    right = logits.argmax(1) == (targets.argmax(1) if soft else targets)
    return Losses(nll.double().cpu().numpy(), right.double().cpu().numpy(), logits.shape[1])
