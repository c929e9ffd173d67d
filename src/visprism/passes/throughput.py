"""Throughput: parameters, arithmetic and speed of a model."""

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
    """Parameters, arithmetic and speed of a model."""

    parameters: int  # all, frozen ones too; those that layers share counted once
    macs: int  # multiply-accumulates for one image
    images_per_second: float  # of the forward pass, by the wall clock; NaN if not timed


def model_cost(
    model: nn.Module, images: Float[Tensor, "b c h w"], *, repeats: int = 3
) -> ModelCost:
    """Parameters, multiply-accumulates and images per second of a model.

    Parameters are counted as in `Costs.distinct_parameters`, and matrix products, convolutions
    and attention as by `visprism.costs`. A model and images on torch's meta device are counted
    without arithmetic and cannot be timed. The speed is the median over `repeats` passes of all
    `images` after one warm-up pass, in the current precision, device and number of threads.

    Args:
        model: a model in evaluation mode.
        images: a batch as the model takes it.
        repeats: number of timed passes; 0 for none.
    """
    if model.training:
        raise InputError("model must be in evaluation mode. Call model.eval() first.")
    if not len(images):
        raise InputError("images must hold at least one, got none")
    with torch.no_grad():
        with MacCounter() as counter:
            model(images[:1])
        times = [_seconds(model, images) for _ in range(repeats + 1)] if repeats else []
    return ModelCost(
        parameters=sum(p.numel() for p in model.parameters()),
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
