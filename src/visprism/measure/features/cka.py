"""CKA probe: gathers the similarity of all pairs of blocks.

CKA is HSIC (`visprism.measure.features.hsic`) scaled so that a block is 1 with itself. Rotating
a block's features, scaling all of them or adding a constant does not change it. Of a feature
map only one number for each pair of images is used. HSIC is unbiased in every batch, so its
mean over batches is that of the full data.

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
from visprism.core.processes import rank, world_size
from visprism.core.run import stream
from visprism.measure.features.hsic import FEWEST, gram, hsic, linear, paired_hsic, rbf
from visprism.measure.features.probe import Probe
from visprism.passes.blocks import block_columns
from visprism.results.similarity import Similarity, structure_score

# A block whose unbiased HSIC with itself is this small a fraction of the biased one holds
# nothing but rounding: its images are all equally far apart, or all the same.
_NOTHING = 1e-12

# Groups of batches of the jackknife; each holds every sixteenth batch. It bounds the state.
_GROUPS = 16


class CKAProbe(Probe):
    """Gathers the `Similarity` of all pairs of blocks.

    A pair of images is compared only if one batch holds both, so shuffle data that is sorted by
    class. The split into batches changes the estimate as other images do, and `biased` by more.
    Batches count by their number of images; any that holds fewer than 4, as the last one may,
    is left out.

    In each batch the images of the other block are shuffled once, for a permutation null.

    Args:
        kernel: "linear", or "rbf" for exp(-d² / 2 s²) of the distance d of two images.
        bandwidth: s of that kernel, in median distances of the images of a batch.
    """

    def __init__(self, kernel: str = "linear", *, bandwidth: float = 0.5) -> None:
        if kernel not in ("linear", "rbf"):
            raise InputError(f"kernel must be 'linear' or 'rbf', got {kernel!r}")
        if not bandwidth > 0:
            raise InputError(f"bandwidth must be positive, got {bandwidth}")
        super().__init__()
        self.kernel: str = kernel
        self.bandwidth = bandwidth
        self._batches = 0  # that this process was given

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b b"]:
        """Inner products of the images' features; see `hsic.gram`."""
        return gram(x)

    def update(self, batch: Mapping[Block, Float[Tensor, "b b"]]) -> None:
        """Add one batch; see `Probe.update`. Costs two products for all pairs."""
        number = rank() + world_size() * self._batches  # of this batch in the data
        self._batches += 1
        grams = torch.stack([extract.cpu().double() for extract in batch.values()])
        m, images, _ = grams.shape
        if images < FEWEST:
            return
        kernel = linear if self.kernel == "linear" else rbf(self.bandwidth)
        kernels = kernel(grams)
        unbiased, biased = hsic(kernels)  # leaves the U-centered kernels in `kernels`
        generator = stream(self.seed, "permutation null", number)
        null = paired_hsic(kernels, torch.randperm(images, generator=generator))
        counts = torch.tensor([images, 1.0]).double()[:, None, None].expand(2, m, m)
        terms = [_terms(images * h) for h in (unbiased, biased)]
        sums = torch.cat([counts, *terms, images * null[None]]).numpy()
        self.add({block: sums[:, i] for i, block in enumerate(batch)})
        self.add({number % _GROUPS: (images * unbiased).numpy()})

    def result(self) -> Similarity:
        """The similarity of all pairs; see `Probe.result`."""
        blocks = [key for key in self.sums if isinstance(key, Block)]
        return similarity(self, blocks, blocks)


def similarity(probe: CKAProbe, first: Sequence[Block], other: Sequence[Block]) -> Similarity:
    """Similarity of the first of a probe's blocks with the last; each by its own name."""
    if not probe.sums:
        raise InputError(
            f"batches must hold at least {FEWEST} images for CKA, and all hold fewer. Use a "
            "larger batch_size."
        )
    keys = [key for key in probe.sums if isinstance(key, Block)]
    sums = np.stack([probe.sums[key] for key in keys], axis=1)
    images, batches = sums[:2, 0, 0]
    unbiased, biased, null = sums[2:6], sums[6:10], sums[10]
    varies = unbiased[0].diagonal() > _NOTHING * biased[0].diagonal()
    values = {"defined": varies[:, None] & varies}
    for name, terms in (("cka", unbiased), ("biased", biased)):
        values[name], values[f"{name}_error"] = _ratio(terms, varies, batches)
    values["null"] = _scaled(null, unbiased[0].diagonal(), varies)
    groups = [value for key, value in probe.sums.items() if not isinstance(key, Block)]
    return Similarity(
        **_pairs(first, other),
        **{k: v[: len(first), -len(other) :].ravel() for k, v in values.items()},
        kernel=probe.kernel,
        batches=int(batches),
        batch_size=float(images / batches),
        structure_error=_structure_error(keys, groups, varies),
        groups=len(groups),
    )


def _pairs(first: Sequence[Block], other: Sequence[Block]) -> dict[str, Any]:
    """The columns that say which pair a row is about, the first block changing slowest."""
    columns = block_columns([block for block in first for _ in other])
    others = block_columns(list(other) * len(first))
    names = {"block": "other"} | {c: f"other_{c}" for c in ("kind", "stage", "depth")}
    return columns | {new: others[name] for name, new in names.items()}


def _terms(h: Float[Tensor, "m m"]) -> Float[Tensor, "4 m m"]:
    """What the mean of HSIC and the error of CKA are made of."""
    diagonal = h.diagonal()[:, None]
    return torch.stack([h, h**2, h * diagonal, diagonal @ diagonal.T])


def _scaled(
    total: Float[np.ndarray, "m m"],
    diagonal: Float[np.ndarray, "m"],
    varies: Bool[np.ndarray, "m"],
) -> Float[np.ndarray, "m m"]:
    """HSIC of all pairs over the root of those of both blocks; 0 where that is not defined."""
    root = np.sqrt(np.where(varies, diagonal, 1.0))
    # Never beyond 1, as Cauchy and Schwarz say, but for rounding.
    return np.clip(np.where(np.outer(varies, varies), total / np.outer(root, root), 0.0), -1, 1)


def _ratio(
    sums: Float[np.ndarray, "4 m m"], varies: Bool[np.ndarray, "m"], batches: float
) -> tuple[Float[np.ndarray, "m m"], Float[np.ndarray, "m m"]]:
    """CKA of all pairs, and its standard error over batches by the delta method.

    To first order CKA moves by that of h_xy - CKA/2 (h_xx r + h_yy / r), over the root of h_xx
    h_yy, with r the root of h_yy / h_xx. In the mean over batches that is 0.

    Source: Cochran (1977), Sampling techniques, sec. 2.11.
    """
    total, squares, with_first, of_both = sums
    root = np.sqrt(np.where(varies, total.diagonal(), 1.0))
    scale, r = np.outer(root, root), root / root[:, None]
    both = np.outer(varies, varies)
    cka = _scaled(total, total.diagonal(), varies)
    if batches == 1:
        return cka, np.full_like(cka, np.nan)
    diagonal = squares.diagonal()
    spread = (
        squares
        - cka * (r * with_first + with_first.T / r)
        + cka**2 / 4 * (r**2 * diagonal[:, None] + diagonal / r**2 + 2 * of_both)
    )
    spread = np.where(both & (spread > 1e-14 * squares), spread, 0.0)  # below is rounding
    return cka, np.sqrt(spread * batches / (batches - 1)) / scale


def _structure_error(
    blocks: Sequence[Block],
    groups: Sequence[Float[np.ndarray, "m m"]],
    varies: Bool[np.ndarray, "m"],
) -> float:
    """Standard error of the block structure, by the jackknife over groups of batches.

    Source: Shao and Tu (1995), The jackknife and bootstrap, sec. 2.3.
    """
    counted = np.flatnonzero(varies & np.array([block.kind != "stem" for block in blocks]))
    if len(groups) < 2 or not len(counted):
        return float("nan")
    stage = np.array([block.stage for block in blocks], dtype=int)[counted]
    total, square = np.sum(groups, axis=0), np.ix_(counted, counted)
    scores = []
    for group in groups:
        rest = total - group
        diagonal = np.maximum(rest.diagonal(), np.finfo(float).tiny)
        cka = _scaled(rest, diagonal, varies)[square]
        scores.append(structure_score(cka, counted, stage))
    g = len(groups)
    return float(np.sqrt((g - 1) / g * np.sum((np.array(scores) - np.mean(scores)) ** 2)))
