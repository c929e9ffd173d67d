"""Position embeddings: cosine similarity of the embeddings of absolute positions.

Source: Dosovitskiy et al. (2021), An image is worth 16x16 words, fig. 7, center.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.results.weights import PositionalSimilarity

_ALL = 16 * 16  # positions up to which every one is a reference
_SIDE = 7  # references along a side of larger grids; as many maps as the paper's figure has


def positional_similarity(anatomy: Anatomy, *, run: Run = DEFAULT_RUN) -> PositionalSimilarity:
    """Cosine similarity of the position embeddings of a model.

    With p_i the embedding that the model adds to the token at position i, p_i . p_j / (|p_i|
    |p_j|) for all pairs. The embeddings are the one parameter that a sum in the first block
    adds to the tokens. Those of class and register tokens are left out. Embeddings that are a
    buffer are not recognized, as the graph holds parameters only.

    Costs one product of the table with itself; no image is needed.

    Args:
        anatomy: of a model that adds position embeddings to its tokens.
        run: of which only the provenance is used.

    Source: Dosovitskiy et al. (2021), fig. 7, center.
    """
    name, table = _table(anatomy)
    height, width, _ = table.shape
    norms = np.linalg.norm(table, axis=-1, keepdims=True)
    unit = table / np.where(norms > 0, norms, np.nan)
    rows, columns = _references(height, width), _references(width, height)
    cosine = np.einsum("ijc,klc->ijkl", unit[np.ix_(rows, columns)], unit)
    places = np.meshgrid(rows, columns, np.arange(height), np.arange(width), indexing="ij")
    row, column, other_row, other_column = (place.ravel() for place in places)
    return PositionalSimilarity(
        row=row,
        column=column,
        other_row=other_row,
        other_column=other_column,
        cosine=cosine.ravel().clip(-1, 1),
        parameter=name,
        provenance=replace(run.provenance, image_shape=anatomy.image_shape),
    )


def why_no_embeddings(anatomy: Anatomy) -> str | None:
    """Why a model has no position embeddings, as a sentence; None if it has."""
    try:
        _table(anatomy)
    except InputError as error:
        return str(error)
    return None


def _references(length: int, other: int) -> Int[np.ndarray, "n"]:
    """Rows, or columns, of the positions that stand first in a pair."""
    number = length if length * other <= _ALL else min(length, _SIDE)
    return np.linspace(0, length - 1, number).round().astype(int)


def _table(anatomy: Anatomy) -> tuple[str, Float[np.ndarray, "height width channels"]]:
    """The table on the grid, and its name in the model."""
    stem = anatomy.blocks[0]
    for node in anatomy.nodes(stem):
        adds = node.op in {"add", "__add__", "__radd__"} and len(node.inputs) == 1
        if not adds or node.layout is None or node.shape is None:
            continue
        stored = {name: anatomy.model.get_parameter(name) for name in node.parameters}
        channels = node.shape[node.layout.channels_axis]
        if not any(p.numel() > channels for p in stored.values()):
            continue  # a bias, the same at every position
        batch = 1 if node.layout.axes == "n b c" else 0
        shape = tuple(1 if i == batch else n for i, n in enumerate(node.shape))
        name, table = next(iter(stored.items()))
        if len(stored) > 1 or _axes_above_1(table.shape) != _axes_above_1(shape):
            raise _computed(shape, {n: tuple(p.shape) for n, p in stored.items()})
        on_grid = node.layout.to_map(table.detach().double().cpu().reshape(shape))
        return name, on_grid[0].permute(1, 2, 0).numpy()
    raise InputError(
        "model must add position embeddings that are a parameter, as ViT does, but its first "
        f"block, {stem.name}, adds none"
    )


def _axes_above_1(shape: Sequence[int]) -> list[int]:
    """The axes of a shape that are longer than 1."""
    return [n for n in shape if n > 1]


def _computed(shape: Sequence[int], stored: Mapping[str, Sequence[int]]) -> InputError:
    """The error for embeddings that are not a stored parameter."""
    tables = [f"{name} ({'x'.join(map(str, s))})" for name, s in stored.items()]
    return InputError(
        f"position embeddings ({'x'.join(map(str, shape))}) must be one parameter, and the "
        f"model computes them from {', '.join(tables)}. Dissect it with images of the size "
        "that it was trained for."
    )
