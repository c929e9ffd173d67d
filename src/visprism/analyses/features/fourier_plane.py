"""Fourier spectrum over the whole frequency plane.

L(k, l) is the mean over images and channels of log(|F(k, l)| + 1e-6), with the transform of
`visprism.passes.profiles`; channels that are 0 everywhere do not count. The diagonal and the
radial profile of `Fourier` are parts of this plane. What lies off them shows whether a part of
the model prefers horizontal or vertical structure.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism import kit
from visprism.core.statistics import t_quantile
from visprism.passes.profiles import log_amplitude_plane
from visprism.passes.sources import BranchEnd, residual_branches
from visprism.passes.statistic import Sees
from visprism.table.result import column as quantity
from visprism.table.shapes import picture_columns

_SEES: dict[str, Sees] = {"blocks": "feature maps", "branches": "residual branches"}


@kit.result("fourier-plane", "Fourier plane", table=False)
class FrequencyPlanes(kit.Pictures):
    """Log amplitude of feature maps by vertical and horizontal frequency; a row for each pair.

    Each picture is a block or a residual branch: the log amplitude of its feature maps
    minus that at frequency 0, which is in the middle. Rows are vertical and columns
    horizontal frequencies. A bright cross is structure along rows and columns, such as from
    patches.

    A picture is a block, or the output of a residual branch. The frequency 0 is in the middle.
    Intervals are over images.
    """

    value_name = "relative"

    vertical: np.ndarray = quantity("Vertical frequency", "π rad/pixel", "-1 to 1")
    horizontal: np.ndarray = quantity("Horizontal frequency", "π rad/pixel", "-1 to 1")
    log_amplitude: np.ndarray = quantity(
        "Log amplitude", "", "mean over images and channels of log |F|"
    )
    relative: kit.Estimated = kit.estimate("Δ log amplitude", "", "minus that at frequency 0")
    parts: str = kit.scalar("Parts", "", "'blocks' or 'branches'")


@kit.analysis
class FourierPlane(kit.FeatureAnalysis):
    """Log amplitude by vertical and horizontal frequency, of blocks or branches."""

    name = "fourier-plane"
    source = "Park & Kim (2022), app. D.2, over the whole plane"
    claims = ("C6",)
    default = False
    gives = FrequencyPlanes
    summed = ("level", "relative", "square")

    maps: Literal["blocks", "branches"] = kit.option(
        "blocks", "feature maps: of blocks, or of what residual branches add"
    )

    @property
    def all_seen(self) -> tuple[Sees, ...]:
        """Feature maps or residual branches."""
        return (_SEES[self.maps],)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Models without the parts."""
        if self.maps == "branches" and not residual_branches(subject.anatomy):
            return "the model has no residual branch with an identity shortcut"
        return super().inapplicable(subject)

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, "1 h w"]]:
        """Log amplitude by frequency, with 0 in the middle, and its moments less the middle.

        Added up over images: planes of all images would not fit.
        """
        level = kit.in_float64(log_amplitude_plane(x))
        height, width = level.shape[1:]
        relative = level - level[:, height // 2, width // 2, None, None]
        moments = {"level": level, "relative": relative, "square": relative.square()}
        return {name: values.sum(0, keepdim=True) for name, values in moments.items()}

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The mean plane of each part."""
        n, planes = seen.images, dict[str, np.ndarray]()
        moments = [seen.total(name) for name in self.summed]
        for part in moments[0]:
            if isinstance(part, BranchEnd) and part.end == "input":
                continue
            sums = np.stack([of_part[part] for of_part in moments])
            name = (part.block if isinstance(part, BranchEnd) else part).name
            frequencies = [2 * np.fft.fftshift(np.fft.fftfreq(side)) for side in sums.shape[1:]]
            planes[name] = np.stack([*np.meshgrid(*frequencies, indexing="ij"), *(sums / n)])
        flat = [plane.reshape(5, -1) for plane in planes.values()]
        vertical, horizontal, level, value, square = np.concatenate(flat, axis=1)
        margin = t_quantile(n) * np.sqrt(np.maximum(square - value**2, 0) / max(n - 1, 1))
        columns = picture_columns(
            {name: plane[3] for name, plane in planes.items()}, "relative"
        )
        columns["relative"] = kit.Estimated(value, value - margin, value + margin)
        result = FrequencyPlanes(
            **columns,
            vertical=vertical,
            horizontal=horizontal,
            log_amplitude=level,
            parts=self.maps,
        )
        return (result,)
