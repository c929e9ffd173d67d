"""Pooled features: one vector for each image and block, of its class tokens or its grid."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.run.surgery import watch_tokens
from visprism.anatomy.trace.forward import batch_size, forward
from visprism.core.devices import on_cpu
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.passes.batches import Batch, blocks_on_grid, images_of, in_order, targets_of
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
    parts: list[tuple] = []  # of each batch: vectors by block, targets, logits, inputs, size
    inputs: list[np.ndarray] = []
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
                inputs.clear()
                with run.compute.autocast():
                    output = forward(anatomy.model, images)
                arrays = [x.numpy() for x in on_cpu([*vectors.values()])]
                targets = targets_of(batch)
                parts.append(
                    (
                        dict(zip(vectors, arrays, strict=True)),
                        None if targets is None else targets.numpy(),
                        output.float().cpu().numpy() if output.ndim == 2 else None,
                        inputs[0] if len(inputs) == 1 else None,
                        batch_size(images),
                    )
                )
    by_block, *others, sizes = zip(*in_order(parts), strict=True)
    features = {b: np.concatenate([part[b.name] for part in by_block]) for b in watched}
    for block, values in features.items():
        if not np.isfinite(values).all():
            raise InputError(
                f"features must be finite, got NaN or infinity from block {block.name!r}. "
                "Check the weights and the preprocessing."
            )
    all_targets, logits, all_inputs = map(_rows, others)
    origin = run.measured(
        images=sum(sizes), batch_size=max(sizes), image_shape=anatomy.image_shape
    )
    return PooledFeatures(features, all_targets, logits, origin, all_inputs)


def _rows(parts: tuple[np.ndarray | None, ...]) -> np.ndarray | None:
    """The rows of all batches; None where a batch had none."""
    rows = [part for part in parts if part is not None]
    return np.concatenate(rows) if len(rows) == len(parts) else None


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
