"""Eigenvalues of the Hessians of mini-batches, one by one or several at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from visprism import linalg
from visprism.anatomy import Images
from visprism.core.devices import free_bytes
from visprism.core.processes import rank, world_size
from visprism.core.run import Run, stream
from visprism.linalg import Product, Request
from visprism.measure.loss.curvature.batched_hessian import BatchedHessian
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Products

Batch = tuple[Images, Tensor]
Group = list[tuple[int, Batch]]  # mini-batches with their numbers

_MEMORY_SHARE = 0.5  # of the free memory, for mini-batches that are solved at once
_VECTORS = 40  # like theta, that one problem needs


@dataclass(frozen=True)
class MiniBatchSolver:
    """Eigenvalues of each mini-batch of a group, of the NLL and of NLL + L2."""

    objective: Objective  # NLL + L2; its batches are replaced by mini-batches
    requests: Sequence[Request]
    tol: float

    def __call__(self, group: Group, *use: object) -> tuple[list[tuple], int]:
        """A row for each eigenvalue, and the number of products.

        Args:
            group: the mini-batches.
            *use: of the random start vectors.

        Returns:
            Rows of (weight decay, number, nll, which, rank, value, residual, converged); the
            rank is 0 for values that are not required.
        """
        decay, weight_decay = self.objective.decay, self.objective.weight_decay
        nll_only = self.objective.without_decay()
        numbers, batches = [number for number, _ in group], [batch for _, batch in group]
        product: Products | BatchedHessian
        if len(group) == 1:
            product = Products(nll_only.with_batches(batches, shared=False))
        else:
            product = BatchedHessian(nll_only, batches)  # pyrefly: ignore (see `_stackable`)
        seed = self.objective.run.seed
        start = torch.stack(
            [torch.randn(1, len(decay), generator=stream(seed, *use, n)) for n in numbers]
        ).to(decay)
        uniform = bool((decay == decay[0]).all())
        shifts = dict.fromkeys((0.0, weight_decay if uniform else 0.0))
        pairs, products = self._eigenpairs(product, start, list(shifts))
        if weight_decay and not uniform:  # then L2 changes the eigenvectors too
            more, extra = self._eigenpairs(_decayed(product, decay), start, [weight_decay], 0.0)
            pairs, products = pairs | more, products + extra
        nll = product.nll.tolist() if isinstance(product, BatchedHessian) else [_nll(product)]
        rows = [
            (wd, numbers[i], nll[i], request.which, j if request.required else 0, *row)
            for (wd, request), eigenpairs in pairs.items()
            for i in range(len(numbers))
            for j, row in enumerate(_rows(eigenpairs, i), start=1)
        ]
        return rows, products * len(group)

    def _eigenpairs(
        self, product: Product, start: Tensor, decays: list[float], shift: float | None = None
    ) -> tuple[dict[tuple[float, Request], linalg.Eigenpairs], int]:
        """Eigenpairs by weight decay and request from one Krylov space, and its products."""
        keys = [(wd, request) for wd in decays for request in self.requests]
        requests = [replace(r, shift=wd if shift is None else shift) for wd, r in keys]
        pairs = linalg.eigenpairs(
            product, start, requests, tol=self.tol, run=self.objective.run
        )
        return dict(zip(keys, pairs, strict=True)), pairs[0].products


def groups(
    batches: Iterable[Batch],
    parallel_batches: int | None,
    objective: Callable[[Batch], Objective],
    run: Run,
    number: int | None,
) -> Iterator[Group]:
    """The mini-batches of this process in their order, several of one shape at once.

    Args:
        batches: the mini-batches.
        parallel_batches: how many at once; None: as many as the memory of a GPU holds.
        objective: of a mini-batch.
        run: progress and deadline.
        number: of mini-batches, in all processes together; None: all.
    """
    group: Group = []
    limited = batches if number is None else islice(batches, number)
    for i, batch in enumerate(run.track_share(limited, "mini-batches")):
        if parallel_batches is None:
            parallel_batches = _fitting(lambda first=batch: objective(first), run)
        if group and not _stackable(group[0][1], batch):
            yield group
            group = []
        group.append((rank() + i * world_size(), batch))
        if len(group) == parallel_batches:
            yield group
            group = []
    if group:
        yield group


def _decayed(product: Product, decay: Float[Tensor, " p"]) -> Product:
    def with_decay(vectors: Tensor) -> Tensor:
        return product(vectors) + decay * vectors

    return with_decay


def _nll(product: Products) -> float:
    return product.nll_and_examples[0]


def _rows(pairs: linalg.Eigenpairs, operator: int) -> Iterator[tuple]:
    columns = (pairs.values, pairs.residuals, pairs.converged)
    return zip(*(column[operator].tolist() for column in columns), strict=True)


def _fitting(make: Callable[[], Objective], run: Run) -> int:
    """How many mini-batches like this one to solve at once.

    One on a CPU, where four at once took 1.1 to 1.3 times as long as one after the other.
    """
    device = run.compute.torch_device
    if device.type == "cpu":
        return 1
    objective = make()
    products = Products(objective)
    products(objective.theta[None, None])
    size = products.bytes_held + _VECTORS * objective.decay.nbytes
    return max(1, int(_MEMORY_SHARE * free_bytes(device) / size))


def _stackable(a: Batch, b: Batch) -> bool:
    if not (isinstance(a[0], Tensor) and isinstance(b[0], Tensor)):
        return False
    return a[0].shape == b[0].shape and a[1].shape == b[1].shape
