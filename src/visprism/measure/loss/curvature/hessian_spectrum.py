"""Hessian: the foremost eigenvalues of many mini-batches, as Park & Kim look at them.

The Hessian of one mini-batch says how the loss that one step of training sees is curved. Over
many mini-batches its foremost eigenvalues make a spectrum: how sharp the loss is, and how often
it bends downwards.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from torch import nn

from visprism.anatomy import batch_size, pixels
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather, world_size
from visprism.core.provenance import Provenance
from visprism.linalg import Request, Which
from visprism.measure.loss.curvature.mini_batches import Batch, Progress, groups, solved
from visprism.measure.loss.losses import Loss, cross_entropy
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.parameter_selection import Selection
from visprism.results.base import Result, column, result_type, scalar

# What the same products show besides; not waited for.
_ENDS = (Request(1, "LA", required=False), Request(1, "SA", required=False))


@result_type("hessian-spectrum")
class HessianSpectrum(Result):
    """Eigenvalues of mini-batches; one row for each, the foremost first.

    Two more rows of rank 0 hold the largest (LA) and the smallest (SA) eigenvalue as the same
    products show them; they were not waited for, so look at their residuals.
    """

    phase: np.ndarray = column("Phase", "", "of training, as the caller names it")
    data: np.ndarray = column("Data", "", "as the caller names it: 'clean', 'augmented'")
    weight_decay: np.ndarray = column("Weight decay", "", "of the objective, 0 for NLL alone")
    batch: np.ndarray = column("Mini-batch", "", "number of the mini-batch")
    nll: np.ndarray = column("NLL", "nats", "its loss, in nats")
    which: np.ndarray = column("Which")
    rank: np.ndarray = column("Rank", "", "1 for the foremost; 0 for the two ends")
    value: np.ndarray = column("Eigenvalue")
    residual: np.ndarray = column("Residual", "", "an eigenvalue is no farther away")
    converged: np.ndarray = column("Converged")
    k: int = scalar("K", "", "of `which`, for each mini-batch")
    tol: float = scalar("Tol")
    parameters: int = scalar("Parameters", "", "P, the size of each matrix")
    products: int = scalar("Products", "", "that it took, all mini-batches together")


def hessian_spectrum(
    model: nn.Module,
    batches: Iterable[Batch] | Mapping[str, Iterable[Batch]],
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-2,
    loss: Loss = cross_entropy,
    weight_decay: float = 0.0,
    parameters: Selection = "all",
    phase: str = "",
    seed: int = 0,
    together: int | None = None,
    seconds: float | None = None,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> HessianSpectrum:
    """The k foremost Hessian eigenvalues of each mini-batch.

    For each mini-batch B, the eigenvalues of the Hessian of 1/|B| sum_B loss over the chosen
    parameters, and with `weight_decay` also those of the same plus wd/2 |theta|^2, which are
    found by the same products: they are shifted by wd. BatchNorm is frozen, dropout and
    stochastic depth are off.

    A value is at most its residual away from an eigenvalue; at a relative residual of 1e-2 its
    error is mostly below 1e-3, since it falls with the square.

    Costs 12 to 30 Hessian products of each mini-batch, each as much as six forward passes of it
    at least. On a GPU, as many mini-batches as memory holds are solved at once.

    Args:
        model: in evaluation mode.
        batches: mini-batches of (images, targets), 16 images each in the paper; or several such
            data by name, as {"clean": ..., "augmented": ...}.
        k: how many eigenvalues of each mini-batch.
        which: largest in magnitude (LM, as in the paper), largest (LA), smallest (SA) or both
            ends (BE).
        tol: relative residual at which a value has converged.
        loss: (logits, targets) -> (B,).
        weight_decay: wd of the second objective; 0 for none.
        parameters: which parameters; see `Selection`.
        phase: what to call this state of the model, as "end of training".
        seed: of the starts.
        together: how many mini-batches are solved at once; None: one on a CPU, where several
            were found no faster, and as many as fit on a GPU.
        seconds: after which no further mini-batch is begun, shared evenly by the data; each
            has one in any case. `product_cost` tells beforehand what a mini-batch takes.
        compute: device.
        progress: wraps the mini-batches to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: as `Objective`; if there is no mini-batch, or `k` is not in 1 ... P.

    Source: Park & Kim (2022), How do vision transformers work?, fig. 1b and 4, and their
    Blurs behave like ensembles (2022), sec. 2.
    """
    if not 0 <= weight_decay < inf:
        raise InputError(f"weight_decay is {weight_decay}; wants 0 or more")
    if seconds is not None and not seconds >= 0:
        raise InputError(f"seconds must be at least 0, got {seconds}")
    if together is not None and together < 1:
        raise InputError(f"together is {together}; wants at least 1 mini-batch at once")
    named = batches if isinstance(batches, Mapping) else {"": batches}
    requests = [
        replace(request, shift=shift)
        for shift in dict.fromkeys((0.0, weight_decay))
        for request in (Request(k, which), *_ENDS)
    ]

    def objective(batch: Batch) -> Objective:
        return Objective(
            model, [batch], loss, parameters=parameters, compute=compute, shared=False
        )

    rows: list[tuple] = []
    counts = np.zeros(2, dtype=int)  # images, products
    largest, shape, size = 0, (), 0
    for data, each in named.items():
        share = None if seconds is None else seconds / len(named)
        for group in groups(each, together, objective, progress, share):
            here = objective(group[0][1])
            values, products = solved(here, group, requests, tol, (seed, "hessian", data))
            rows += [(phase, data, *row) for row in values]
            sizes = [batch_size(images) for _, (images, _) in group]
            counts += sum(sizes), products
            largest, size = max(largest, *sizes), len(here)
            shape = tuple(pixels(group[0][1][0]).shape[1:])
    every = gather((rows, counts, largest, shape, size))
    ranked = sorted(
        (row for own, *_ in every for row in own),
        key=lambda row: (
            list(named).index(row[1]),
            *row[2:4],
            [which, "LA", "SA"].index(row[5]),
        ),
    )
    images, products = np.sum([c for _, c, *_ in every], axis=0)
    if images == 0:
        raise InputError("no mini-batch was seen; is the data empty?")
    return HessianSpectrum(
        *(np.array(column) for column in zip(*ranked, strict=True)),
        k=k,
        tol=tol,
        parameters=max(n for *_, n in every),
        products=int(products),
        provenance=replace(
            provenance or Provenance(),
            images=int(images),
            image_shape=max(s for *_, s, _ in every),
            batch_size=max(n for _, _, n, *_ in every),
            device=compute.device,
            processes=world_size(),
            seed=seed,
        ),
    )


def joined(spectra: Iterable[HessianSpectrum]) -> HessianSpectrum:
    """Spectra of several phases of one model as one, in their order.

    Raises:
        InputError: if there is none, two have one phase, or they differ in k or in the number
            of parameters.
    """
    spectra = list(spectra)
    phases = [phase for s in spectra for phase in dict.fromkeys(s.phase.tolist())]
    if len(set(phases)) < len(phases):
        raise InputError(
            f"cannot join spectra of the phases {', '.join(map(repr, phases))}; give each a "
            "name of its own"
        )
    settings = {(s.k, s.parameters) for s in spectra}
    if len(settings) != 1:
        raise InputError(
            f"cannot join {len(spectra)} spectra with (k, parameters) of "
            f"{sorted(settings) or 'none'}; they must be of one model with one k"
        )
    names = [n for n, v in vars(spectra[0]).items() if isinstance(v, np.ndarray)]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(s, name) for s in spectra]) for name in names
    }
    return replace(spectra[0], **columns, products=sum(s.products for s in spectra))
