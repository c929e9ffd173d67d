"""TokenPositions: how alike the entries of a model's table of absolute positions are.

Source: Dosovitskiy et al. (2021), An image is worth 16x16 words, fig. 7, centre.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.batches import image_shape
from visprism.results.base import Result, result_type, scalar
from visprism.results.base import column as quantity

_ALL = 16 * 16  # positions up to which every one is a reference
_SIDE = 7  # references along a side of larger grids; as many maps as the paper's figure has


@result_type("positional-similarity")
class PositionalSimilarity(Result):
    """Cosine similarity of a table of positions; one row for each pair of its entries.

    Of a grid of more than 256 positions only 7x7, evenly spread, stand first in a pair.
    """

    row: np.ndarray = quantity("Row", "", "on the grid of patches; 0 is the uppermost")
    column: np.ndarray = quantity("Column")
    other_row: np.ndarray = quantity("Other row")
    other_column: np.ndarray = quantity("Other column")
    cosine: np.ndarray = quantity(
        "Cosine", "", "of the angle between the two entries; NaN where one of them is zero"
    )
    parameter: str = scalar("Parameter", "", "where the table stands in the model")


def positional_similarity(
    anatomy: Anatomy, *, provenance: Provenance | None = None
) -> PositionalSimilarity:
    """Cosine similarity between the entries of the table of absolute positions.

    With p_i the entry that the model adds to the token at position i, p_i . p_j / (|p_i| |p_j|)
    for all pairs. The table is the one parameter that a sum in the first block adds to the
    tokens, found in the graph. Entries of class and register tokens are left out. It is taken
    as it is stored; a buffer is not found, since the graph knows parameters only.

    Costs one product of the table with itself; no image is needed.

    Args:
        anatomy: of a model that adds a table of positions to its tokens.
        provenance: what is known of the model; the shape of its images is filled in here.

    Raises:
        InputError: if the model adds no such parameter, or adds what it computes from one: a
            table resampled for images of another size, or made of several parameters.

    Source: Dosovitskiy et al. (2021), fig. 7, centre.
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
        provenance=replace(provenance or Provenance(), image_shape=image_shape(anatomy)),
    )


def _references(length: int, other: int) -> Int[np.ndarray, "n"]:
    """Rows, or columns, of the positions that stand first in a pair."""
    number = length if length * other <= _ALL else min(length, _SIDE)
    return np.linspace(0, length - 1, number).round().astype(int)


def _table(anatomy: Anatomy) -> tuple[str, Float[np.ndarray, "height width channels"]]:
    """The table on the grid, and its name in the model.

    Raises:
        InputError: as `positional_similarity` says.
    """
    stem = anatomy.blocks[0]
    for node in anatomy.graph.nodes[stem.start + 1 : stem.end + 1]:
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
        if len(stored) > 1 or _long(table.shape) != _long(shape):
            raise _computed(shape, {n: tuple(p.shape) for n, p in stored.items()})
        on_grid = node.layout.to_map(table.detach().double().cpu().reshape(shape))
        return name, on_grid[0].permute(1, 2, 0).numpy()
    raise InputError(
        f"the first block, {stem.name!r}, adds no table of positions to its tokens; positional "
        "similarity wants a model with absolute positions that are a parameter (not a buffer), "
        "as ViT has"
    )


def _long(shape: Sequence[int]) -> list[int]:
    """The axes of a shape that are longer than 1."""
    return [n for n in shape if n > 1]


def _computed(shape: Sequence[int], stored: Mapping[str, Sequence[int]]) -> InputError:
    """What to say where the table is not a parameter as it is stored."""
    tables = [f"{name!r} ({'x'.join(map(str, s))})" for name, s in stored.items()]
    return InputError(
        f"the table of positions ({'x'.join(map(str, shape))}) is computed from "
        f"{', '.join(tables)}; positional similarity wants one parameter, added as it is "
        "stored: dissect the model with images of the size that its table was made for"
    )
