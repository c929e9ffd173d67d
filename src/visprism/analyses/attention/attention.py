"""Attention statistics: distance, entropy, mutual information and redundancy of every head.

With weights A[q, k], means over queries on the grid, windows and images of

- distance: sum_k A[q, k] |place of q - place of k| over sum_k A[q, k], k on the grid;
- entropy: -sum_k A[q, k] log A[q, k];
- normalized mutual information: I(q; k) / sqrt(H(q) H(k)), queries equally likely, within a
  window; 0 where all attend to one key;
- share of the weight on keys that are on no grid;
- cosine between the weights of two heads, of all queries, mean over the other heads.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn import functional

from visprism import kit
from visprism.anatomy.blocks.attention import Attention as Layer
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.drawing import style
from visprism.drawing.depth import from_zero

# In the order in which `Attention.extract` stacks them.
QUANTITIES = ("distance", "entropy", "nmi", "prefix_share", "redundancy")
_ROUNDING = 1e-6  # an entropy that is 0 but for rounding


@kit.result(
    "attention-statistics",
    "Attention statistics",
    figures={"": {}} | {q: {"quantity": q} for q in ("entropy", "nmi", "redundancy")},
    overview={
        "Attention distance\n(pixels)": {},
        "Mutual information\nof attention": {"quantity": "nmi"},
    },
)
class AttentionStatistics(kit.Result):
    """Statistics of each head of each attention, a row per head. Intervals are over images.

    Each point is a head. Distance is the mean distance in pixels between a query and the
    keys that it attends to. Mutual information is 1 if queries attend to different keys and
    0 if all attend to the same keys (attention collapse).
    """

    block: kit.Texts = kit.column(
        "Block", "", "name of the attention's block; '#2' for the second in one block"
    )
    stage: np.ndarray = kit.column("Stage", "", "of the block; 0 for the stem")
    depth: np.ndarray = kit.column(
        "Normalized depth", "", "0 for the stem, 1 for the last block before the head"
    )
    head: np.ndarray = kit.column("Head", "", "number of the head, from 1")
    distance: kit.Estimated = kit.estimate(
        "Mean attention distance",
        "pixels",
        "mean distance from a query to the keys that it attends to, by weight",
    )
    entropy: kit.Estimated = kit.estimate(
        "Entropy of attention", "nats", "of a query's weights; log(keys) for uniform attention"
    )
    keys: np.ndarray = kit.column("Keys", "", "number of keys that a query can attend to")
    nmi: kit.Estimated = kit.estimate(
        "Normalized mutual information",
        "",
        "of queries and keys: 0 if all queries attend alike, 1 if each attends to its own key",
    )
    prefix_share: kit.Estimated = kit.estimate(
        "Weight on tokens off the grid",
        "",
        "fraction of the weight on class tokens, registers and padding",
    )
    redundancy: kit.Estimated = kit.estimate(
        "Cosine similarity between heads",
        "",
        "mean cosine between its weights and the other heads' weights; NaN for one head",
    )
    mean_distance: kit.Number = kit.estimate(
        "mean attention distance, mean over heads",
        "pixels",
        asks="How far does attention reach?",
    )
    mean_nmi: kit.Number = kit.estimate(
        "normalized mutual information, mean over heads",
        asks="Do queries attend to different keys?",
    )


@kit.analysis
class Attention(kit.FeatureAnalysis):
    """Attention distance, entropy, mutual information and redundancy of every head."""

    name = "attention"
    group = "attention"
    sees = "attention"
    needs = kit.Needs.FEATURES | kit.Needs.ATTENTION
    sees = "attention"
    source = "Dosovitskiy et al. (2021), fig. 7; Park et al. (2023), sec. 2"
    gives = AttentionStatistics

    def notes(self, anatomy: kit.Anatomy) -> tuple[str, ...]:
        """Attention blocks whose attention has no weights over tokens."""
        covered = {attention.block.name for attention in attentions(anatomy)}
        missing = [
            b.name for b in anatomy if b.kind.startswith("attention") and b.name not in covered
        ]
        if not missing:
            return ()
        return (
            f"Attention that is not measured: {', '.join(missing)} (over channels, without a "
            "softmax, or with tokens that could not be followed).",
        )

    def extract(self, x: kit.Weights) -> dict[str, Float[Tensor, "b heads"]]:
        """Each quantity by image and head."""
        weights = x.values.to(torch.promote_types(x.values.dtype, torch.float32))
        # Without subnormal numbers, which masks of -100 make, as in Swin: arithmetic with them
        # is slow, and took up to 13 times as long.
        weights = functional.threshold(weights, torch.finfo(weights.dtype).tiny, 0.0)
        share, window, keys_and_distances = _places(x.attention, weights)
        on_grid, reach = torch.einsum("bwhqk,wqck->cbwhq", weights, keys_and_distances)
        entropy = _entropy(weights)
        of_keys = (share[:, None, None] @ weights).squeeze(-2)
        heads = weights.flatten(3)

        def mean(values: Float[Tensor, "b w h q"]) -> Float[Tensor, "b h"]:
            return torch.einsum("bwhq,wq,w->bh", values, share, window)

        information = _mutual_information(of_keys, entropy, share)
        return {
            "distance": mean(torch.where(on_grid > 0, reach / on_grid, 0)),
            "entropy": mean(entropy),
            "nmi": torch.einsum("bwh,w->bh", information, window),
            "prefix_share": mean(1 - on_grid),
            "redundancy": _cosine_with_others((heads @ heads.mT).sum(1)),  # over windows
        }

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The statistics of every head."""
        layers = seen.sources("distance")
        rows = [(layer, head) for layer in layers for head in range(layer.geometry.heads)]
        values = {
            name: np.concatenate([*seen.each(name).values()], axis=1)
            for name in ("distance", "entropy", "nmi", "prefix_share", "redundancy")
        }
        values["redundancy"][:, [layer.geometry.heads == 1 for layer, _ in rows]] = np.nan
        values |= {f"mean_{name}": values[name].mean(1) for name in ("distance", "nmi")}
        result = AttentionStatistics.reduced(
            values,
            block=np.array([layer.name for layer, _ in rows]),
            stage=np.array([layer.block.stage for layer, _ in rows]),
            depth=np.array([layer.block.depth for layer, _ in rows]),
            head=np.array([head + 1 for _, head in rows]),
            keys=np.array([layer.geometry.keys.index.shape[1] for layer, _ in rows]),
        )
        return (result,)


@kit.figure(width=2.75, height=2.0)
def _(
    result: AttentionStatistics,
    ax: Axes,
    *,
    quantity: Literal["distance", "entropy", "nmi", "prefix_share", "redundancy"] = "distance",
) -> Axes:
    """One point per head with its 95% interval, and a line through the means of blocks."""
    values, (low, high) = getattr(result, quantity), result.intervals_of(quantity)
    names = list(dict.fromkeys(result.block.tolist()))
    members = [result.block == name for name in names]
    depths = [result.depth[rows][0] for rows in members]
    means = [values[rows].mean() for rows in members]
    ax.plot(depths, means, color=style.FAINT, linewidth=0.9, zorder=1, label="_mean of heads")
    lengths = np.stack([values - low, high - values], axis=1)
    for block, head, depth, value, bar in zip(
        result.block, result.head, result.depth, values, lengths, strict=True
    ):
        ax.errorbar(
            depth,
            value,
            yerr=bar[:, None] if np.isfinite(bar).all() else None,
            color=style.color_of("attention"),
            marker="o",
            markersize=2.8,
            markeredgewidth=0.3,
            markeredgecolor="white",
            elinewidth=0.6,
            linestyle="none",
            alpha=0.8,
            gid=style.tip(f"{block} · head {head} · {value:.3g}"),
        )
    from_zero(ax)
    ax.set(
        xlim=(-0.02, 1.02), xlabel="Normalized depth", ylabel=result.infos()[quantity].heading
    )
    return ax


def _places(
    attention: Layer, like: Tensor
) -> tuple[Float[Tensor, "w q"], Float[Tensor, " w"], Float[Tensor, "w q 2 k"]]:
    """Share of each query on the grid in its window, and of each window in the image.

    Then for each query and key whether the key is on the grid, 1 or 0, and the distance between
    their centers in pixels, 0 where one has no place.
    """
    centers, placed = [], []
    for tokens in (attention.geometry.queries, attention.geometry.keys):
        (height, width), (rows, columns) = attention.image, tokens.grid
        y = (tokens.index // columns + 0.5) * height / rows
        x = (tokens.index % columns + 0.5) * width / columns
        centers.append(torch.from_numpy(np.stack([y, x], axis=-1)).to(like))
        placed.append(torch.from_numpy(tokens.index != OFF_GRID).to(like))
    queries, keys = placed[0], placed[1][:, None].expand(-1, placed[0].shape[1], -1)
    distances = torch.cdist(*centers) * queries[:, :, None] * keys
    return (
        queries / queries.sum(1, keepdim=True).clamp(min=1),
        queries.sum(1) / queries.sum(),
        torch.stack([keys, distances], dim=2),
    )


def _mutual_information(
    of_keys: Float[Tensor, "b w h k"],
    entropy: Float[Tensor, "b w h q"],
    share: Float[Tensor, "w q"],
) -> Float[Tensor, "b w h"]:
    """Normalized mutual information: I(q; k) = H(k) - H(k | q), from the weights of keys."""
    of_keys = _entropy(of_keys)
    of_queries = _entropy(share)[:, None]
    information = (of_keys - (entropy * share[:, None]).sum(-1)).clamp(min=0)
    scale = (of_queries * of_keys).sqrt()
    return torch.where(scale > _ROUNDING, information / scale, 0)


def _entropy(shares: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    """-sum of p log p over the last axis; in half the time of `torch.special.entr`."""
    logarithm = shares.clamp(min=torch.finfo(shares.dtype).tiny).log_()
    return -logarithm.mul_(shares).sum(-1)


def _cosine_with_others(products: Float[Tensor, "b h h"]) -> Float[Tensor, "b h"]:
    """Mean cosine of each head with the others, from their inner products; 0 for one head."""
    norm = products.diagonal(dim1=1, dim2=2).sqrt()
    cosine = products / (norm[:, :, None] * norm[:, None, :])
    return (cosine.sum(2) - 1) / max(1, products.shape[1] - 1)
