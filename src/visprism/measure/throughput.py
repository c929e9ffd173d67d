"""Throughput: what a model costs as a whole, in numbers, arithmetic and time."""

import math
import time
from dataclasses import dataclass
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy.trace.flops import MacCounter
from visprism.core.errors import InputError


@dataclass(frozen=True)
class ModelCost:
    """What a model costs."""

    parameters: int  # numbers that training changes; those that layers share counted once
    macs: int  # multiply-accumulates for one image
    images_per_second: float  # of the forward pass, by the wall clock; NaN if not timed


def model_cost(
    model: nn.Module, images: Float[Tensor, "b c h w"], *, repeats: int = 3
) -> ModelCost:
    """Parameters, multiply-accumulates and forward passes for each second of one model.

    Matrix products, convolutions and attention are counted, as by `visprism.costs`; a model and
    images on torch's meta device are counted without any arithmetic, and cannot be timed. The
    speed is the median over `repeats` passes of all `images` after one that warms up, in the
    precision and on the device and threads that are in force.

    Args:
        model: a model in evaluation mode.
        images: a batch as the model wants it.
        repeats: passes that are timed; 0 for none.

    Raises:
        InputError: if the model is in training mode, or there are no images.
    """
    if model.training:
        raise InputError("the model is in training mode; call model.eval() first")
    if not len(images):
        raise InputError("got no images; a model's cost wants at least one")
    with torch.no_grad():
        with MacCounter() as counter:
            model(images[:1])
        times = [_seconds(model, images) for _ in range(repeats + 1)] if repeats else []
    return ModelCost(
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        macs=counter.macs,
        images_per_second=len(images) / median(times[1:]) if times else math.nan,
    )


def _seconds(model: nn.Module, images: Tensor) -> float:
    if images.is_cuda:
        torch.cuda.synchronize(images.device)
    start = time.perf_counter()
    model(images)
    if images.is_cuda:
        torch.cuda.synchronize(images.device)
    return time.perf_counter() - start
