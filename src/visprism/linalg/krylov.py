"""Krylov spaces: block Lanczos with full reorthogonalization and thick restart.

For a basis Q (rows) of the space and the remainder W behind it, all rows orthonormal,

    A Q^T = Q^T T + W^T C,

with T = Q A Q^T. If T y = theta y, then x = Q^T y has |A x - theta x| = |C y|: there is an
eigenvalue of A within that distance of theta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.run import stream

Product = Callable[[Float[Tensor, "b s p"]], Float[Tensor, "b s p"]]


@dataclass(frozen=True)
class Ritz:
    """Ritz values and vectors of each operator, in ascending order."""

    values: Float[Tensor, "b m"]
    coordinates: Float[Tensor, "b m m"]  # column i: the i-th Ritz vector in the basis
    residuals: Float[Tensor, "b m"]  # |A x - theta x|
    fresh: Bool[Tensor, "b m"]  # mostly in the newest direction, if there is one
    unexplored: Bool[Tensor, " b"]  # a new direction has not been multiplied yet


class Krylov:
    """A growing Krylov space of each of b operators.

    The basis has the precision of the start vectors, T and C double precision.

    Args:
        product: the operators, symmetric.
        start: s vectors for each operator, linearly independent.
        capacity: maximum number of basis vectors; at most p are needed.

    Sources: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Wu & Simon (2000), Thick-
    restart Lanczos method for large symmetric eigenvalue problems.
    """

    def __init__(
        self, product: Product, start: Float[Tensor, "b s p"], *, capacity: int
    ) -> None:
        b, s, p = start.shape
        self.capacity = min(capacity, p)
        if self.capacity < s:
            raise InputError(
                f"capacity must be at least {s} (the number of start vectors), got {capacity}"
            )
        self._product = product
        self._basis = start.new_empty(b, self.capacity, p)
        self._T = torch.zeros(b, self.capacity, self.capacity, dtype=torch.float64)
        self._remainder, _ = _orthonormal(start.clone())
        self._coupling = torch.zeros(b, s, 0, dtype=torch.float64)
        self.size = 0  # m, of the basis
        self.products = 0  # blocks of s vectors that went through the operators
        self.rounding = torch.zeros(b, dtype=torch.float64)  # asymmetry of the products
        self._scale = torch.zeros(b, dtype=torch.float64)  # norm of A, as far as it is known
        self._new_starts: list[list[int]] = [
            [] for _ in range(b)
        ]  # indices at which new directions begin

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
        """Add the remainder to the basis; costs one product."""
        b, m, p = len(self._basis), self.size, self._basis.shape[2]
        block = self._remainder[:, : p - m]
        s = block.shape[1]
        self._basis[:, m : m + s] = block
        self.size, self.products = m + s, self.products + 1
        image = self._product(block)
        overlap = block @ image.mT
        if not torch.isfinite(overlap).all():
            raise InputError(
                "products with the operator must be finite. Check the weights and the data."
            )
        # By symmetry the components along earlier vectors are known. They are subtracted first,
        # so that the second pass removes rounding errors only.
        components = torch.cat([self._coupling.mT[:, :, :s], overlap.double().cpu()], dim=1)
        first = int(components.abs().amax((0, 2)).nonzero().flatten()[:1].sum())
        image = torch.baddbmm(
            image, components[:, first:].to(image).mT, self.basis[:, first:], alpha=-1
        )
        rest = self.basis @ image.mT
        image.baddbmm_(rest.mT, self.basis, alpha=-1)
        self._note_rounding(rest[:, :m].double().cpu())
        column = rest.double().cpu() + components
        column[:, m:] = (column[:, m:] + column[:, m:].mT) / 2
        self._T[:, : m + s, m : m + s] = column
        self._T[:, m : m + s, : m + s] = column.mT
        self._remainder, upper = _orthonormal(image)
        norm = torch.linalg.matrix_norm(self._T, ord=torch.inf)
        self._scale = torch.maximum(self._scale, norm + upper.double().cpu().abs().amax((1, 2)))
        coupling = torch.zeros(b, s, m + s, dtype=torch.float64)
        coupling[:, :, m:] = upper.double().cpu()
        self._coupling = self._without_noise(coupling)

    def ritz(self) -> Ritz:
        """Ritz values and vectors of the present space."""
        T = self._T[:, : self.size, : self.size]
        values, coordinates = torch.linalg.eigh(T)
        residuals = torch.linalg.vector_norm(self._coupling @ coordinates, dim=1)
        rows = torch.zeros(len(values), self.size)
        unexplored = torch.zeros(len(values), dtype=torch.bool)
        block = self._remainder.shape[1]  # directions that are explored at once
        for problem, starts in enumerate(self._new_starts):
            if not starts or self.exhausted:
                continue
            explored = [i for i in starts if i < self.size][-block:]
            unexplored[problem] = len(explored) < block
            rows[problem, explored[0] if explored else 0 :] = 1
        fresh = (coordinates**2 * rows[:, :, None]).sum(1) > 0.5
        return Ritz(values, coordinates, residuals + self.rounding[:, None], fresh, unexplored)

    def vectors(self, coordinates: Float[Tensor, "b m k"]) -> Float[Tensor, "b k p"]:
        """The vectors with these coordinates in the basis."""
        return _combined(coordinates.to(self._basis), self.basis)

    def compress(self, keep: Int[Tensor, "b r"]) -> None:
        """Replace the basis by the Ritz vectors with these indices (thick restart)."""
        ritz = self.ritz()
        b, r = keep.shape
        chosen = torch.gather(ritz.coordinates, 2, keep[:, None].expand(b, self.size, r))
        self._basis[:, :r] = self.vectors(chosen)
        self._T.zero_()
        self._T[:, range(r), range(r)] = torch.gather(ritz.values, 1, keep)
        self._coupling = self._coupling @ chosen
        self._new_starts = [[min(i, r) for i in starts] for starts in self._new_starts]
        self.size = r

    def _note_rounding(self, rest: Float[Tensor, "b m s"]) -> None:
        if rest.shape[1] == 0:
            return
        asymmetry = rest.abs().amax((1, 2))
        if (asymmetry > 0.02 * self._scale).any():
            raise InputError(
                "the operator must be symmetric, got u'Av and v'Au that differ by "
                f"{float((asymmetry / self._scale).max()):.1%}. A Hessian is symmetric if the "
                "loss is twice differentiable and the model is deterministic."
            )
        self.rounding = torch.maximum(self.rounding, asymmetry)

    def _without_noise(self, coupling: Tensor) -> Tensor:
        """C with rows of mere rounding set to 0; their remainder becomes a new direction."""
        noise = 20 * torch.finfo(self._basis.dtype).eps
        vanished = torch.linalg.vector_norm(coupling, dim=2) <= noise * self._scale[:, None]
        if self.exhausted:
            return torch.zeros_like(coupling)
        for problem, row in vanished.nonzero().tolist():
            self._remainder[problem, row] = self._new_direction(problem, row)
            coupling[problem, row] = 0
            self._new_starts[problem].append(self.size)
        return coupling

    def _new_direction(self, problem: int, row: int) -> Float[Tensor, " p"]:
        """A random unit vector orthogonal to the space."""
        other_rows = [i for i in range(self._remainder.shape[1]) if i != row]
        space = torch.cat([self.basis[problem], self._remainder[problem, other_rows]])
        generator = stream(0, "new direction", self.size, problem, row)
        vector = torch.randn(space.shape[1], generator=generator).to(space)
        for _ in range(2):  # twice is enough (Parlett 1998, sec. 6.9)
            vector = vector - (space @ vector) @ space
        return vector / vector.norm()


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
