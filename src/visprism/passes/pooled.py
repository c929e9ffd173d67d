"""Pooled features: one vector for each image and block, of its class tokens or its grid."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.run.surgery import watch_tokens
from visprism.anatomy.trace.forward import batch_size, forward
from visprism.core.devices import on_cpu
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.passes.batches import Batch, blocks_on_grid, image_indices, images_of, targets_of
from visprism.passes.tokens import token_roles

Pooling = Literal["mean", "class", "both"]


@dataclass(frozen=True, eq=False)
class PooledFeatures:
    """Features of all images, in the order of the data."""

    features: dict[Block, Float[np.ndarray, "n _"]]  # float32; in forward order
    targets: Int64[np.ndarray, " n"] | None  # None where the batches hold none
    logits: Float[np.ndarray, "n k"] | None  # None without a vector of outputs
    provenance: Provenance = field(default_factory=Provenance)
    inputs: Float[np.ndarray, "n _"] | None = None  # of the module that was asked for

    def __len__(self) -> int:
        """Number of images."""
        return len(next(iter(self.features.values())))


def unit(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Rows of norm 1, in the precision of `x`; a row of zeros stays as it is."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(x.dtype).tiny)


def halves(pooled: PooledFeatures) -> tuple[PooledFeatures, PooledFeatures]:
    """The images of even index, and the images of odd index."""

    def part(start: int) -> PooledFeatures:
        def rows(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[start::2]

        images = len(range(start, len(pooled), 2))
        return replace(
            pooled,
            provenance=replace(pooled.provenance, images=images),
            features={block: x[start::2] for block, x in pooled.features.items()},
            targets=rows(pooled.targets),
            logits=rows(pooled.logits),
            inputs=rows(pooled.inputs),
        )

    return part(0), part(1)


def pooled_features(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    pooling: Pooling,
    inputs_of: nn.Module | None = None,
    run: Run,
) -> PooledFeatures:
    """The features of every block, pooled over its tokens.

    With "mean" a block's vector is the mean over the positions of its grid, with "class" its
    class tokens one after the other, with "both" the class tokens and the mean. One forward
    pass; memory is one float32 for each image and channel of a block (or several with "both").
    """
    blocks = blocks_on_grid(anatomy)
    parts: list[dict[str, np.ndarray]] = []
    targets: list[np.ndarray] = []
    logits: list[np.ndarray] = []
    inputs: list[np.ndarray] = []
    sizes: list[int] = []
    with run.compute.borrow(anatomy.model), torch.no_grad():
        chosen = _class_tokens(anatomy, blocks, pooling)

        def keep(block: Block, grid: Tensor, off_grid: Tensor) -> Tensor:
            vectors = [off_grid[:, chosen[block]].flatten(1)] if block in chosen else []
            if pooling != "class":
                vectors.append(grid.mean((2, 3)))
            return torch.cat(vectors, dim=1).float()

        watched = list(chosen) if pooling != "mean" else blocks
        read = nullcontext() if inputs_of is None else _inputs(inputs_of, inputs)
        with watch_tokens(anatomy, keep, blocks=watched) as vectors, read:
            for batch in run.track_share(batches, "pooling features"):
                images = images_of(batch, anatomy, run.compute)
                with run.compute.autocast():
                    output = forward(anatomy.model, images)
                arrays = [x.numpy() for x in on_cpu([*vectors.values()])]
                parts.append(dict(zip(vectors, arrays, strict=True)))
                if output.ndim == 2:
                    logits.append(output.float().cpu().numpy())
                of_batch = targets_of(batch)
                targets += [] if of_batch is None else [of_batch.numpy()]
                sizes.append(batch_size(images))
    measured = partial(run.measured, image_shape=anatomy.image_shape)
    return _joined(watched, parts, targets, logits, inputs, sizes, measured)


@contextmanager
def _inputs(module: nn.Module, rows: list[np.ndarray]) -> Iterator[None]:
    """Inside, each call of a module adds its input, if that is one vector for each image."""

    def read(_module: nn.Module, args: tuple[Any, ...]) -> None:
        if args[0].ndim == 2:
            rows.append(args[0].detach().float().cpu().numpy())

    hook = module.register_forward_pre_hook(read)
    try:
        yield
    finally:
        hook.remove()


def _class_tokens(
    anatomy: Anatomy, blocks: list[Block], pooling: Pooling
) -> dict[Block, list[int]]:
    """Indices of the class tokens among the tokens off the grid, of blocks that have any."""
    if pooling == "mean":
        return {}
    roles = token_roles(anatomy)
    indices = {b: [i for i, r in enumerate(roles[b.name]) if r == "class"] for b in blocks}
    chosen = {block: tokens for block, tokens in indices.items() if tokens}
    if not chosen:
        raise InputError(
            f"pooling must be 'mean' for {type(anatomy.model).__name__}, got {pooling!r}: it "
            "has no class token that its head reads"
        )
    return chosen


def _joined(
    blocks: list[Block],
    parts: list[dict[str, np.ndarray]],
    targets: list[np.ndarray],
    logits: list[np.ndarray],
    inputs: list[np.ndarray],
    sizes: list[int],
    measured: Callable[..., Provenance],
) -> PooledFeatures:
    """What all processes gathered, in the order of the data."""
    gathered = gather((parts, targets, logits, inputs, sizes))
    by_process = [process[4] for process in gathered]
    images = sum(map(sum, by_process))
    if not images:
        raise InputError("batches must hold at least one image, got none")
    order = np.argsort(np.concatenate(image_indices(by_process)))
    every = [part for process in gathered for part in process[0]]
    features = {b: np.concatenate([part[b.name] for part in every])[order] for b in blocks}
    for block, values in features.items():
        if not np.isfinite(values).all():
            raise InputError(
                f"features must be finite, got NaN or infinity from block {block.name!r}. "
                "Check the weights and the preprocessing."
            )
    return PooledFeatures(
        features,
        _rows([t for process in gathered for t in process[1]], order),
        _rows([t for process in gathered for t in process[2]], order),
        measured(images=images, batch_size=max(map(max, filter(None, by_process)))),
        _rows([t for process in gathered for t in process[3]], order),
    )


def _rows(parts: list[np.ndarray], order: Int[np.ndarray, " n"]) -> np.ndarray | None:
    """The rows of all batches in the order of the data; None where batches had none."""
    if sum(map(len, parts)) != len(order):
        return None
    return np.concatenate(parts)[order]
