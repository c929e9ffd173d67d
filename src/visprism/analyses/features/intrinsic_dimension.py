"""Intrinsic dimension of the features of blocks, and files of the features."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.intrinsic_dimension import FEWEST, intrinsic_dimension
from visprism.passes.feature_files import save_features
from visprism.passes.pooled import pooled_features
from visprism.results.intrinsic_dimension import IntrinsicDimensions
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class IntrinsicDimension(Analysis):
    """Intrinsic dimension of the features of each block (TwoNN), and export of the features."""

    name = "intrinsic-dimension"
    needs = Needs.FEATURES
    images = Sizes(fewest=FEWEST, full=5000, work=0.5)
    default = False
    source = "Facco et al. (2017); Ansuini et al. (2019)"
    sections = (
        Section(
            IntrinsicDimensions,
            "Intrinsic dimension",
            "Each point is a block: the number of dimensions that the distances to the two "
            "nearest images suggest, with its 95% interval. It rises in early and falls in "
            "late blocks of many trained networks.",
        ),
    )

    pooling: Literal["mean", "class", "both"] = option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    features: str | None = option(
        None, "file to write the pooled features to, ending in .safetensors or .parquet"
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Pool the features, estimate the dimension, and write the file."""
        pooled = pooled_features(
            subject.anatomy, subject.batches(), pooling=self.pooling, run=run
        )
        result = intrinsic_dimension(subject.anatomy, pooled, pooling=self.pooling, run=run)
        if self.features is not None:
            save_features(pooled, self._file(subject), result.provenance)
        return (result,)

    def cost(self, subject: Subject) -> Cost:
        """A forward pass."""
        return Cost(per_image=1.3)

    def inapplicable(self, subject: Subject) -> str | None:
        """With few images."""
        return super().inapplicable(subject) or subject.too_few_images(FEWEST)

    def _file(self, subject: Subject) -> Path:
        """The file of one model: its name stands before the suffix."""
        path = Path(self.features or "")
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in subject.name)
        return path.with_name(f"{path.stem}.{name}{path.suffix}")
