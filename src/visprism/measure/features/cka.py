"""Centred kernel alignment (CKA): how alike the feature maps of two blocks are.

CKA is HSIC (`visprism.measure.features.hsic`) scaled so that a block is 1 like itself. Rotating
a block's features, scaling all of them or adding a constant does not change it. Only one number
for each pair of images is kept of a feature map. HSIC is unbiased in every batch, so its mean
over batches is that of the whole data.

Source: Kornblith et al. (2019), Similarity of neural network representations revisited; over
batches: Nguyen, Raghu and Kornblith (2021), Do wide and deep networks learn the same things?
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.anatomy import Block
from visprism.core.errors import InputError
from visprism.measure.features.hsic import FEWEST, gram, hsic, linear, rbf
from visprism.measure.features.per_block import PerBlock, described
from visprism.measure.features.probe import Probe
from visprism.results.base import column, result_type, scalar

# A block whose unbiased HSIC with itself is this small a part of the biased one holds nothing
# but rounding: its images are all equally far apart, or all the same.
_NOTHING = 1e-12


@result_type("similarity")
class Similarity(PerBlock):
    """CKA of pairs of blocks; one row for each ordered pair.

    `block` and the columns of `PerBlock` are of the first block, those below of the other.
    """

    other: np.ndarray = column("Other block", "", "its name")
    other_kind: np.ndarray = column("Other kind")
    other_stage: np.ndarray = column("Other stage")
    other_depth: np.ndarray = column("Other depth")
    cka: np.ndarray = column(
        "CKA", "", "debiased: -1 ... 1, about 0 for unrelated features; 0 if not defined"
    )
    cka_error: np.ndarray = column(
        "Cka error", "", "standard error over batches; NaN for one batch"
    )
    biased: np.ndarray = column(
        "Biased CKA", "", "0 ... 1, and above 0 for unrelated features; 0 if not defined"
    )
    biased_error: np.ndarray = column(
        "Biased error", "", "standard error over batches; NaN for one batch"
    )
    defined: np.ndarray = column(
        "Defined", "", "False where a block's features are the same for all images"
    )
    kernel: str = scalar("Kernel", "", "or 'rbf'", default="linear")
    batches: int = scalar("Batches", "", "how many were counted", default=0)
    batch_size: float = scalar(
        "Batch size", "", "images of a batch that was counted, on average", default=0.0
    )
    other_model: str = scalar(
        "Other model",
        "",
        "whose block the other is; empty where it is of the same model",
        default="",
    )


class CKAProbe(Probe):
    """Gathers the `Similarity` of all pairs of blocks.

    A pair of images is compared only if one batch holds both, so batches must mix what the
    images show: shuffle data that is sorted by class. How the data is cut changes the estimate
    as drawing other images does, and `biased` by more. Batches count by their number of
    images; any that holds fewer than 4, as the last one may, is left out.

    Args:
        kernel: "linear", or "rbf" for exp(-d² / 2 s²) of the distance d of two images.
        bandwidth: s of that kernel, in median distances of the images of a batch.

    Raises:
        InputError: if there is no such kernel, or the bandwidth is not positive.
    """

    def __init__(self, kernel: str = "linear", *, bandwidth: float = 0.5) -> None:
        if kernel not in ("linear", "rbf"):
            raise InputError(f"no kernel {kernel!r}; there is 'linear' and 'rbf'")
        if not bandwidth > 0:
            raise InputError(f"bandwidth is {bandwidth}; wants a positive number, such as 0.5")
        super().__init__()
        self.kernel: str = kernel
        self.bandwidth = bandwidth

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b b"]:
        """Inner products of the images' features; see `hsic.gram`."""
        return gram(x)

    def update(self, batch: Mapping[Block, Float[Tensor, "b b"]]) -> None:
        """Add one batch; see `Probe.update`. Costs one product for all pairs."""
        grams = torch.stack([extract.cpu().double() for extract in batch.values()])
        m, images, _ = grams.shape
        if images < FEWEST:
            return
        kernel = linear if self.kernel == "linear" else rbf(self.bandwidth)
        counts = torch.tensor([images, 1.0]).double()[:, None, None].expand(2, m, m)
        terms = [_terms(images * each) for each in hsic(kernel(grams))]
        sums = torch.cat([counts, *terms]).numpy()
        self.add({block: sums[:, i] for i, block in enumerate(batch)})

    def result(self) -> Similarity:
        """The similarity of all pairs; see `Probe.result`."""
        return similarity(self, list(self.sums), list(self.sums))


def similarity(probe: CKAProbe, first: Sequence[Block], other: Sequence[Block]) -> Similarity:
    """What a probe found of the first of its blocks with the last; each by its own name.

    Raises:
        InputError: if it saw no batch of at least 4 images.
    """
    if not probe.sums:
        raise InputError(
            f"CKA compares images within a batch and needs at least {FEWEST} in one, but no "
            "batch had so many; use larger batches (--batch-size) and as many images"
        )
    sums = np.stack(list(probe.sums.values()), axis=1)
    images, batches = sums[:2, 0, 0]
    unbiased, biased = sums[2:6], sums[6:]
    varies = unbiased[0].diagonal() > _NOTHING * biased[0].diagonal()
    values = {"defined": varies[:, None] & varies}
    for name, terms in (("cka", unbiased), ("biased", biased)):
        values[name], values[f"{name}_error"] = _ratio(terms, varies, batches)
    return Similarity(
        **_pairs(first, other),
        **{k: v[: len(first), -len(other) :].ravel() for k, v in values.items()},
        kernel=probe.kernel,
        batches=int(batches),
        batch_size=float(images / batches),
    )


def _pairs(first: Sequence[Block], other: Sequence[Block]) -> dict[str, Any]:
    """The columns that say which pair a row is about, the first block changing slowest."""
    columns = described([block for block in first for _ in other])
    others = described(list(other) * len(first))
    names = {"block": "other"} | {c: f"other_{c}" for c in ("kind", "stage", "depth")}
    return columns | {new: others[name] for name, new in names.items()}


def _terms(h: Float[Tensor, "m m"]) -> Float[Tensor, "4 m m"]:
    """What the mean of HSIC and the error of CKA are made of."""
    own = h.diagonal()[:, None]
    return torch.stack([h, h**2, h * own, own @ own.T])


def _ratio(
    sums: Float[np.ndarray, "4 m m"], varies: Bool[np.ndarray, "m"], batches: float
) -> tuple[Float[np.ndarray, "m m"], Float[np.ndarray, "m m"]]:
    """CKA of all pairs, and its standard error over batches by the delta method.

    To first order CKA moves by that of h_xy - CKA/2 (h_xx r + h_yy / r), over the root of h_xx
    h_yy, with r the root of h_yy / h_xx. In the mean over batches that is 0.

    Source: Cochran (1977), Sampling techniques, sec. 2.11.
    """
    total, squares, with_own, of_own = sums
    root = np.sqrt(np.where(varies, total.diagonal(), 1.0))
    scale, r = np.outer(root, root), root / root[:, None]
    both = np.outer(varies, varies)
    # Never beyond 1, as Cauchy and Schwarz say, but for rounding.
    cka = np.clip(np.where(both, total / scale, 0.0), -1, 1)
    if batches == 1:
        return cka, np.full_like(cka, np.nan)
    own = squares.diagonal()
    spread = (
        squares
        - cka * (r * with_own + with_own.T / r)
        + cka**2 / 4 * (r**2 * own[:, None] + own / r**2 + 2 * of_own)
    )
    spread = np.where(both & (spread > 1e-14 * squares), spread, 0.0)  # below is rounding
    return cka, np.sqrt(spread * batches / (batches - 1)) / scale
