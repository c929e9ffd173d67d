"""Training: from a recipe to weights, on images that lie in memory."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from visprism.errors import InputError
from visprism.parallel import Compute
from visprism.result import Result
from visprism.rng import stream
from visprism.training.optimizers import make_optimizers
from visprism.training.recipe import Recipe

Labelled = tuple[UInt8[Tensor, "_ c h w"], Int64[Tensor, " _"]]  # images in 0 ... 255, targets
Progress = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True)
class History(Result):
    """What happened in training; one row per epoch."""

    epoch: np.ndarray  # 1 for the first
    seconds: np.ndarray  # wall clock since the beginning, evaluation included
    lr: np.ndarray  # of the epoch's last step
    train_loss: np.ndarray  # mean over the epoch's images, as each was seen
    test_accuracy: np.ndarray  # fraction of the test images that are right


def fit(
    model: nn.Module,
    train: Labelled,
    test: Labelled,
    recipe: Recipe,
    *,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    progress: Progress | None = None,
) -> History:
    """Train `model` in place and leave it in evaluation mode.

    Each epoch sees every image once, in an order drawn from the recipe's seed; the last batch
    of an epoch may be smaller. The same model, images and recipe give the same weights, bit for
    bit on the same machine.

    Args:
        model: a classifier of (B, C, H, W) images.
        train: images as bytes, and their classes.
        test: the same, for the accuracy after each epoch.
        recipe: how to train.
        mean: of the pixels in 0 ... 1, per channel; taken off before the model sees them.
        std: their standard deviation, per channel; divided by.
        progress: wraps the range of steps to show how far it is.

    Raises:
        InputError: if there are no images, a target is not a class of the model, or the loss
            stops being finite (the step and learning rate are named).

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization.
    """
    images, targets = train
    if len(images) == 0 or len(test[0]) == 0:
        raise InputError("no images to train on, or to test on; both need at least one")
    normalize = Normalize(mean, std)
    with torch.no_grad():
        classes = model.eval()(normalize(images[:1])).shape[1]
    if int(targets.max()) >= classes or int(targets.min()) < 0:
        raise InputError(
            f"targets run from {int(targets.min())} to {int(targets.max())}; the model has "
            f"classes 0 to {classes - 1}"
        )
    optimizers = make_optimizers(model, recipe)
    steps_per_epoch = math.ceil(len(images) / recipe.batch_size)
    steps = recipe.epochs * steps_per_epoch
    compute = Compute(precision=recipe.precision)
    rows: list[tuple[float, ...]] = []
    start, loss_sum = time.perf_counter(), 0.0
    order = _order(len(images), recipe)
    model.train()
    for step in (progress or iter)(range(steps)):
        for optimizer, factor in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * learning_rate(step, steps, recipe)
        chosen = next(order)
        with compute.autocast():
            logits = model(normalize(images[chosen]))
        loss = cross_entropy(
            logits.float(), targets[chosen], label_smoothing=recipe.label_smoothing
        )
        if not torch.isfinite(loss):
            raise InputError(
                f"the loss is {loss.item()} at step {step + 1} of {steps}, learning rate "
                f"{learning_rate(step, steps, recipe):.2g}; try a lower lr or a longer warmup"
            )
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for optimizer, _ in optimizers:
            optimizer.step()
        loss_sum += loss.item() * len(chosen)
        if (step + 1) % steps_per_epoch == 0:
            right = accuracy(model, test, normalize)
            seconds = time.perf_counter() - start
            lr = learning_rate(step, steps, recipe)
            rows.append((len(rows) + 1, seconds, lr, loss_sum / len(images), right))
            loss_sum = 0.0
            model.train()
    model.eval()
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return History(columns[0].astype(int), *columns[1:])


def learning_rate(step: int, steps: int, recipe: Recipe) -> float:
    """Learning rate of a step, from 0 on: linear from near 0, then a half cosine to near 0."""
    warm = round(recipe.warmup * steps)
    if step < warm:
        return recipe.lr * (step + 1) / (warm + 1)
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


@torch.no_grad()
def accuracy(
    model: nn.Module,
    labelled: Labelled,
    normalize: Callable[[Tensor], Tensor],
    *,
    batch_size: int = 500,
) -> float:
    """Fraction of the images that the model classifies right, in evaluation mode."""
    model.eval()
    right = 0
    for images, targets in zip(*(part.split(batch_size) for part in labelled), strict=True):
        right += int((model(normalize(images)).argmax(1) == targets).sum())
    return right / len(labelled[1])


class Normalize:
    """Bytes in 0 ... 255 to standardised floats, channels last: convolutions like them so."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._mean = 255 * torch.tensor(mean).view(-1, 1, 1)
        self._std = 255 * torch.tensor(std).view(-1, 1, 1)

    def __call__(self, images: UInt8[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The images as a model wants them."""
        pixels = images.contiguous(memory_format=torch.channels_last).float()
        return (pixels - self._mean) / self._std


def _order(n: int, recipe: Recipe) -> Iterator[Int64[Tensor, " b"]]:
    """Batches of indices, epoch after epoch."""
    for epoch in range(recipe.epochs):
        generator = stream(recipe.seed, "order", epoch)
        yield from torch.randperm(n, generator=generator).split(recipe.batch_size)
