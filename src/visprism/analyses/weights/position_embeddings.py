"""Position embeddings: cosine similarity of the embeddings of absolute positions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from visprism import kit
from visprism.drawing.color_bars import color_bar, framed
from visprism.drawing.registry import figure
from visprism.passes.blocks import spread
from visprism.table.result import column as quantity

_ALL = 16 * 16  # positions up to which every one is a reference
_SIDE = 7  # references along a side of larger grids; as many maps as the paper's figure has
_SCALE = Normalize(-1, 1)
_COLORS = "RdBu_r"  # its ends differ in hue for any color vision


@kit.result("positional-similarity", "Position embeddings", table=False)
class PositionalSimilarity(kit.Result):
    """Cosine similarity of position embeddings; one row for each pair of positions.

    Each map shows the cosine similarity of one position embedding to all others, drawn at
    its position on the token grid. A model that has learned the grid has its largest
    similarities nearby, and in the same row and column.

    On a grid of more than 256 positions only 7x7, evenly spaced, are first in a pair.
    """

    row: np.ndarray = quantity("Row", "tokens", "row of the first position from the top")
    column: np.ndarray = quantity(
        "Column", "tokens", "column of the first position from the left"
    )
    other_row: np.ndarray = quantity("Other row", "tokens", "row of the second position")
    other_column: np.ndarray = quantity(
        "Other column", "tokens", "column of the second position"
    )
    cosine: np.ndarray = quantity(
        "Cosine similarity", "", "of the two embeddings; NaN where one of them is 0"
    )
    parameter: str = kit.scalar(
        "Parameter", "", "name of the parameter that holds the embeddings"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Similarity of neighbors against the similarity of all other pairs."""
        steps = abs(self.row - self.other_row) + abs(self.column - self.other_column)
        near, far = self.cosine[steps == 1], self.cosine[steps > 1]
        if not (np.isfinite(near).any() and np.isfinite(far).any()):
            return
        yield (
            f"mean cosine similarity of position embeddings ({self.parameter}): "
            f"{np.nanmean(near):.2f} between neighbors, {np.nanmean(far):.2f} between "
            "other positions"
        )


@kit.analysis
class PositionEmbeddings(kit.Analysis):
    """Cosine similarity of the position embeddings of all positions."""

    name = "position-embeddings"
    rank = 0
    group = "weights"
    source = "Dosovitskiy et al. (2021), fig. 7, center"
    gives = PositionalSimilarity

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Compare all pairs of embeddings."""
        return (positional_similarity(subject.anatomy, run=run),)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Also where the model adds no position embeddings."""
        return super().inapplicable(subject) or kit.reason_of_error(_table, subject.anatomy)


def positional_similarity(
    anatomy: kit.Anatomy, *, run: kit.Run = kit.DEFAULT_RUN
) -> PositionalSimilarity:
    """Cosine similarity of the position embeddings of a model.

    With p_i the embedding that the model adds to the token at position i, p_i . p_j / (|p_i|
    |p_j|) for all pairs. The embeddings are the one parameter that a sum in the first block
    adds to the tokens. Class and register tokens' embeddings are left out. Embeddings that are
    a buffer are not recognized, as the graph holds parameters only.

    Costs one product of the table with itself; no image is needed.

    Args:
        anatomy: of a model that adds position embeddings to its tokens.
        run: of which only the provenance is used.
    """
    name, table = _table(anatomy)
    height, width, _ = table.shape
    norms = np.linalg.norm(table, axis=-1, keepdims=True)
    unit = table / np.where(norms > 0, norms, np.nan)
    most = _ALL if height * width <= _ALL else _SIDE
    rows, columns = spread(range(height), most), spread(range(width), most)
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


def _table(anatomy: kit.Anatomy) -> tuple[str, Float[np.ndarray, "height width channels"]]:
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
        if len(stored) > 1 or [n for n in table.shape if n > 1] != [n for n in shape if n > 1]:
            tables = [f"{name} ({'x'.join(map(str, p.shape))})" for name, p in stored.items()]
            raise kit.InputError(
                f"position embeddings ({'x'.join(map(str, shape))}) must be one parameter, and "
                f"the model computes them from {', '.join(tables)}. Dissect it with images of "
                "the size that it was trained for."
            )
        on_grid = node.layout.to_map(table.detach().cpu().double().reshape(shape))
        return name, on_grid[0].permute(1, 2, 0).numpy()
    raise kit.InputError(
        "model must add position embeddings that are a parameter, as ViT does, but its first "
        f"block, {stem.name}, adds none"
    )


def cosine_bar(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A color bar at the side: the cosine similarity."""
    ticks = [-1, -0.5, 0, 0.5, 1]
    color_bar(
        figure, axes, "Cosine similarity", scale=_SCALE, colors=_COLORS, ticks=ticks, pad=0.01
    )


@figure(width=2.9, height=2.7, key=cosine_bar, key_width=0.6)
def _(result: PositionalSimilarity, ax: Axes) -> Axes:
    """The similarities to each of at most 7x7 positions, drawn at that position."""
    grid = result.other_row.max() + 1, result.other_column.max() + 1
    rows, columns = (
        spread(np.unique(places).tolist(), _SIDE) for places in (result.row, result.column)
    )
    side = 1 / len(rows), 1 / len(columns)  # all maps together are 1 high and wide
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            pairs = result.select((result.row == row) & (result.column == column))
            left, top = j * side[1], i * side[0]
            width, height = 0.92 * side[1], 0.92 * side[0]
            ax.imshow(
                pairs.cosine.reshape(grid),
                norm=_SCALE,
                cmap=_COLORS,
                extent=(left, left + width, top + height, top),
                interpolation="nearest",
            )
            framed(ax, left, top, width, height, f"position: row {row}, column {column}")
    ax.set(xlim=(-0.01, 1), ylim=(1, -0.01), aspect=grid[0] / grid[1])
    ax.axis("off")
    return ax
