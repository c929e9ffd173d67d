"""Krylov spaces: block Lanczos with full re-orthogonalisation and thick restart.

For a basis Q (rows) of the space and the remainder W behind it, all rows orthonormal,

    A Q^T = Q^T T + W^T C,

with T = Q A Q^T. If T y = theta y, then x = Q^T y has |A x - theta x| = |C y|: there is an
eigenvalue of A that near to theta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.rng import stream

Product = Callable[[Float[Tensor, "b s p"]], Float[Tensor, "b s p"]]


@dataclass(frozen=True)
class Ritz:
    """What a Krylov space knows of the eigenvalues of each operator, in ascending order."""

    values: Float[Tensor, "b m"]
    coordinates: Float[Tensor, "b m m"]  # column i: the i-th Ritz vector in the basis
    residuals: Float[Tensor, "b m"]  # |A x - theta x|
    fresh: Bool[Tensor, "b m"]  # mostly in the newest direction, where there is one
    unexplored: Bool[Tensor, " b"]  # a direction is new, and nothing is known of it


class Krylov:
    """A growing Krylov space of each of b operators.

    The basis is kept in the precision of the start, T and C in double precision.

    Args:
        product: the operators, symmetric.
        start: s vectors for each operator, linearly independent.
        capacity: the most basis vectors that are kept; at most p are needed.

    Raises:
        InputError: while it grows, if the operator is not symmetric or a product not finite.

    Sources: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Wu & Simon (2000), Thick-
    restart Lanczos method for large symmetric eigenvalue problems.
    """

    def __init__(
        self, product: Product, start: Float[Tensor, "b s p"], *, capacity: int
    ) -> None:
        b, s, p = start.shape
        self.capacity = min(capacity, p)
        if self.capacity < s:
            raise InputError(f"a block of {s} vectors needs a basis of {s}, got {capacity}")
        self._product = product
        self._basis = start.new_empty(b, self.capacity, p)
        self._T = torch.zeros(b, self.capacity, self.capacity, dtype=torch.float64)
        self._remainder, _ = _orthonormal(start.clone())
        self._coupling = torch.zeros(b, s, 0, dtype=torch.float64)
        self.size = 0  # m, of the basis
        self.products = 0  # blocks of s vectors that went through the operators
        self.rounding = torch.zeros(b, dtype=torch.float64)  # how unsymmetric products are
        self._scale = torch.zeros(b, dtype=torch.float64)  # of A, as far as it was seen
        self._begun: list[list[int]] = [[] for _ in range(b)]  # where new directions begin

    @property
    def basis(self) -> Float[Tensor, "b m p"]:
        """Q."""
        return self._basis[:, : self.size]

    @property
    def exhausted(self) -> bool:
        """Whether the basis spans the whole space, so that its Ritz values are all exact."""
        return self.size == self._basis.shape[2]

    @property
    def full(self) -> bool:
        """Whether the basis must be compressed before it can grow."""
        room = self.capacity - self.size
        return room < self._remainder.shape[1] and not self.exhausted

    def extend(self) -> None:
        """Add the remainder to the basis, at the price of one product."""
        b, m, p = len(self._basis), self.size, self._basis.shape[2]
        block = self._remainder[:, : p - m]
        s = block.shape[1]
        self._basis[:, m : m + s] = block
        self.size, self.products = m + s, self.products + 1
        image = self._product(block)
        own = block @ image.mT
        if not torch.isfinite(own).all():
            raise InputError(
                "a product with the operator is not finite; look at the weights and the data"
            )
        # By symmetry, what the new vectors have in common with the old ones is known, and in
        # one pass it would be lost in rounding: what the second finds is rounding alone.
        known = torch.cat([self._coupling.mT[:, :, :s], own.double().cpu()], dim=1)
        first = int(known.abs().amax((0, 2)).nonzero().flatten()[:1].sum())
        image = torch.baddbmm(
            image, known[:, first:].to(image).mT, self.basis[:, first:], alpha=-1
        )
        rest = self.basis @ image.mT
        image.baddbmm_(rest.mT, self.basis, alpha=-1)
        self._note_rounding(rest[:, :m].double().cpu())
        column = rest.double().cpu() + known
        column[:, m:] = (column[:, m:] + column[:, m:].mT) / 2
        self._T[:, : m + s, m : m + s] = column
        self._T[:, m : m + s, : m + s] = column.mT
        self._remainder, upper = _orthonormal(image)
        seen = torch.linalg.matrix_norm(self._T, ord=torch.inf)
        self._scale = torch.maximum(self._scale, seen + upper.double().cpu().abs().amax((1, 2)))
        coupling = torch.zeros(b, s, m + s, dtype=torch.float64)
        coupling[:, :, m:] = upper.double().cpu()
        self._coupling = self._without_noise(coupling)

    def ritz(self) -> Ritz:
        """Ritz values of the space as it is."""
        T = self._T[:, : self.size, : self.size]
        values, coordinates = torch.linalg.eigh(T)
        residuals = torch.linalg.vector_norm(self._coupling @ coordinates, dim=1)
        rows = torch.zeros(len(values), self.size)
        unexplored = torch.zeros(len(values), dtype=torch.bool)
        wait = self._remainder.shape[1]  # directions that are explored side by side
        for problem, begun in enumerate(self._begun):
            if not begun or self.exhausted:
                continue
            explored = [at for at in begun if at < self.size][-wait:]
            unexplored[problem] = len(explored) < wait
            rows[problem, explored[0] if explored else 0 :] = 1
        fresh = (coordinates**2 * rows[:, :, None]).sum(1) > 0.5
        return Ritz(values, coordinates, residuals + self.rounding[:, None], fresh, unexplored)

    def vectors(self, coordinates: Float[Tensor, "b m k"]) -> Float[Tensor, "b k p"]:
        """The vectors with these coordinates in the basis."""
        return _combined(coordinates.to(self._basis), self.basis)

    def compress(self, keep: Int[Tensor, "b r"]) -> None:
        """Keep only the Ritz vectors of these numbers, and all that is known of them."""
        ritz = self.ritz()
        b, r = keep.shape
        chosen = torch.gather(ritz.coordinates, 2, keep[:, None].expand(b, self.size, r))
        self._basis[:, :r] = self.vectors(chosen)
        self._T.zero_()
        self._T[:, range(r), range(r)] = torch.gather(ritz.values, 1, keep)
        self._coupling = self._coupling @ chosen
        self._begun = [[min(at, r) for at in begun] for begun in self._begun]
        self.size = r

    def _note_rounding(self, rest: Float[Tensor, "b m s"]) -> None:
        if rest.shape[1] == 0:
            return
        found = rest.abs().amax((1, 2))
        if (found > 0.02 * self._scale).any():
            raise InputError(
                "the operator is not symmetric: u'Av and v'Au differ by "
                f"{float((found / self._scale).max()):.1%}; a Hessian is symmetric where the "
                "loss is twice differentiable and products are the same each time"
            )
        self.rounding = torch.maximum(self.rounding, found)

    def _without_noise(self, coupling: Tensor) -> Tensor:
        """C without what rounding alone has left; the remainder is then another direction."""
        noise = 20 * torch.finfo(self._basis.dtype).eps
        lost = torch.linalg.vector_norm(coupling, dim=2) <= noise * self._scale[:, None]
        if self.exhausted:
            return torch.zeros_like(coupling)
        for problem, row in lost.nonzero().tolist():
            self._remainder[problem, row] = self._new_direction(problem, row)
            coupling[problem, row] = 0
            self._begun[problem].append(self.size)
        return coupling

    def _new_direction(self, problem: int, row: int) -> Float[Tensor, " p"]:
        """A unit vector in a random direction that is not yet in the space."""
        others = [i for i in range(self._remainder.shape[1]) if i != row]
        known = torch.cat([self.basis[problem], self._remainder[problem, others]])
        generator = stream(0, "new direction", self.size, problem, row)
        new = torch.randn(known.shape[1], generator=generator).to(known)
        for _ in range(2):  # twice is enough (Parlett 1998, sec. 6.9)
            new = new - (known @ new) @ known
        return new / new.norm()


def _combined(
    weights: Float[Tensor, "b m s"], vectors: Float[Tensor, "b m p"]
) -> Float[Tensor, "b s p"]:
    return weights.to(vectors).mT @ vectors


def _orthonormal(rows: Float[Tensor, "b s p"]) -> tuple[Tensor, Tensor]:
    """Orthonormal rows W, and the upper triangle R with rows = R^T W; may use their memory."""
    if rows.shape[1] == 1:
        norm = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
        return rows.div_(norm.clamp_min(torch.finfo(rows.dtype).tiny)), norm
    columns, upper = torch.linalg.qr(rows.mT)
    return columns.mT, upper
