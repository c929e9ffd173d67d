"""Relative scores: attention of each head as a function of relative position only."""

from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor, nn

from visprism import kit
from visprism.drawing import style
from visprism.drawing.color_bars import framed, picture

_TABLE = "relative_position_bias_table"
_ATTRIBUTES = ("relative_bias", "scores", _TABLE)
_DRAWN = 49  # most heads


@kit.result("relative-scores", "Relative position scores", table=False)
class ScoresByOffset(kit.Result):
    """Attention scores of relative positions; one row for each head and offset of the key.

    Each map shows the attention weight of one head by the offset of the key from the query,
    on a constant image. The cross marks the query. A head with one dark cell acts as one
    tap of a convolution.
    """

    head: np.ndarray = kit.column("Head", "", "number of the head, from 1")
    dy: np.ndarray = kit.column("Row offset", "tokens", "row of the key minus row of the query")
    dx: np.ndarray = kit.column(
        "Column offset", "tokens", "column of the key minus column of the query"
    )
    score: np.ndarray = kit.column(
        "Score", "", "added before the softmax; minus infinity for no attention"
    )
    weight: np.ndarray = kit.column(
        "Attention weight", "", "softmax of the scores of a head over all offsets"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """How concentrated the heads are, and how many on the query itself."""
        heads = np.unique(self.head)
        top = [self.select(self.head == head) for head in heads]
        largest = np.array([rows.weight.max() for rows in top])
        center = sum(
            rows.dy[rows.weight.argmax()] == 0 == rows.dx[rows.weight.argmax()] for rows in top
        )
        yield (
            "largest attention weight of a head by position only: mean "
            f"{largest.mean():.2f} over {len(heads)} heads (uniform attention: "
            f"{1 / len(top[0]):.2g}); "
            f"{center} of {len(heads)} heads attend most to the query's own position"
        )


@kit.analysis
class RelativeScores(kit.Analysis):
    """Attention of each head by relative position only."""

    name = "relative-scores"
    rank = 0
    group = "weights"
    source = "Cordonnier et al. (2020), fig. 3 and 4"
    gives = ScoresByOffset

    layer: int = kit.option(
        1, "number of the attention among those with relative scores, from 1", minimum=1
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Softmax of the scores of one attention."""
        tables = list(relative_score_tables(subject.model).values())
        return (relative_scores(tables[self.layer - 1], run=run),)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Also where there is no such attention."""
        reason = super().inapplicable(subject)
        number = len(relative_score_tables(subject.model))
        if reason is None and number < self.layer:
            return (
                f"layer must be at most {number} in this model, got {self.layer}"
                if number
                else "the model has no attention with relative position scores"
            )
        return reason


def relative_score_tables(model: nn.Module) -> dict[str, Float[Tensor, "heads rows columns"]]:
    """Tables of relative position scores by the name of their attention, in forward order.

    Recognized are an attention made from a convolution (`scores`), window attention of this
    library (`relative_bias`) and the `relative_position_bias_table` of timm,
    Transformers and torchvision: of Swin, of BEiT, where the last rows belong to the class
    token, and of MaxViT, by head first.
    """
    tables = {}
    for name, module in model.named_modules():
        stored = (getattr(module, a, None) for a in _ATTRIBUTES)
        table = next((t for t in stored if isinstance(t, Tensor) and t.ndim == 3), None)
        swin = getattr(module, _TABLE, None)
        sides: Any = getattr(module, "window_size", getattr(module, "size", None))
        if table is None and isinstance(swin, Tensor) and sides:
            sides = (sides, sides) if isinstance(sides, int) else sides
            rows, columns = (2 * side - 1 for side in sides)
            # Swin's offsets are the query's minus the key's.
            by_offset = swin[: rows * columns].unflatten(0, (rows, columns))
            table = by_offset.permute(2, 0, 1).flip(1, 2)
        if table is not None:
            tables[name] = table
    return tables


def relative_scores(
    table: Float[Tensor, "heads rows columns"], *, run: kit.Run = kit.DEFAULT_RUN
) -> ScoresByOffset:
    """The scores of relative positions, and the attention that they would give by themselves.

    With S_h the table of head h, weight = exp S_h[d] / sum over offsets d' of exp S_h[d']: the
    attention of a query at the center of a constant image to the key at offset d.

    Args:
        table: by head and offset of the key from the query, which is 0 at the center; the
            attribute `scores` of an attention made from a convolution, `relative_bias` of the
            window attention of AlterNet.
        run: of which only the provenance is used.
    """
    values = table.detach().cpu().double().numpy()
    _, rows, columns = values.shape
    if rows % 2 == 0 or columns % 2 == 0:
        raise kit.InputError(
            f"table must have an odd number of rows and columns, got {rows}x{columns} offsets"
        )
    finite = np.isfinite(values).any((1, 2))
    if not finite.all():
        raise kit.InputError(
            f"each head must have a finite score, and head {1 + int(finite.argmin())} has none"
        )
    head, dy, dx = np.indices(values.shape).reshape(3, -1)
    weights = np.exp(values - values.max((1, 2), keepdims=True))
    return ScoresByOffset(
        head=head + 1,
        dy=dy - rows // 2,
        dx=dx - columns // 2,
        score=values.ravel(),
        weight=(weights / weights.sum((1, 2), keepdims=True)).ravel(),
        provenance=run.provenance,
    )


@kit.figure(width=2.4, height=2.75, share=False)
def _(result: ScoresByOffset, ax: Axes) -> Axes:
    """Attention weights of each head by offset, from 0 (white) to the largest (black).

    The cross marks the query. With more than 49 heads, the first 49 are drawn.
    """
    heads = np.unique(result.head)[:_DRAWN]
    across = ceil(sqrt(len(heads)))
    sides = int(result.dy.max()) * 2 + 1, int(result.dx.max()) * 2 + 1
    width, step = sides[1] / sides[0], 1.2  # a picture is 1 high
    largest = result.weight.max()
    for i, head in enumerate(heads):
        rows = result.select(result.head == head)
        down, right = divmod(i, across)
        left, top = right * step * width, down * step
        scale = {"cmap": "Grays", "vmin": 0, "vmax": largest}
        picture(ax, rows.weight.reshape(sides), left, top, width=width, **scale)
        best = rows.select(np.array([rows.weight.argmax()]))
        offset = f"{best.dy[0]:+d} rows, {best.dx[0]:+d} columns"
        text = f"head {head} · largest weight {best.weight[0]:.3g} at {offset}"
        framed(ax, left, top, width, 1.0, text)
        ax.plot(left + width / 2, top + 0.5, "+", color="#D55E00", ms=4, mew=0.7)
    ax.set(
        xlim=(-0.03, (across - 1) * step * width + width + 0.03),
        ylim=(ceil(len(heads) / across) * step - 0.12, -0.05),
    )
    ax.axis("off")
    place = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": 6}
    ax.text(1, -0.01, f"black: attention weight {largest:.3g}", color=style.FAINT, **place)
    return ax
