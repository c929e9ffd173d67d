"""Eigenpairs: a few eigenvalues of each operator, each with a bound on its error."""

import time
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
    *,
    k: int,
    which: Which = "LM",
    tol: float = 1e-3,
    most_products: int = 300,
    seconds: float | None = None,
    capacity: int | None = None,
) -> Eigenpairs:
    """Eigenvalues at the ends of the spectra of symmetric operators, with error bounds.

    The k values are the largest in magnitude (LM), largest (LA), smallest (SA), or those
    at both ends (BE, one more at the upper end if k is odd).

    A Ritz value theta with residual r is at most r away from an eigenvalue; as a rule only
    r^2 / g, where the next one is g away, but where two have not yet come apart, r. A value has
    converged when r is at most tol |theta|, or the rounding of products, and no other Ritz
    value can any more take its place.

    Costs one product per step, and memory for `capacity` vectors of each operator. What a
    single start vector cannot see, a second copy of an eigenvalue, is seen by a block of two.

    Args:
        product: the operators, symmetric.
        start: one or several vectors for each.
        k: how many eigenvalues.
        which: of them; see above.
        tol: relative residual at which to stop.
        most_products: after which to stop in any case.
        seconds: after which to stop in any case.
        capacity: of the basis; when it is full, the best part is kept (thick restart).

    Raises:
        InputError: if k is not in 1 ... p, `which` is unknown, or as `Krylov`.

    Sources: Golub & Van Loan (2013), sec. 10.3; Parlett (1998), The symmetric eigenvalue
    problem, sec. 11.7.
    """
    p = start.shape[2]
    if not 1 <= k <= p:
        raise InputError(f"k is {k}; the operator has {p} eigenvalues, so 1 to {p} can be had")
    if which not in WHICH:
        raise InputError(f"which is {which!r}; wants one of {', '.join(WHICH)}")
    begun = time.monotonic()
    block = start.shape[1]
    room = max(capacity or 0, 2 * k + 20 + 2 * block)
    space = Krylov(product, start, capacity=room)
    while True:
        space.extend()
        if space.size < k:
            continue
        ritz = space.ritz()
        chosen = wanted(ritz.values, k, which)
        converged = _converged(ritz, chosen, which, tol, 20 * torch.finfo(start.dtype).eps)
        spent = seconds is not None and time.monotonic() - begun > seconds
        if space.exhausted or bool(converged.all()) or space.products >= most_products or spent:
            break
        if space.full:
            keep = wanted(ritz.values, k + (room - k) // 3, _both_ends(which))
            space.compress(keep)
    coordinates = torch.gather(ritz.coordinates, 2, chosen[:, None].expand(-1, space.size, -1))
    return Eigenpairs(
        values=torch.gather(ritz.values, 1, chosen),
        residuals=torch.gather(ritz.residuals, 1, chosen),
        converged=converged,
        vectors=space.vectors(coordinates),
        products=space.products,
    )


def wanted(values: Float[Tensor, "b m"], k: int, which: Which) -> Int[Tensor, "b k"]:
    """Positions of the k values that `which` asks for, the foremost first."""
    if which == "LM":
        return values.abs().argsort(dim=1, descending=True)[:, :k]
    up, down = values.argsort(dim=1, descending=True), values.argsort(dim=1)
    if which == "BE":
        return torch.cat([up[:, : ceil(k / 2)], down[:, : k // 2]], dim=1)
    return up[:, :k] if which == "LA" else down[:, :k]


def _both_ends(which: Which) -> Which:
    return "LM" if which == "LM" else which


def _converged(
    ritz: Ritz, chosen: Int[Tensor, "b k"], which: Which, tol: float, noise: float
) -> Bool[Tensor, "b k"]:
    value = torch.gather(ritz.values, 1, chosen)
    residual = torch.gather(ritz.residuals, 1, chosen)
    scale = ritz.values.abs().amax(1, keepdim=True)
    small = residual <= torch.maximum(tol * value.abs(), noise * scale)
    return small & _settled(ritz, chosen, which, tol)


def _settled(
    ritz: Ritz, chosen: Int[Tensor, "b k"], which: Which, tol: float
) -> Bool[Tensor, "b 1"]:
    """Whether no other Ritz value can still move before the last chosen one."""
    others = torch.ones_like(ritz.values, dtype=torch.bool).scatter(1, chosen, value=False)
    value = torch.gather(ritz.values, 1, chosen)
    settled = torch.ones(len(value), 1, dtype=torch.bool)
    sides = {"LM": ("abs",), "LA": ("up",), "SA": ("down",), "BE": ("up", "down")}[which]
    for side in sides:
        keyed, own = (_key(x, side) for x in (ritz.values, value))
        if which == "BE":
            upper = ceil(value.shape[1] / 2)
            own = own[:, :upper] if side == "up" else own[:, upper:]
        if own.shape[1] == 0:
            continue
        last = own.amin(1, keepdim=True)
        reach = (keyed + ritz.residuals).masked_fill(~others, -torch.inf)
        settled &= (reach <= last + tol * last.abs()).all(1, keepdim=True)
    return settled


def _key(values: Tensor, side: str) -> Tensor:
    return {"abs": values.abs(), "up": values, "down": -values}[side]
