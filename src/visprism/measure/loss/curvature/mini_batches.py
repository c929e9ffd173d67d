"""Mini-batches: the eigenvalues of each one's own Hessian, one by one or several at once."""

import time
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from visprism import linalg
from visprism.anatomy import Images
from visprism.core.devices import free_bytes
from visprism.core.processes import rank, share, world_size
from visprism.core.rng import stream
from visprism.linalg import Product, Request
from visprism.measure.loss.curvature.batched_hessian import BatchedHessian
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Products

Batch = tuple[Images, Tensor]
Group = list[tuple[int, Batch]]  # mini-batches with their numbers
Progress = Callable[[Iterable], Iterable]

_SHARE = 0.5  # of the free memory, that problems which are solved at once may take
_VECTORS = 40  # that a problem keeps, and that pass by


def groups(
    batches: Iterable[Batch],
    together: int | None,
    objective: Callable[[Batch], Objective],
    progress: Progress | None,
    seconds: float | None,
) -> Iterator[Group]:
    """This process's mini-batches, as many of one shape at once as are asked for, or fit."""
    group: Group = []
    begun = time.monotonic()
    shown = progress if progress and rank() == 0 else iter
    for i, batch in enumerate(shown(share(batches))):
        if i and seconds is not None and time.monotonic() - begun > seconds:
            break
        together = together or _fitting(objective(batch))
        if group and (len(group) == together or not _alike(group[0][1], batch)):
            yield group
            group = []
        group.append((rank() + i * world_size(), batch))
    if group:
        yield group


def solved(
    objective: Objective,
    group: Group,
    requests: list[Request],
    tol: float,
    use: tuple,
) -> tuple[list[tuple], int]:
    """A row for each eigenvalue, and the number of products.

    Args:
        objective: of the first mini-batch.
        group: the mini-batches.
        requests: which eigenvalues of each.
        tol: relative residual.
        use: of the random starts: seed and words.

    Returns:
        Rows of (shift, number, nll, which, rank, value, residual, converged); the rank is 0
        for what was not required.
    """
    product: Product
    if len(group) == 1:
        product = Products(objective)
    else:
        product = BatchedHessian(objective, [batch for _, batch in group])  # pyrefly: ignore (see `_alike`)
    numbers = [number for number, _ in group]
    start = torch.stack(
        [torch.randn(1, len(objective), generator=stream(*use, n)) for n in numbers]
    )
    found = linalg.eigenpairs(product, start.to(objective.decay), requests, tol=tol)
    nll = [product.seen[0]] if isinstance(product, Products) else product.nll.tolist()
    rows = []
    for request, pairs in zip(requests, found, strict=True):
        columns = (pairs.values, pairs.residuals, pairs.converged)
        for i, number in enumerate(numbers):
            foremost = zip(*(column[i].tolist() for column in columns), strict=True)
            for j, row in enumerate(foremost, start=1 if request.required else 0):
                rows.append((request.shift, number, nll[i], request.which, j, *row))
    return rows, found[0].products * len(group)


def _fitting(objective: Objective) -> int:
    """How many mini-batches like this one to solve at once.

    On a CPU one: four at once took 1.1 to 1.3 times as long as one after the other.
    """
    device = objective.compute.torch_device
    if device.type == "cpu":
        return 1
    products = Products(objective)
    products(objective.theta[None, None])
    each = products.bytes_held + _VECTORS * objective.decay.nbytes
    return max(1, int(_SHARE * free_bytes(device) / each))


def _alike(a: Batch, b: Batch) -> bool:
    if not (isinstance(a[0], Tensor) and isinstance(b[0], Tensor)):
        return False
    return a[0].shape == b[0].shape and a[1].shape == b[1].shape
