"""Trace and leading eigenvalue of the Hessian with respect to the parameters of each block."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.estimates.text import images_text
from visprism.loss.density import hutchinson
from visprism.loss.krylov import Request, eigenpairs
from visprism.loss.objective import Objective
from visprism.loss.products import Products, random_normal, random_signs
from visprism.passes.batches import labeled
from visprism.results.hessian_by_block import HessianByBlock

Parts = dict[str, list[Block]]


def hessian_by_block(
    anatomy: Anatomy,
    batches: Iterable,
    *,
    by: str = "block",
    fractions: Sequence[float] = (1.0,),
    probes: int = 10,
    tol: float = 1e-2,
    run: Run = DEFAULT_RUN,
) -> HessianByBlock:
    """Trace and leading eigenvalue of H_b = d²L / d theta_b², b a block, a kind or a stage.

    L is the mean loss of the images; theta_b are the parameters of the blocks of the part, and
    all others stay as they are. H_b is a diagonal block of the Hessian H: the traces of parts
    that hold all parameters once add up to that of H, and no eigenvalue exceeds the largest
    one of H in magnitude.

    Cost: `probes` and 10 to 20 Hessian products for each part and fraction, each as much as six
    forward passes over its images.

    There is a row for each part (block, kind or stage) and each fraction of the images, the
    first ones.

    Sources: Dong et al. (2020), HAWQ-V2, sec. 3 (trace per block); Hutchinson (1989).
    """
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise InputError(f"fractions must be above 0 and at most 1, got {tuple(fractions)}")
    if probes < 3:
        raise InputError(f"probes must be at least 3, got {probes}")
    parts = _parts(anatomy, by)
    data = list(batches)
    number = sum(len(labeled(batch, run.compute)[1]) for batch in data)
    sizes = sorted({max(1, ceil(fraction * number)) for fraction in fractions}, reverse=True)
    cases = [(size, name) for size in sizes for name in parts]
    rows: list[dict[str, Any]] = []
    objective = None
    for size, name in run.track(cases, "parts"):
        names = [p for block in parts[name] for p in block.parameters]
        first = list(_first_images(data, size))
        objective = Objective(
            anatomy.model, first, parameters=names, run=replace(run, progress=None)
        )
        rows.append(
            {"block": name, "fraction": images_text(size)}
            | _columns(parts[name])
            | _curvature(objective, probes, tol)
        )
    assert objective is not None  # there are parts and sizes
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return HessianByBlock(
        **columns,
        probes=probes,
        by=by,
        provenance=run.measured(
            images=sizes[0],
            batch_size=max(len(batch[1]) for batch in data),
            image_shape=objective.image_shape,
        ),
    )


def traces_by_part(
    model: nn.Module,
    batches: Iterable,
    parameters: Mapping[str, Sequence[str]],
    *,
    probes: int = 5,
    run: Run = DEFAULT_RUN,
) -> dict[str, Float[np.ndarray, " probes"]]:
    """Estimates of the trace of the mean loss's Hessian for the parameters of each part.

    Cost: `probes` Hessian products for each part, each as much as six forward passes.

    Source: Dong et al. (2020), HAWQ-V2, sec. 3.
    """
    data = list(batches)
    traces = {}
    for part in run.track(list(parameters), "Hessian traces"):
        objective = Objective(
            model, data, parameters=list(parameters[part]), run=replace(run, progress=None)
        )
        traces[part] = _trace(objective, Products(objective), probes)
    return traces


def _trace(
    objective: Objective, products: Products, probes: int
) -> Float[np.ndarray, " probes"]:
    signs = random_signs(objective, probes, objective.run.seed, "trace by block")
    return hutchinson(products, signs).numpy()


def _parts(anatomy: Anatomy, by: str) -> Parts:
    """Blocks with parameters, by the name of their part, in forward order."""
    if by not in ("block", "kind", "stage"):
        raise InputError(f"by must be block, kind or stage, got {by!r}")
    parts: Parts = {}
    for block in anatomy:
        if block.parameters:
            name = block.name if by == "block" else f"{by} {getattr(block, by)}"
            parts.setdefault(name, []).append(block)
    if not parts:
        raise InputError(
            f"{type(anatomy.model).__name__} must have a block with parameters, and has none"
        )
    return parts


def _columns(blocks: Sequence[Block]) -> dict[str, Any]:
    """The columns of `PerBlock` of a part: those of its first block, and its mean depth."""
    kinds = {block.kind for block in blocks}
    return {
        "kind": blocks[0].kind if len(kinds) == 1 else "several",
        "stage": blocks[0].stage,
        "depth": mean(block.depth for block in blocks),
        "subsampling": len(blocks) == 1 and blocks[0].subsampling,
    }


def _first_images(batches: Sequence, number: int) -> Iterator[tuple[Tensor, ...]]:
    """Batches of the first images."""
    for batch in batches:
        if number <= 0:
            return
        yield tuple(part[:number] for part in batch)
        number -= len(batch[1])


def _curvature(objective: Objective, probes: int, tol: float) -> dict[str, Any]:
    """Trace with its standard error, and the leading eigenvalue with its residual."""
    products, seed = Products(objective), objective.run.seed
    estimates = _trace(objective, products, probes)
    start = random_normal(objective, 1, seed, "eigenvalue by block")
    (pairs,) = eigenpairs(products, start, [Request(1, "LM")], tol=tol, run=objective.run)
    return {
        "trace": float(estimates.mean()),
        "trace_error": float(estimates.std(ddof=1) / probes**0.5),
        "eigenvalue": float(pairs.values[0]),
        "residual": float(pairs.residuals[0]),
        "converged": bool(pairs.converged[0]),
        "parameters": len(objective),
        "nll": products.nll_and_examples[0],
    }
