"""Fourier plane probe: gathers the log amplitude at all pairs of frequencies.

The diagonal and the radial profile (`FourierProbe`) are parts of this plane. What lies off them
shows whether a part prefers horizontal or vertical structure.

Source: Park and Kim (2022), How do vision transformers work?, app. D.2 (the diagonal).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.statistics import standard_error
from visprism.measure.features.probe import Probe
from visprism.passes.features import Sees
from visprism.passes.profiles import log_amplitude_plane
from visprism.passes.residual_branches import BranchEnd
from visprism.results.fourier_plane import FourierPlane

_SEES: dict[str, Sees] = {
    "blocks": "feature maps",
    "branches": "residual branches",
    "heads": "heads",
}


class FourierPlaneProbe(Probe):
    """Gathers the `FourierPlane` of blocks, outputs of residual branches, or heads.

    L(k, l) is the mean over images and channels of log(|F(k, l)| + 1e-6), with the transform of
    `visprism.passes.profiles`; channels that are 0 everywhere do not count.

    Args:
        parts: "blocks", "branches" (what a block adds to its input) or "heads" (before the
            projection of all heads).
    """

    sees: ClassVar[Sees | tuple[Sees, ...]] = "feature maps"

    def __init__(self, parts: str = "blocks") -> None:
        if parts not in _SEES:
            raise InputError(f"parts must be one of {', '.join(_SEES)}, got {parts!r}")
        super().__init__()
        self.parts = parts

    @property
    def all_seen(self) -> tuple[Sees, ...]:
        """Feature maps, residual branches or heads."""
        return (_SEES[self.parts],)

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
        """Log amplitude by image and frequency, with frequency 0 in the middle."""
        return log_amplitude_plane(x)

    def update(self, batch: Mapping[Any, Float[Tensor, "_ _ _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        for part, extract in batch.items():
            if isinstance(part, BranchEnd) and part.end == "input":
                continue
            level = extract.cpu().double().numpy()
            height, width = level.shape[1:]
            relative = level - level[:, height // 2, width // 2, None, None]
            count = np.full((height, width), float(len(level)))
            terms = [count, level.sum(0), relative.sum(0), (relative**2).sum(0)]
            self.add({part: np.stack(terms)})

    def result(self) -> FourierPlane:
        """The mean plane of each part; see `Probe.result`."""
        columns: dict[str, list[np.ndarray]] = {}
        for part, (count, level, total, squares) in self.gathered().items():
            height, width = count.shape
            row, column = np.indices((height, width))
            values = {
                "picture": np.full(count.shape, _name(part)),
                "row": row,
                "column": column,
                "vertical": 2 * np.fft.fftshift(np.fft.fftfreq(height))[row],
                "horizontal": 2 * np.fft.fftshift(np.fft.fftfreq(width))[column],
                "log_amplitude": level / count,
                "relative": total / count,
                "relative_error": standard_error(total, squares, count),
            }
            for name, value in values.items():
                columns.setdefault(name, []).append(value.flatten())
        joined: dict[str, Any] = {
            name: np.concatenate(parts) for name, parts in columns.items()
        }
        return FourierPlane(**joined, parts=self.parts)


def _name(part: Any) -> str:
    return part.block.name if isinstance(part, BranchEnd) else part.name
