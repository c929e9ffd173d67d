"""Linear mode connectivity: loss between checkpoints of one architecture, and their soup.

Source: Frankle et al. (2020), Linear mode connectivity and the lottery ticket hypothesis, sec.
2; Entezari et al. (2022), The role of permutation invariance in linear mode connectivity;
Wortsman et al. (2022), Model soups, sec. 2.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import mean_interval, paired_proportions_interval
from visprism.loss.double_backward import check_batch_norm
from visprism.loss.objective import cross_entropy
from visprism.loss.points import (
    Evaluation,
    PointLosses,
    Samples,
    batch_norms,
    displaced_tensors,
    read_samples,
)
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

    Costs a forward pass for each point, up to two with "reestimated" where there is BatchNorm;
    see `reestimate`. The model gets its own tensors back.
    """
    check_evaluation_mode(model)
    check_batch_norm(batch_norm, BATCH_NORMS, "linear paths")
    if points < 3:
        raise InputError(f"points must be at least 3, got {points}")
    if not checkpoints:
        raise InputError("checkpoints must hold at least one state dict, got none")
    samples = read_samples(batches, run.compute)
    positions = np.linspace(0, 1, points)
    has_batch_norm = bool(batch_norms(model))
    treatment = "reestimated" if batch_norm == "reestimated" and has_batch_norm else "frozen"
    evaluation = Evaluation(model, samples, cross_entropy, treatment, run)
    number = len(checkpoints) * (points - 1) + 2  # the start is shared, and there is the soup
    ticks = run.ticks(range(number), evaluation.ticks_per_point, "linear paths")
    with torch.no_grad(), evaluation.prepared(), ticks as tick:
        steps = {name: _step(model, state, name) for name, state in checkpoints.items()}
        tensors = dict(model.state_dict(keep_vars=True))
        with displaced_tensors(model, tensors) as displace:

            def losses(terms: Iterable[tuple[float, Mapping[str, Tensor]]]) -> PointLosses:
                displace(terms)
                return evaluation.losses(tick)

            start = losses([])
            paths = {
                name: [start, *(losses([(float(t), step)]) for t in positions[1:])]
                for name, step in steps.items()
            }
            soup = losses([(1 / (1 + len(steps)), step) for step in steps.values()])
    return _results(paths, soup, positions, samples, batch_norm, run)


def _step(model: nn.Module, state: State, name: str) -> dict[str, Tensor]:
    """The floating-point entries of a state dict minus those of the model."""
    step = {}
    for key, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        if key not in state or state[key].shape != tensor.shape:
            given = "none" if key not in state else f"shape {tuple(state[key].shape)}"
            raise InputError(
                f"checkpoint {name} must have an entry {key!r} of shape {tuple(tensor.shape)}, "
                f"got {given}. Use checkpoints of one architecture."
            )
        step[key] = state[key].to(tensor) - tensor
    return step


def _results(
    paths: Mapping[str, Sequence[PointLosses]],
    soup: PointLosses,
    positions: np.ndarray,
    samples: Samples,
    batch_norm: str,
    run: Run,
) -> tuple[LinearPaths, Soup]:
    origin = samples.provenance(run)
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
