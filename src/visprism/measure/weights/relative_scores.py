"""Relative scores: where the heads of an attention look before they have seen an image.

Source: Cordonnier et al. (2020), On the relationship between self-attention and convolutional
layers, fig. 3 and 4.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import softmax
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.results.base import Result, column, result_type


@result_type("relative-scores")
class RelativeScores(Result):
    """What a head adds to the score of a key; one row for each head and offset of the key."""

    head: np.ndarray = column("Head", "", "1 is the first")
    dy: np.ndarray = column("Dy", "", "row of the key less that of the query, in tokens")
    dx: np.ndarray = column("Dx", "", "column of the key less that of the query")
    score: np.ndarray = column(
        "Score", "", "added before the softmax; minus infinity where the head never looks"
    )
    weight: np.ndarray = column("Weight", "", "softmax of `score` over the offsets of a head")


def relative_scores(
    table: Float[Tensor, "heads rows columns"], *, provenance: Provenance | None = None
) -> RelativeScores:
    """The scores of relative positions, and the attention that they alone would give.

    With S_h the table of head h, weight = exp S_h[d] / sum over offsets d' of exp S_h[d']: what
    a query in the middle of an image that is the same everywhere pays to the key at offset d.

    Args:
        table: by head and offset of the key from the query, which is 0 in the middle; the
            attribute `scores` of an attention made from a convolution, `relative_scores` of
            Swin's, `relative_bias` of the window attention of AlterNet.
        provenance: what is known of the model.

    Raises:
        InputError: if the table has no middle, or a head has no offset to look at.

    Source: Cordonnier et al. (2020), eq. 8 and fig. 4.
    """
    values = table.detach().double().cpu().numpy()
    heads, rows, columns = values.shape
    if rows % 2 == 0 or columns % 2 == 0:
        raise InputError(
            f"a table of relative scores of {rows}x{columns} offsets has no middle; give "
            "2r+1 rows and 2c+1 columns for each head"
        )
    seen = np.isfinite(values).any((1, 2))
    if not seen.all():
        raise InputError(
            f"head {1 + int(seen.argmin())} has no finite score; give each head an offset to "
            "look at"
        )
    head, dy, dx = np.indices(values.shape).reshape(3, -1)
    return RelativeScores(
        head=head + 1,
        dy=dy - rows // 2,
        dx=dx - columns // 2,
        score=values.ravel(),
        weight=softmax(values.reshape(heads, -1), axis=1).ravel(),
        provenance=provenance or Provenance(),
    )
