"""Relative scores: attention of each head by relative position alone.

Source: Cordonnier et al. (2020), On the relationship between self-attention and convolutional
layers, fig. 3 and 4.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import softmax
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.results.weights import RelativeScores

_ATTRIBUTES = ("relative_scores", "relative_bias", "scores")


def relative_score_tables(model: nn.Module) -> dict[str, Float[Tensor, "heads rows columns"]]:
    """Tables of relative position scores by the name of their attention, in forward order.

    Recognized are an attention made from a convolution (`scores`), window attention of this
    library (`relative_scores`, `relative_bias`) and of timm's Swin
    (`relative_position_bias_table`).
    """
    tables = {}
    for name, module in model.named_modules():
        stored = (getattr(module, a, None) for a in _ATTRIBUTES)
        table = next((t for t in stored if isinstance(t, Tensor) and t.ndim == 3), None)
        swin = getattr(module, "relative_position_bias_table", None)
        if table is None and isinstance(swin, Tensor):
            sides: Any = module.window_size
            rows, columns = (2 * side - 1 for side in sides)
            # Swin's offsets are the query's minus the key's.
            table = swin.view(rows, columns, -1).permute(2, 0, 1).flip(1, 2)
        if table is not None:
            tables[name] = table
    return tables


def relative_scores(
    table: Float[Tensor, "heads rows columns"], *, run: Run = DEFAULT_RUN
) -> RelativeScores:
    """The scores of relative positions, and the attention that they alone would give.

    With S_h the table of head h, weight = exp S_h[d] / sum over offsets d' of exp S_h[d']: the
    attention of a query at the center of a constant image to the key at offset d.

    Args:
        table: by head and offset of the key from the query, which is 0 at the center; the
            attribute `scores` of an attention made from a convolution, `relative_scores` of
            Swin's, `relative_bias` of the window attention of AlterNet.
        run: of which only the provenance is used.

    Source: Cordonnier et al. (2020), eq. 8 and fig. 4.
    """
    values = table.detach().double().cpu().numpy()
    heads, rows, columns = values.shape
    if not heads:
        raise InputError("table must hold at least one head, got none")
    if rows % 2 == 0 or columns % 2 == 0:
        raise InputError(
            f"table must have an odd number of rows and columns, got {rows}x{columns} offsets"
        )
    finite = np.isfinite(values).any((1, 2))
    if not finite.all():
        raise InputError(
            f"each head must have a finite score, and head {1 + int(finite.argmin())} has none"
        )
    head, dy, dx = np.indices(values.shape).reshape(3, -1)
    return RelativeScores(
        head=head + 1,
        dy=dy - rows // 2,
        dx=dx - columns // 2,
        score=values.ravel(),
        weight=softmax(values.reshape(heads, -1), axis=1).ravel(),
        provenance=run.provenance,
    )
