"""Linear mode connectivity: loss between checkpoints of one architecture, and their soup.

Source: Frankle et al. (2020), Linear mode connectivity and the lottery ticket hypothesis, sec.
2; Entezari et al. (2022), The role of permutation invariance in linear mode connectivity;
Wortsman et al. (2022), Model soups, sec. 2.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.interrupts import delayed_interrupts
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import mean_interval, paired_proportions_interval
from visprism.measure.loss.batch_norm import batch_norms, check_batch_norm, reestimate
from visprism.measure.loss.cached_batches import CachedBatches, cache_batches
from visprism.measure.loss.landscape.displaced_weights import clear_weight_caches
from visprism.measure.loss.landscape.point_losses import PointLosses, point_losses
from visprism.measure.loss.losses import cross_entropy
from visprism.passes.batches import check_evaluation_mode
from visprism.results.mode_connectivity import LinearPaths, Soup

State = Mapping[str, Tensor]
BATCH_NORMS = ("reestimated", "interpolated")


def mode_connectivity(
    model: nn.Module,
    checkpoints: Mapping[str, State],
    batches: Iterable,
    *,
    points: int = 11,
    batch_norm: str = "reestimated",
    run: Run = DEFAULT_RUN,
) -> tuple[LinearPaths, Soup]:
    """Loss along the segments from a model to checkpoints, and the soup of all of them.

    At theta(t) = (1 - t) theta_0 + t theta_1 with the loss L(t), the barrier is L(t) - (1 - t)
    L(0) - t L(1), paired by image; its height is the maximum over t. The soup has the mean of
    all weights. Floating-point buffers are averaged like weights; with "reestimated" the
    running statistics of BatchNorm are computed from these images at every point, the ends too.

    Costs a forward pass for each point, two with "reestimated" where there is BatchNorm. The
    model gets its own tensors back.

    Args:
        model: in evaluation mode; its weights are the start.
        checkpoints: state dicts of this architecture, by name.
        batches: each is (images, targets).
        points: of each segment, with both ends; at least 3.
        batch_norm: "reestimated" or "interpolated".
        run: device, precision, progress and provenance.
    """
    check_evaluation_mode(model)
    check_batch_norm(batch_norm, BATCH_NORMS, "linear paths")
    if points < 3:
        raise InputError(f"points must be at least 3, got {points}")
    if not checkpoints:
        raise InputError("checkpoints must hold at least one state dict, got none")
    states = {name: _fitting(model, state, name) for name, state in checkpoints.items()}
    samples = cache_batches(batches, batch_size=None, compute=run.compute)
    positions = np.linspace(0, 1, points)
    passes = len(samples.batches) * (1 + (batch_norm == "reestimated"))
    number = len(states) * (points - 1) + 2  # the start is shared, and there is the soup
    ticks = run.ticks(range(number), passes, "linear paths")
    with (
        torch.no_grad(),
        run.compute.borrow(model),
        _mixed_weights(model) as mix,
        ticks as tick,
    ):

        def losses(coefficients: Mapping[str, float]) -> PointLosses:
            mix({name: (states[name], c) for name, c in coefficients.items()})
            if batch_norm == "reestimated" and batch_norms(model):
                reestimate(model, samples, run.compute, tick)
            return point_losses(model, samples, cross_entropy, run.compute, tick)

        start = losses({})
        paths = {
            name: [start, *(losses({name: float(t)}) for t in positions[1:])] for name in states
        }
        soup = losses(dict.fromkeys(states, 1 / (1 + len(states))))
    return _results(paths, soup, positions, samples, batch_norm, run)


def _fitting(model: nn.Module, state: State, name: str) -> dict[str, Tensor]:
    """The floating-point entries of a state dict."""
    entries = {}
    for key, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        if key not in state or state[key].shape != tensor.shape:
            given = "none" if key not in state else f"shape {tuple(state[key].shape)}"
            raise InputError(
                f"checkpoint {name} must have an entry {key!r} of shape {tuple(tensor.shape)}, "
                f"got {given}. Use checkpoints of one architecture."
            )
        entries[key] = state[key]
    return entries


@contextmanager
def _mixed_weights(
    model: nn.Module,
) -> Iterator[Callable[[Mapping[str, tuple[State, float]]], None]]:
    """Inside, a function gives the model its weights plus c (state - weights) of each state."""
    tensors = dict(model.state_dict(keep_vars=True))
    original = {name: tensor.data for name, tensor in tensors.items()}
    clear_caches = clear_weight_caches(model)

    def mix(terms: Mapping[str, tuple[State, float]]) -> None:
        for name, tensor in tensors.items():
            tensor.data.copy_(original[name])
            for state, coefficient in terms.values():
                if name in state:
                    other = state[name].to(original[name])
                    tensor.data.add_(other - original[name], alpha=coefficient)
        clear_caches()

    try:
        for tensor in tensors.values():
            tensor.data = tensor.data.clone()
        yield mix
    finally:
        with delayed_interrupts():
            for name, tensor in tensors.items():
                tensor.data = original[name]
            clear_caches()


def _results(
    paths: Mapping[str, Sequence[PointLosses]],
    soup: PointLosses,
    positions: np.ndarray,
    samples: CachedBatches,
    batch_norm: str,
    run: Run,
) -> tuple[LinearPaths, Soup]:
    origin = run.measured(
        images=len(samples), batch_size=samples.batch_size, image_shape=samples.image_shape
    )
    rows = []
    for name, losses in paths.items():
        first, last = losses[0].nll, losses[-1].nll
        for t, point in zip(positions, losses, strict=True):
            barrier = point.nll - (1 - t) * first - t * last
            low, high = mean_interval(barrier)
            nll, error, _, _, accuracy, _ = point.summary(losses[0])
            rows.append((name, t, nll, error, accuracy, barrier.mean(), low, high))
    names = ("checkpoint", "position", "nll", "nll_error", "accuracy",
             "barrier", "barrier_low", "barrier_high")  # fmt: skip
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    start = next(iter(paths.values()))[0]
    members = {"model": start, **{name: losses[-1] for name, losses in paths.items()}}
    members["soup"] = soup
    intervals = [_gain(point, soup) for point in members.values()]
    return (
        LinearPaths(**columns, batch_norm=batch_norm, provenance=origin),
        Soup(
            member=np.array(list(members)),
            accuracy=np.array([point.correct.mean() for point in members.values()]),
            nll=np.array([point.nll.mean() for point in members.values()]),
            gain=np.array([(soup.correct - p.correct).mean() for p in members.values()]),
            gain_low=np.array([low for low, _ in intervals]),
            gain_high=np.array([high for _, high in intervals]),
            provenance=origin,
        ),
    )


def _gain(point: PointLosses, soup: PointLosses) -> tuple[float, float]:
    gained = int((soup.correct > point.correct).sum())
    lost = int((soup.correct < point.correct).sum())
    return paired_proportions_interval(gained, lost, len(soup.correct))
