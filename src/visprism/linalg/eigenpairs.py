"""Eigenpairs: a few eigenvalues of each operator, each with a bound on its error."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from visprism.errors import InputError
from visprism.linalg.krylov import Krylov, Product, Ritz

Which = Literal["LM", "LA", "SA", "BE"]  # ARPACK's words
WHICH = get_args(Which)


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
    converged when r is at most tol |theta|, or the rounding of products, and no other Ritz
    value can any more take its place.

    Costs one product per step, and memory for `capacity` vectors of each operator. What a
    single start vector cannot see, a second copy of an eigenvalue, is seen by a block of two.

    Args:
        product: the operators, symmetric.
        start: one or several vectors for each.
        requests: which eigenvalues.
        tol: relative residual at which to stop.
        most_products: after which to stop in any case.
        seconds: after which to stop in any case.
        capacity: of the basis; when it is full, the best part is kept (thick restart).

    Returns:
        What was found, for each request.

    Raises:
        InputError: if k is not in 1 ... p, `which` is unknown, or as `Krylov`.

    Sources: Golub & Van Loan (2013), sec. 10.3; Parlett (1998), The symmetric eigenvalue
    problem, sec. 11.7.
    """
    p = start.shape[2]
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
        judged = [_converged(ritz, request, tol, noise) for request in requests]
        done = all(
            bool(each.all()) or not request.required
            for each, request in zip(judged, requests, strict=True)
        )
        late = seconds is not None and time.monotonic() - begun > seconds
        if done or late or space.exhausted or space.products >= most_products:
            break
        if space.full:
            space.compress(_worth_keeping(ritz, requests, (room + 2 * most) // 3))
    return [
        _found(space, ritz, request, converged)
        for request, converged in zip(requests, judged, strict=True)
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
    """Positions of r Ritz values, the foremost of each required request in turn."""
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
    """Positions of the k values that `which` asks for, the foremost first."""
    if which == "LM":
        return values.abs().argsort(dim=1, descending=True)[:, :k]
    up, down = values.argsort(dim=1, descending=True), values.argsort(dim=1)
    if which == "BE":
        return torch.cat([up[:, : ceil(k / 2)], down[:, : k // 2]], dim=1)
    return up[:, :k] if which == "LA" else down[:, :k]


def _converged(ritz: Ritz, request: Request, tol: float, noise: float) -> Bool[Tensor, "b k"]:
    values = ritz.values + request.shift
    chosen = wanted(values, request.k, request.which)
    value, residual = (torch.gather(x, 1, chosen) for x in (values, ritz.residuals))
    scale = values.abs().amax(1, keepdim=True)
    small = residual <= torch.maximum(tol * value.abs(), noise * scale)
    return small & _settled(values, ritz.residuals, chosen, request.which, tol)


def _settled(
    values: Float[Tensor, "b m"],
    residuals: Float[Tensor, "b m"],
    chosen: Int[Tensor, "b k"],
    which: Which,
    tol: float,
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
            settled &= (reach <= last + tol * last.abs()).all(1, keepdim=True)
    return settled
