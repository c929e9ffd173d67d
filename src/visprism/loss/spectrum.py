"""Leading Hessian eigenvalues of many mini-batches.

Park & Kim (2022) use mini-batches: the Hessian of one describes the curvature that
a step of training sees. Over many mini-batches the leading eigenvalues form a spectrum.
"""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from visprism.anatomy.trace.forward import Images, batch_size
from visprism.core.errors import InputError
from visprism.core.processes import rank, world_size
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.hessian_summary import HessianSpectrum
from visprism.loss.krylov import Request, Which, eigenpairs
from visprism.loss.objective import (
    Loss,
    Objective,
    Selection,
    check_weight_decay,
    cross_entropy,
)
from visprism.loss.products import Products, random_normal
from visprism.passes.batches import in_order

Batch = tuple[Images, Tensor]

# What the same products give in addition; iteration does not wait for them.
_ENDS = (Request(1, "LA", required=False), Request(1, "SA", required=False))


def hessian_spectrum(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-2,
    loss: Loss = cross_entropy,
    weight_decay: float = 0.0,
    decayed: Selection = "all",
    parameters: Selection = "trained",
    num_batches: int | None = None,
    learning_rate: float | None = None,
    run: Run = DEFAULT_RUN,
) -> HessianSpectrum:
    """The k leading Hessian eigenvalues of each mini-batch.

    For each mini-batch B, the eigenvalues of the Hessian of 1/|B| sum_B loss over the chosen
    parameters, plus wd/2 |theta_decayed|^2 with `weight_decay`. BatchNorm is frozen, dropout
    and stochastic depth are off.

    An eigenvalue is within the residual of each value; at a relative residual of 1e-2 the error
    is usually below 1e-3, since it falls with the square.

    Cost: 15 to 35 Hessian products for each mini-batch, each as much as six forward passes of
    it.

    Args:
        model: in evaluation mode.
        batches: mini-batches of (images, targets), 16 training images each in the paper.
        k: number of eigenvalues of each mini-batch.
        which: largest in magnitude (LM, as in the paper), largest (LA), smallest (SA) or both
            ends (BE).
        tol: relative residual of convergence.
        loss: (logits, targets) -> (B,).
        weight_decay: wd of the L2 term; 0 for none.
        decayed: which of the chosen parameters decay; see `Selection`.
        parameters: which parameters; see `Selection`.
        num_batches: number of mini-batches; None: all.
        learning_rate: of training, to compare the sharpness with 2 / learning rate.
        run: device, seed, progress, provenance and deadline.

    Source: Park & Kim (2022), How do vision transformers work?, fig. 1b and 4, and their
    Blurs behave like ensembles (2022), sec. 2.
    """
    check_weight_decay(weight_decay)
    if num_batches is not None and num_batches < 1:
        raise InputError(f"num_batches must be at least 1, got {num_batches}")
    requests = (Request(k, which), *_ENDS)
    parts: list[_Measured] = []
    objective: Objective | None = None
    limited = batches if num_batches is None else islice(batches, num_batches)
    for i, batch in enumerate(run.track_share(limited, "mini-batches")):
        if objective is None:
            objective = Objective(
                model,
                [batch],
                loss=loss,
                weight_decay=weight_decay,
                decayed=decayed,
                parameters=parameters,
                run=run,
                shared=False,
            )
        number = rank() + i * world_size()
        rows, products = _of_mini_batch(objective, batch, requests, tol, number)
        size, shape = batch_size(batch[0]), objective.image_shape
        parts.append(_Measured(rows, size, products, len(objective), shape))
    parts = in_order(parts)
    rows = [row for part in parts for row in part.rows]
    fields = ("batch", "nll", "which", "rank", "value", "residual", "converged")
    return HessianSpectrum(
        **dict(zip(fields, map(np.array, zip(*rows, strict=True)), strict=True)),
        k=k,
        tol=tol,
        weight_decay=weight_decay,
        parameters=parts[0].parameters,
        products=sum(part.products for part in parts),
        learning_rate=float("nan") if learning_rate is None else learning_rate,
        provenance=run.measured(
            images=sum(part.images for part in parts),
            batch_size=max(part.images for part in parts),
            image_shape=parts[0].image_shape,
        ),
    )


class _Measured(NamedTuple):
    """The eigenvalues of a mini-batch, and what was measured."""

    rows: list[tuple]
    images: int
    products: int
    parameters: int
    image_shape: tuple[int, ...]


def _of_mini_batch(
    objective: Objective,
    batch: Batch,
    requests: tuple[Request, ...],
    tol: float,
    number: int,
) -> tuple[list[tuple], int]:
    """The eigenvalues of a mini-batch, and the number of products.

    The rows are (number, nll, which, rank, value, residual, converged); the rank is 0 for
    values that are not required.
    """
    run = objective.run
    products = Products(objective.with_batches([batch], shared=False))
    start = random_normal(objective, run.seed, "hessian", "", number)
    results = eigenpairs(products, start, requests, tol=tol, run=run)
    nll, _ = products.nll_and_examples
    rows = [
        (number, nll, request.which, j if request.required else 0, *row)
        for request, result in zip(requests, results, strict=True)
        for j, row in enumerate(
            zip(
                result.values.tolist(),
                result.residuals.tolist(),
                result.converged.tolist(),
                strict=True,
            ),
            start=1,
        )
    ]
    return rows, products.count
