"""Leading Hessian eigenvalues of many mini-batches, as Park & Kim (2022) measure them.

The Hessian of one mini-batch describes the curvature of the loss that one step of training
sees. Over many mini-batches its leading eigenvalues form a spectrum.
"""

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import repeat, zip_longest
from typing import cast

import numpy as np
from torch import nn

from visprism.anatomy import batch_size
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.run import DEFAULT_RUN, Run, TimeBudgetError
from visprism.linalg import Request, Which
from visprism.measure.loss.curvature.mini_batches import (
    Batch,
    Group,
    MiniBatchSolver,
    groups,
)
from visprism.measure.loss.losses import Loss, cross_entropy
from visprism.measure.loss.objective import Objective, check_weight_decay
from visprism.measure.loss.parameter_selection import Selection
from visprism.results.hessian import HessianSpectrum

# What the same products give in addition; iteration does not wait for them.
_ENDS = (Request(1, "LA", required=False), Request(1, "SA", required=False))


def hessian_spectrum(
    model: nn.Module,
    batches: Iterable[Batch] | Mapping[str, Iterable[Batch]],
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-2,
    loss: Loss = cross_entropy,
    weight_decay: float = 0.0,
    decayed: Selection = "all",
    parameters: Selection = "all",
    phase: str = "",
    num_batches: int | None = None,
    parallel_batches: int | None = None,
    learning_rate: float | None = None,
    run: Run = DEFAULT_RUN,
) -> HessianSpectrum:
    """The k leading Hessian eigenvalues of each mini-batch.

    For each mini-batch B, the eigenvalues of the Hessian of 1/|B| sum_B loss over the chosen
    parameters, and with `weight_decay` also those of the same plus wd/2 |theta_decayed|^2.
    Where all chosen parameters decay, the same products give both: wd is added. BatchNorm is
    frozen, dropout and stochastic depth are off.

    An eigenvalue is within the residual of each value; at a relative residual of 1e-2 the error
    is usually below 1e-3, since it falls with the square.

    Mini-batches are processed in the order of the data. After the deadline of the run, the
    result holds those that are complete, and says how many were requested.

    Cost: 15 to 35 Hessian products for each mini-batch, each as much as six forward passes of
    it. On a GPU, as many mini-batches as memory holds are solved at once.

    Args:
        model: in evaluation mode.
        batches: mini-batches of (images, targets), 16 training images each in the paper; or
            several data sets by name, such as {"clean": ..., "augmented": ...}.
        k: number of eigenvalues of each mini-batch.
        which: largest in magnitude (LM, as in the paper), largest (LA), smallest (SA) or both
            ends (BE).
        tol: relative residual of convergence.
        loss: (logits, targets) -> (B,).
        weight_decay: wd of the second objective; 0 for none.
        decayed: which of the chosen parameters decay; see `Selection`.
        parameters: which parameters; see `Selection`.
        phase: name of this state of the model, such as "end of training".
        num_batches: number of mini-batches of each data set; None: all.
        parallel_batches: how many are solved at once; None: one on a CPU, where several are no
            faster, and as many as fit on a GPU.
        learning_rate: of training, to compare the sharpness with 2 / learning rate.
        run: device, seed, progress, provenance and deadline.

    Raises:
        InputError: as `Objective`; if there is no mini-batch, or `k` is not in 1 ... P.
        TimeBudgetError: if the deadline passes before one mini-batch of each is complete.

    Source: Park & Kim (2022), How do vision transformers work?, fig. 1b and 4, and their
    Blurs behave like ensembles (2022), sec. 2.
    """
    check_weight_decay(weight_decay)
    for name, number in (("num_batches", num_batches), ("parallel_batches", parallel_batches)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, got {number}")
    named = _by_name(batches)

    def objective(batch: Batch) -> Objective:
        return Objective(
            model,
            [batch],
            loss=loss,
            weight_decay=weight_decay,
            decayed=decayed,
            parameters=parameters,
            run=run,
            shared=False,
        )

    table = _Table(phase)
    streams = [
        zip(repeat(name), groups(data, parallel_batches, objective, run, num_batches))
        for name, data in named.items()
    ]
    solver = None
    try:
        for name, group in _in_turn(streams):
            solver = solver or MiniBatchSolver(
                objective(group[0][1]), (Request(k, which), *_ENDS), tol
            )
            table.add(name, group, *solver(group, "hessian", name))
    except TimeBudgetError:
        if set(table.done) < set(named):
            raise
    return table.result(
        order=(list(named), [which, "LA", "SA"]),
        solver=solver,
        requested=num_batches or max(map(_length, named.values())),
        learning_rate=learning_rate,
        run=run,
    )


def _by_name(
    batches: Iterable[Batch] | Mapping[str, Iterable[Batch]],
) -> Mapping[str, Iterable[Batch]]:
    """The data sets by name; a single one has none."""
    if isinstance(batches, Mapping):
        if not batches:
            raise InputError("batches must hold at least one data set, got an empty mapping")
        return cast("Mapping[str, Iterable[Batch]]", batches)
    return {"": batches}


def _in_turn(
    streams: Iterable[Iterable[tuple[str, Group]]],
) -> Iterator[tuple[str, Group]]:
    """A group of each data set in turn, so that after a deadline all have as many."""
    for row in zip_longest(*streams):
        yield from (item for item in row if item is not None)


def _length(batches: Iterable) -> int:
    return len(batches) if isinstance(batches, Sized) else 0


class _Table:
    """Rows and counts of the mini-batches of this process."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.rows: list[tuple] = []
        self.done: set[str] = set()  # names of data sets with a complete mini-batch
        self.images = self.products = self.batch_size = 0

    def add(self, name: str, group: Group, rows: list[tuple], products: int) -> None:
        """Take the eigenvalues of a group."""
        self.rows += [(self.phase, name, *row) for row in rows]
        sizes = [batch_size(images) for _, (images, _) in group]
        self.done.add(name)
        self.images += sum(sizes)
        self.products += products
        self.batch_size = max(self.batch_size, *sizes)

    def result(
        self,
        *,
        order: tuple[list[str], list[str]],
        solver: MiniBatchSolver | None,
        requested: int,
        learning_rate: float | None,
        run: Run,
    ) -> HessianSpectrum:
        """The rows of all processes in the order of data set, objective, number and rank."""
        names, ends = order
        size = (len(solver.objective), solver.objective.image_shape) if solver else (0, ())
        settings = (solver.requests[0].k, solver.tol) if solver else (0, 0.0)
        counts = (self.images, self.products, self.batch_size)
        every = gather((self.rows, counts, size, settings))
        images, products = (sum(c[i] for _, c, *_ in every) for i in (0, 1))
        if images == 0:
            raise InputError("batches must hold at least one mini-batch, got none")
        rows = sorted(
            (row for part, *_ in every for row in part),
            key=lambda row: (names.index(row[1]), *row[2:4], ends.index(row[5])),
        )
        fields = ("phase", "data", "weight_decay", "batch", "nll", "which", "rank", "value")
        columns = map(np.array, zip(*rows, strict=True))
        parameters, shape = max(s for *_, s, _ in every)
        return HessianSpectrum(
            **dict(zip((*fields, "residual", "converged"), columns, strict=True)),
            k=max(s for *_, s in every)[0],
            tol=max(s for *_, s in every)[1],
            parameters=parameters,
            products=products,
            requested=requested,
            learning_rate=float("nan") if learning_rate is None else learning_rate,
            provenance=run.measured(
                images=images,
                batch_size=max(c[2] for _, c, *_ in every),
                image_shape=shape,
            ),
        )
