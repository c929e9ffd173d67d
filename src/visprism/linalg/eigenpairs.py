"""Eigenpairs: a few eigenvalues of each operator, each with a bound on its error."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from visprism.core.errors import InputError
from visprism.linalg.krylov import Krylov, Product, Ritz

Which = Literal["LM", "LA", "SA", "BE"]  # ARPACK's words
WHICH = get_args(Which)

_LOOSEST = 0.1  # relative residual: a larger one tells next to nothing of a rank


@dataclass(frozen=True)
class Request:
    """Which eigenvalues of A + shift are wanted."""

    k: int
    which: Which = "LM"
    shift: float = 0.0
    required: bool = True  # False: as they are when the others have converged


@dataclass(frozen=True)
class Eigenpairs:
    """k eigenvalues of each operator, in the order that was asked for."""

    values: Float[Tensor, "b k"]
    residuals: Float[Tensor, "b k"]  # |A x - theta x|: an eigenvalue is no farther away
    converged: Bool[Tensor, "b k"]  # see `eigenpairs`
    vectors: Float[Tensor, "b k p"]
    products: int  # that were needed, of each operator with a block of vectors


def eigenpairs(
    product: Product,
    start: Float[Tensor, "b s p"],
    requests: Sequence[Request],
    *,
    tol: float = 1e-3,
    most_products: int = 300,
    seconds: float | None = None,
    capacity: int | None = None,
) -> list[Eigenpairs]:
    """Eigenvalues at the ends of the spectra of symmetric operators, with error bounds.

    A request is for the k values that are largest in magnitude (LM), largest (LA), smallest
    (SA), or at both ends (BE, one more at the upper end if k is odd). One space serves all
    requests, since A and A + shift have the same eigenvectors.

    A Ritz value theta with residual r is at most r away from an eigenvalue; as a rule only
    r^2 / g, where the next one is g away, but where two have not yet come apart, r. A value has
    converged when r is at most tol |theta| and no other Ritz value can any more take its place.
    Its rank is then right too, unless eigenvalues lie closer together than tol |theta|, which a
    single start vector can take for one. Where a start has seen all that it can, new ones are
    drawn until they find nothing that comes before; so copies of an eigenvalue are found.
    A value at the rounding of products cannot converge, as nothing is known of its relative
    error; products end there too.

    Costs one product per step, and memory for `capacity` vectors of each operator.

    Args:
        product: the operators, symmetric.
        start: one or several vectors for each.
        requests: which eigenvalues.
        tol: relative residual at which to stop, up to 0.1.
        most_products: after which to stop in any case, with at least k vectors.
        seconds: after which to stop in any case.
        capacity: of the basis; when it is full, the best part is kept (thick restart).

    Returns:
        What was found, for each request.

    Raises:
        InputError: if k is not in 1 ... p, `which` is unknown, tol is not in 0 ... 0.1, or as
            `Krylov`.

    Sources: Golub & Van Loan (2013), sec. 10.3; Parlett (1998), The symmetric eigenvalue
    problem, sec. 11.7.
    """
    p = start.shape[2]
    if not 0 < tol <= _LOOSEST:
        raise InputError(f"tol is {tol}; wants a relative residual above 0, up to {_LOOSEST}")
    if seconds is not None and not seconds >= 0:
        raise InputError(f"seconds must be at least 0, got {seconds}")
    for request in requests:
        _check(request, p)
    begun = time.monotonic()
    most = max(request.k for request in requests)
    room = max(capacity or 0, 2 * most + 20 + 2 * start.shape[1])
    space = Krylov(product, start, capacity=room)
    noise = 20 * torch.finfo(start.dtype).eps
    while True:
        space.extend()
        if space.size < most:
            continue
        ritz = space.ritz()
        judged = [_judged(ritz, request, tol, noise) for request in requests]
        done = all(
            bool(end.all()) or not request.required
            for (_, end), request in zip(judged, requests, strict=True)
        )
        late = seconds is not None and time.monotonic() - begun > seconds
        if done or late or space.exhausted or space.products >= most_products:
            break
        if space.full:
            space.compress(_worth_keeping(ritz, requests, (room + 2 * most) // 3))
    return [
        _found(space, ritz, request, converged)
        for request, (converged, _) in zip(requests, judged, strict=True)
    ]


def _check(request: Request, p: int) -> None:
    if not 1 <= request.k <= p:
        raise InputError(
            f"k is {request.k}; the operator has {p} eigenvalues, so 1 to {p} can be had"
        )
    if request.which not in WHICH:
        raise InputError(f"which is {request.which!r}; wants one of {', '.join(WHICH)}")


def _found(
    space: Krylov, ritz: Ritz, request: Request, converged: Bool[Tensor, "b k"]
) -> Eigenpairs:
    chosen = wanted(ritz.values + request.shift, request.k, request.which)
    columns = chosen[:, None].expand(-1, space.size, -1)
    return Eigenpairs(
        values=torch.gather(ritz.values, 1, chosen) + request.shift,
        residuals=torch.gather(ritz.residuals, 1, chosen),
        converged=converged,
        vectors=space.vectors(torch.gather(ritz.coordinates, 2, columns)),
        products=space.products,
    )


def _worth_keeping(ritz: Ritz, requests: Sequence[Request], r: int) -> Int[Tensor, "b r"]:
    """TokenPositions of r Ritz values, the foremost of each required request in turn."""
    rows = []
    for values in ritz.values:
        orders = [
            wanted((values + q.shift)[None], len(values), q.which)[0].tolist()
            if q.which != "BE"
            else _from_both_ends(len(values))
            for q in requests
            if q.required
        ]
        turns = dict.fromkeys(i for turn in zip(*orders, strict=True) for i in turn)
        rows.append(list(turns)[:r])
    return torch.tensor(rows)


def _from_both_ends(m: int) -> list[int]:
    order = [i for pair in zip(range(m - 1, -1, -1), range(m), strict=True) for i in pair]
    return list(dict.fromkeys(order))


def wanted(values: Float[Tensor, "b m"], k: int, which: Which) -> Int[Tensor, "b k"]:
    """TokenPositions of the k values that `which` asks for, the foremost first."""
    if which == "LM":
        return values.abs().argsort(dim=1, descending=True)[:, :k]
    up, down = values.argsort(dim=1, descending=True), values.argsort(dim=1)
    if which == "BE":
        return torch.cat([up[:, : ceil(k / 2)], down[:, : k // 2]], dim=1)
    return up[:, :k] if which == "LA" else down[:, :k]


def _judged(
    ritz: Ritz, request: Request, tol: float, noise: float
) -> tuple[Bool[Tensor, "b k"], Bool[Tensor, "b k"]]:
    """What has converged, and what products can do no more for."""
    values = ritz.values + request.shift
    chosen = wanted(values, request.k, request.which)
    value, residual = (torch.gather(x, 1, chosen) for x in (values, ritz.residuals))
    rounding = noise * values.abs().amax(1, keepdim=True)
    settled = _settled(values, ritz.residuals, chosen, request.which, tol, rounding)
    settled &= _nothing_new(ritz, values, chosen, rounding)
    small = residual <= tol * value.abs()
    return small & settled, (small | (residual <= rounding)) & settled


def _nothing_new(
    ritz: Ritz,
    values: Float[Tensor, "b m"],
    chosen: Int[Tensor, "b k"],
    rounding: Float[Tensor, "b 1"],
) -> Bool[Tensor, "b 1"]:
    """Whether the newest direction, where there is one, has shown nothing that counts.

    What it shows counts if it is chosen and equals nothing that was known and is not chosen.
    """
    free = torch.ones_like(values, dtype=torch.bool).scatter(1, chosen, value=False)
    known = torch.where(free & ~ritz.fresh, values, torch.inf)
    value = torch.gather(values, 1, chosen)
    nearest = (value[:, :, None] - known[:, None]).abs().amin(2)
    counts = torch.gather(ritz.fresh, 1, chosen) & (nearest > rounding)
    return ~counts.any(1, keepdim=True) & ~ritz.unexplored[:, None]


def _settled(
    values: Float[Tensor, "b m"],
    residuals: Float[Tensor, "b m"],
    chosen: Int[Tensor, "b k"],
    which: Which,
    tol: float,
    rounding: Float[Tensor, "b 1"],
) -> Bool[Tensor, "b 1"]:
    """Whether no other Ritz value can still move before the last chosen one."""
    free = torch.ones_like(values, dtype=torch.bool).scatter(1, chosen, value=False)
    own = torch.gather(values, 1, chosen)
    upper = ceil(own.shape[1] / 2)
    sides = {
        "LM": [(values.abs(), own.abs())],
        "LA": [(values, own)],
        "SA": [(-values, -own)],
        "BE": [(values, own[:, :upper]), (-values, -own[:, upper:])],
    }[which]
    settled = torch.ones(len(values), 1, dtype=torch.bool)
    for every, foremost in sides:
        if foremost.shape[1]:
            last = foremost.amin(1, keepdim=True)
            reach = (every + residuals).masked_fill(~free, -torch.inf)
            settled &= (reach <= last + torch.maximum(tol * last.abs(), rounding)).all(
                1, keepdim=True
            )
    return settled
