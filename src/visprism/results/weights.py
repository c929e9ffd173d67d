"""Weights: first kernels, position embeddings and relative position scores of a model."""

import numpy as np

from visprism.estimates.findings import Finding
from visprism.table.result import Result, result_type, scalar
from visprism.table.result import column as quantity


@result_type("patch-filters")
class PatchFilters(Result):
    """Principal components of the first kernels; one row for each weight of each component."""

    component: np.ndarray = quantity(
        "Component", "", "1 for the component of largest explained variance"
    )
    share: np.ndarray = quantity(
        "Explained variance", "", "fraction of the variance of the kernels along the component"
    )
    channel: np.ndarray = quantity("Channel", "", "channel of the image: 0, 1, 2 for RGB")
    row: np.ndarray = quantity("Row", "pixels", "row of the kernel from the top")
    column: np.ndarray = quantity("Column", "pixels", "column of the kernel from the left")
    value: np.ndarray = quantity(
        "Weight", "", "weight over the weight of largest magnitude of the component"
    )
    parameter: str = scalar("Parameter", "", "name of the parameter that holds the kernels")
    kernels: int = scalar("Kernels", "", "number of kernels")

    def findings(self) -> tuple[Finding, ...]:
        """Explained variance of the leading components."""
        _, first = np.unique(self.component, return_index=True)
        shares = self.share[first]
        leading = ", ".join(f"{share:.1%}" for share in shares[:3])
        half = int((np.cumsum(shares) < 0.5).sum()) + 1
        text = (
            f"explained variance of the leading principal components of {self.kernels} kernels "
            f"({self.parameter}): {leading}"
        )
        if half <= len(shares):
            text += f"; {half} component{'s' if half > 1 else ''} explain half"
        return (Finding(text),)


@result_type("positional-similarity")
class PositionalSimilarity(Result):
    """Cosine similarity of position embeddings; one row for each pair of positions.

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
    parameter: str = scalar("Parameter", "", "name of the parameter that holds the embeddings")

    def findings(self) -> tuple[Finding, ...]:
        """Similarity of neighbors against that of all other pairs."""
        steps = abs(self.row - self.other_row) + abs(self.column - self.other_column)
        near, far = self.cosine[steps == 1], self.cosine[steps > 1]
        if not (np.isfinite(near).any() and np.isfinite(far).any()):
            return ()
        return (
            Finding(
                f"mean cosine similarity of position embeddings ({self.parameter}): "
                f"{np.nanmean(near):.2f} between neighbors, {np.nanmean(far):.2f} between "
                "other positions"
            ),
        )


@result_type("relative-scores")
class RelativeScores(Result):
    """Attention scores of relative positions; one row for each head and offset of the key."""

    head: np.ndarray = quantity("Head", "", "number of the head, from 1")
    dy: np.ndarray = quantity("Row offset", "tokens", "row of the key minus that of the query")
    dx: np.ndarray = quantity(
        "Column offset", "tokens", "column of the key minus that of the query"
    )
    score: np.ndarray = quantity(
        "Score", "", "added before the softmax; minus infinity for no attention"
    )
    weight: np.ndarray = quantity(
        "Attention weight", "", "softmax of the scores of a head over all offsets"
    )

    def findings(self) -> tuple[Finding, ...]:
        """How concentrated the heads are, and how many on the query itself."""
        heads = np.unique(self.head)
        top = [self.select(self.head == head) for head in heads]
        largest = np.array([rows.weight.max() for rows in top])
        center = sum(
            rows.dy[rows.weight.argmax()] == 0 == rows.dx[rows.weight.argmax()] for rows in top
        )
        return (
            Finding(
                "largest attention weight of a head by position alone: mean "
                f"{largest.mean():.2f} over {len(heads)} heads (uniform attention: "
                f"{1 / len(top[0]):.2g}); "
                f"{center} of {len(heads)} heads attend most to the query's own position"
            ),
        )
