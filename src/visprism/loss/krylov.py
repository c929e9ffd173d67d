"""Krylov methods: eigenvalues of an operator, each with a bound on its error.

Lanczos iteration with full reorthogonalization and thick restart. A symmetric operator A is a
function that multiplies each row of a tensor (s, p) by A. For a basis Q (rows) of the space and
the remainder w behind it, orthonormal,

    A Q^T = Q^T T + w c^T,

with T = Q A Q^T. If T y = theta y, then x = Q^T y has |A x - theta x| = |c^T y|: there is an
eigenvalue of A within that distance of theta.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run, stream

Which = Literal["LM", "LA", "SA", "BE"]  # as in ARPACK
WHICH = get_args(Which)

_MAX_TOL = 0.1  # relative residual: a larger one says almost nothing about a rank

# Products after the first one at which all values satisfy the criterion of convergence. An
# eigenvalue that the space has not yet seen shows up within them: over synthetic spectra at
# tol = 1e-2, a value was wrong in 30 of 450 without them, and in 1 of 1,200 with 4.
CONFIRMATIONS = 4

Product = Callable[[Float[Tensor, "s p"]], Float[Tensor, "s p"]]


@dataclass(frozen=True)
class Ritz:
    """Ritz values and vectors in ascending order, on the CPU."""

    values: Float[Tensor, " m"]
    coordinates: Float[Tensor, "m m"]  # column i: the i-th Ritz vector in the basis
    residuals: Float[Tensor, " m"]  # |A x - theta x|
    fresh: Bool[Tensor, " m"]  # mostly in the newest direction, if there is one
    unexplored: bool  # a new direction has not been multiplied yet


class Krylov:
    """A growing Krylov space of an operator.

    The basis has the precision and the device of the start vector, T and c are in double
    precision on the CPU. It holds at most `capacity` vectors.

    Sources: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Wu & Simon (2000), Thick-
    restart Lanczos method for large symmetric eigenvalue problems.
    """

    def __init__(self, product: Product, start: Float[Tensor, " p"], *, capacity: int) -> None:
        self.capacity = min(capacity, len(start))
        self._product = product
        self._basis = start.new_empty(self.capacity, len(start))
        self._T = torch.zeros(self.capacity, self.capacity, dtype=torch.float64)
        self._remainder = start / _norm(start)
        self._coupling = torch.zeros(0, dtype=torch.float64)
        self.size = 0  # m, of the basis
        self.products = 0  # vectors that went through the operator
        self.rounding = 0.0  # asymmetry of the products
        self._scale = 0.0  # norm of A, as far as it is known
        self._new_starts: list[int] = []  # indices at which new directions begin

    @property
    def basis(self) -> Float[Tensor, "m p"]:
        """Q."""
        return self._basis[: self.size]

    @property
    def exhausted(self) -> bool:
        """Whether the basis spans the whole space, so that its Ritz values are all exact."""
        return self.size == self._basis.shape[1]

    @property
    def full(self) -> bool:
        """Whether the basis must be compressed before it can grow."""
        return self.size == self.capacity and not self.exhausted

    def extend(self) -> None:
        """Add the remainder to the basis; costs one product."""
        m = self.size
        self._basis[m] = self._remainder
        self.size, self.products = m + 1, self.products + 1
        image = self._product(self._basis[m, None])[0]
        overlap = _double(self._basis[m] @ image)
        if not torch.isfinite(overlap).all():
            raise InputError(
                "products with the operator must be finite. Check the weights and the data."
            )
        # By symmetry the components along earlier vectors are known. They are subtracted first,
        # so that the second pass removes rounding errors only.
        components = torch.cat([self._coupling, overlap[None]])
        first = int(components.nonzero().flatten()[:1].sum())
        known = components[first:].to(image)
        image = torch.addmv(image, self.basis[first:].mT, known, alpha=-1)
        rest = self.basis @ image
        image.addmv_(self.basis.mT, rest, alpha=-1)
        self._note_rounding(_double(rest[:m]))
        self._T[: m + 1, m] = self._T[m, : m + 1] = _double(rest) + components
        norm = _norm(image)
        self._remainder = image / norm
        size = float(torch.linalg.matrix_norm(self._T, ord=torch.inf))
        self._scale = max(self._scale, size + float(norm))
        self._coupling = torch.zeros(m + 1, dtype=torch.float64)
        self._coupling[m] = 0.0 if self._vanished(float(norm)) else float(norm)

    def ritz(self) -> Ritz:
        """Ritz values and vectors of the present space."""
        values, coordinates = torch.linalg.eigh(self._T[: self.size, : self.size])
        residuals = (self._coupling @ coordinates).abs()
        rows = torch.zeros(self.size)
        unexplored = False
        if self._new_starts and not self.exhausted:
            explored = [i for i in self._new_starts if i < self.size]
            unexplored = not explored
            rows[explored[-1] if explored else 0 :] = 1
        fresh = (coordinates**2 * rows[:, None]).sum(0) > 0.5
        return Ritz(values, coordinates, residuals + self.rounding, fresh, unexplored)

    def vectors(self, coordinates: Float[Tensor, "m k"]) -> Float[Tensor, "k p"]:
        """The vectors with these coordinates in the basis."""
        return coordinates.to(self._basis).mT @ self.basis

    def compress(self, keep: Int[Tensor, " r"]) -> None:
        """Replace the basis by the Ritz vectors with these indices (thick restart)."""
        ritz = self.ritz()
        r = len(keep)
        chosen = ritz.coordinates[:, keep]
        self._basis[:r] = self.vectors(chosen)
        self._T.zero_()
        self._T[range(r), range(r)] = ritz.values[keep]
        self._coupling = self._coupling @ chosen
        self._new_starts = [min(i, r) for i in self._new_starts]
        self.size = r

    def _note_rounding(self, rest: Float[Tensor, " m"]) -> None:
        if not len(rest):
            return
        asymmetry = float(rest.abs().max())
        if asymmetry > 0.02 * self._scale:
            raise InputError(
                "the operator must be symmetric, got u'Av and v'Au that differ by "
                f"{asymmetry / self._scale:.1%}. A Hessian is symmetric if the loss is twice "
                "differentiable and the model is deterministic."
            )
        self.rounding = max(self.rounding, asymmetry)

    def _vanished(self, norm: float) -> bool:
        """Whether the remainder is mere rounding; a new direction then replaces it."""
        noise = 20 * torch.finfo(self._basis.dtype).eps
        if self.exhausted or norm > noise * self._scale:
            return self.exhausted
        self._remainder = self._new_direction()
        self._new_starts.append(self.size)
        return True

    def _new_direction(self) -> Float[Tensor, " p"]:
        """A random unit vector orthogonal to the space."""
        space = self.basis
        generator = stream(0, "new direction", self.size, 0, 0)
        vector = torch.randn(space.shape[1], generator=generator).to(space)
        for _ in range(2):  # twice is enough (Parlett 1998, sec. 6.9)
            vector = vector - (space @ vector) @ space
        return vector / vector.norm()


def _double(tensor: Tensor) -> Tensor:
    """In double precision, on the CPU: other devices may not have it."""
    return tensor.cpu().double()


def _norm(vector: Tensor) -> Tensor:
    """The norm of a vector, above 0."""
    return torch.linalg.vector_norm(vector).clamp_min(torch.finfo(vector.dtype).tiny)


@dataclass(frozen=True)
class Request:
    """Which eigenvalues are computed."""

    k: int
    which: Which = "LM"
    required: bool = True  # False: as they are when the others have converged


@dataclass(frozen=True)
class Eigenpairs:
    """k eigenvalues in the requested order, and eigenvectors as rows."""

    values: Float[Tensor, " k"]
    residuals: Float[Tensor, " k"]  # |A x - theta x|; an eigenvalue lies within this distance
    converged: Bool[Tensor, " k"]  # see `eigenpairs`
    vectors: Float[Tensor, "k p"]
    products: int


def eigenpairs(
    product: Product,
    start: Float[Tensor, " p"],
    requests: Sequence[Request],
    *,
    tol: float = 1e-3,
    max_products: int = 300,
    run: Run = DEFAULT_RUN,
) -> list[Eigenpairs]:
    """Eigenvalues at the ends of the spectrum of a symmetric operator, with error bounds.

    A request is for the k values that are largest in magnitude (LM), largest (LA), smallest
    (SA), or at both ends (BE, one more at the upper end if k is odd). One Krylov space serves
    all requests.

    A Ritz value theta with residual r is within r of an eigenvalue, and usually within r^2 / g
    if the next eigenvalue is g away. A value has converged when r <= tol |theta|, no other Ritz
    value can take its place, and both still hold after 4 more products, in which an eigenvalue
    that the space has missed would show up. Its rank is then right too, except where
    eigenvalues are closer together than tol |theta|: a single start vector can take them for
    one. Where a start vector has exhausted its invariant subspace, new ones are drawn until
    they reveal nothing that ranks higher, so that copies of an eigenvalue are counted.
    A value at the level of rounding errors cannot converge, as its relative error is unknown;
    products end there too.

    Cost: one product per step, and memory for 2 k + 22 vectors.

    Args:
        product: the operator, symmetric.
        start: any vector.
        requests: which eigenvalues.
        tol: relative residual of convergence, up to 0.1.
        max_products: number of products after which to stop, with at least k vectors.
        run: progress by product, and deadline.

    Returns:
        For each request, the eigenpairs.

    Sources: Golub & Van Loan (2013), sec. 10.3; Parlett (1998), The symmetric eigenvalue
    problem, sec. 11.7.
    """
    p = len(start)
    if not 0 < tol <= _MAX_TOL:
        raise InputError(f"tol must be positive and at most {_MAX_TOL}, got {tol}")
    for request in requests:
        _check(request, p)
    k = max(request.k for request in requests)
    capacity = 2 * k + 22
    space = Krylov(product, start, capacity=capacity)
    noise = 20 * torch.finfo(start.dtype).eps
    limit = max(max_products, k)
    ritz, converged, final = None, [torch.zeros(())] * len(requests), [0] * len(requests)
    with Compute(str(start.device)).arithmetic():
        for _ in run.track(range(limit), "Lanczos steps"):
            if space.full and ritz is not None:
                space.compress(_restart_indices(ritz, requests, (capacity + 2 * k) // 3))
            space.extend()
            if space.size < k:
                continue
            ritz = space.ritz()
            for i, request in enumerate(requests):
                now = _convergence(ritz, request, tol, noise)
                # For how many products in succession the criterion has held, by rank.
                converged[i] = (converged[i] + 1) * now[0]
                final[i] = final[i] + 1 if bool(now[1].all()) else 0
            required = [n for n, r in zip(final, requests, strict=True) if r.required]
            if space.exhausted or min(required, default=0) > CONFIRMATIONS:
                break
        assert ritz is not None  # the limit leaves room for k vectors
        least = 0 if space.exhausted else CONFIRMATIONS
        return [
            _select(space, ritz, request, products > least)
            for request, products in zip(requests, converged, strict=True)
        ]


def _check(request: Request, p: int) -> None:
    if not 1 <= request.k <= p:
        raise InputError(
            f"k must be between 1 and {p} (the operator has {p} eigenvalues), got {request.k}"
        )
    if request.which not in WHICH:
        raise InputError(f"which must be one of {', '.join(WHICH)}, got {request.which!r}")


def _select(
    space: Krylov, ritz: Ritz, request: Request, converged: Bool[Tensor, " k"]
) -> Eigenpairs:
    chosen = leading(ritz.values, request.k, request.which)
    return Eigenpairs(
        values=ritz.values[chosen],
        residuals=ritz.residuals[chosen],
        converged=converged,
        vectors=space.vectors(ritz.coordinates[:, chosen]),
        products=space.products,
    )


def _restart_indices(ritz: Ritz, requests: Sequence[Request], r: int) -> Int[Tensor, " r"]:
    """Indices of r Ritz values, the leading ones of each required request in turn."""
    m = len(ritz.values)
    orders = [
        leading(ritz.values, m, q.which).tolist()
        if q.which != "BE"
        else [i for pair in zip(range(m - 1, -1, -1), range(m), strict=True) for i in pair]
        for q in requests
        if q.required
    ]
    turns = dict.fromkeys(i for turn in zip(*orders, strict=True) for i in turn)
    return torch.tensor(list(turns)[:r])


def leading(values: Float[Tensor, " m"], k: int, which: Which) -> Int[Tensor, " k"]:
    """Indices of the k values that `which` selects, in order of rank."""
    if which == "LM":
        return values.abs().argsort(descending=True)[:k]
    descending, ascending = values.argsort(descending=True), values.argsort()
    if which == "BE":
        return torch.cat([descending[: ceil(k / 2)], ascending[: k // 2]])
    return descending[:k] if which == "LA" else ascending[:k]


def _convergence(
    ritz: Ritz, request: Request, tol: float, noise: float
) -> tuple[Bool[Tensor, " k"], Bool[Tensor, " k"]]:
    """Which values have converged, and which cannot be improved by further products."""
    values = ritz.values
    chosen = leading(values, request.k, request.which)
    value, residual = values[chosen], ritz.residuals[chosen]
    rounding = noise * float(values.abs().max())
    settled = _settled(values, ritz.residuals, chosen, request.which, tol, rounding)
    settled = settled and _nothing_new(ritz, values, chosen, rounding)
    small = residual <= tol * value.abs()
    return small & settled, (small | (residual <= rounding)) & settled


def _nothing_new(
    ritz: Ritz, values: Float[Tensor, " m"], chosen: Int[Tensor, " k"], rounding: float
) -> bool:
    """Whether the newest direction, if there is one, has revealed no value that is chosen.

    A value is new unless it equals one that was known before and is not chosen.
    """
    earlier = torch.where(_free(values, chosen) & ~ritz.fresh, values, torch.inf)
    nearest = (values[chosen, None] - earlier).abs().amin(1)
    return not ritz.unexplored and not bool((ritz.fresh[chosen] & (nearest > rounding)).any())


def _settled(
    values: Float[Tensor, " m"],
    residuals: Float[Tensor, " m"],
    chosen: Int[Tensor, " k"],
    which: Which,
    tol: float,
    rounding: float,
) -> bool:
    """Whether no other Ritz value can still move before the last chosen one."""
    selected = values[chosen]
    upper = ceil(len(selected) / 2)
    sides = {
        "LM": [(values.abs(), selected.abs())],
        "LA": [(values, selected)],
        "SA": [(-values, -selected)],
        "BE": [(values, selected[:upper]), (-values, -selected[upper:])],
    }[which]
    for candidates, ranked in sides:
        if len(ranked):
            last = float(ranked.min())
            reach = (candidates + residuals).masked_fill(~_free(values, chosen), -torch.inf)
            if not bool((reach <= last + max(tol * abs(last), rounding)).all()):
                return False
    return True


def _free(values: Float[Tensor, " m"], chosen: Int[Tensor, " k"]) -> Bool[Tensor, " m"]:
    """Which Ritz values are not chosen."""
    return torch.ones_like(values, dtype=torch.bool).index_fill(0, chosen, value=False)
