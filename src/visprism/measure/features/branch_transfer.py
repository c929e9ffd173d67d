"""Branch transfer probe: gathers the transfer function of every residual branch.

With L the log amplitude of a feature map by frequency (`profiles`), the log gain of a branch is
L(output) - L(input), for the same image. A block that adds a branch to its input can lower the
high frequencies of the sum although its branch raises them, and the other way round.

Source: the references are those of `FourierProbe`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.core.statistics import standard_error
from visprism.analyses.features.fourier import PROFILES, references
from visprism.measure.features.fourier import Profile
from visprism.measure.features.probe import Probe
from visprism.passes.blocks import (
    block_columns,
    grid_of,
    image_sums,
    kind_means,
)
from visprism.passes.residual_branches import BranchEnd
from visprism.results.branch_transfer import BranchTransfer

_NAMES = ("gain", "relative", "relative_lowest")


class BranchTransferProbe(Probe):
    """Gathers the `BranchTransfer` of every residual branch with an identity shortcut.

    Args:
        profile: over which frequencies, see `FourierProbe`.
    """

    sees = "residual branches"

    def __init__(self, profile: Profile = "diagonal") -> None:
        super().__init__()
        self.profile: Profile = profile

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Log amplitude by image and frequency, mean over channels; of one end of a branch."""
        measure, _ = PROFILES[self.profile, "default"]
        return measure(x)

    def update(self, batch: Mapping[BranchEnd, Float[Tensor, "b _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        highest = {name: {} for name in _NAMES[1:]}
        for end, extract in batch.items():
            if end.end == "input":
                continue
            level_in = batch[BranchEnd(end.block, "input")].cpu().double().numpy()
            gains = references(extract.cpu().double().numpy() - level_in)
            for name, values in zip(_NAMES[1:], gains[1:], strict=True):
                if np.isfinite(values).all() and values.shape[1] > 1:
                    highest[name][end.block] = values[:, -1]
            count = np.full((1, gains.shape[2]), float(gains.shape[1]))
            self.add({end.block: np.concatenate([count, gains.sum(1), (gains**2).sum(1)])})
        for name, by_block in highest.items():
            means = kind_means(by_block, {})
            self.add({(name, kind): image_sums(v) for kind, v in means.items()})

    def result(self) -> BranchTransfer:
        """The mean gain of every branch; see `Probe.result`."""
        _, frequency = PROFILES[self.profile, "default"]
        blocks = [key for key in self.gathered() if not isinstance(key, tuple)]
        axes = [frequency(grid_of(block)) for block in blocks]
        lengths = [len(axis) for axis in axes]
        rows = [block for block, n in zip(blocks, lengths, strict=True) for _ in range(n)]
        sums = np.concatenate([self.sums[block] for block in blocks], axis=1)
        images, total, squares = sums[0], sums[1:4], sums[4:]
        error = standard_error(total, squares, np.broadcast_to(images, total.shape))
        kind_columns: dict[str, Any] = {
            f"kind_{name}_error": self.kind_errors(name, blocks, lengths) for name in _NAMES[1:]
        }
        return BranchTransfer(
            **block_columns(rows),
            **dict(zip(_NAMES, total / images, strict=True)),
            **{f"{name}_error": e for name, e in zip(_NAMES, error, strict=True)},
            **kind_columns,
            frequency=np.concatenate(axes),
            profile=self.profile,
        )
