"""Attention probe: distance, entropy, mutual information and redundancy of every head.

Source: Dosovitskiy et al. (2021), An image is worth 16x16 words, fig. 7 (distance); Park et al.
(2023), What do self-supervised vision transformers learn?, sec. 2 (normalized mutual
information).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.anatomy import Anatomy, Attention, Weights, attentions
from visprism.anatomy.trace.token_grids import OFF_GRID, TokenGrid
from visprism.core.statistics import standard_error
from visprism.measure.features.probe import ImagewiseAttentionProbe
from visprism.results.attention import MEANS_OVER_HEADS, AttentionStatistics

# In the order in which `AttentionProbe.extract` stacks them.
QUANTITIES = ("distance", "entropy", "nmi", "prefix_share", "redundancy")


class AttentionProbe(ImagewiseAttentionProbe):
    """Gathers the `AttentionStatistics` of every attention.

    With weights A[q, k], means over queries on the grid, windows and images of

    - distance: sum_k A[q, k] |place of q - place of k| over sum_k A[q, k], k on the grid;
    - entropy: -sum_k A[q, k] log A[q, k];
    - normalized mutual information: I(q; k) / sqrt(H(q) H(k)), queries equally likely, within a
      window; 0 where all attend to one key;
    - share of the weight on keys that are on no grid;
    - cosine between the weights of two heads, mean over the other heads.

    Costs about as much as the attentions themselves; the state is 15 numbers per head, and two
    per image.
    """

    def __init__(self) -> None:
        super().__init__()
        self._latest: _Places | None = None

    def notes(self, anatomy: Anatomy) -> tuple[str, ...]:
        """Attention blocks whose attention has no weights over tokens; see `Probe.notes`."""
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

    def reduce(self, x: Weights) -> tuple[Tensor, ...]:
        """Sums over keys, the weights of keys by window, and products of heads, by image."""
        weights = _without_subnormal(
            x.values.to(torch.promote_types(x.values.dtype, torch.float32))
        )
        places = self._places_of(x.attention, weights)
        of_keys = (places.share_of_window[:, None, None] @ weights).squeeze(-2)
        heads = weights.flatten(3)
        products = (heads @ heads.mT).sum(1)  # over windows
        return *_sums_on_grid(weights, places), _entropy(weights), of_keys, products

    def finish(
        self, attention: Attention, reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "b quantities heads"]:
        """The quantities of `QUANTITIES` by image and head."""
        on_grid, reach, entropy, of_keys, products = reduced
        places = self._places_of(attention, entropy)

        def mean(values: Float[Tensor, "b w h q"]) -> Float[Tensor, "b h"]:
            return torch.einsum("bwhq,wq,w->bh", values, places.share_of_window, places.window)

        information = _mutual_information(of_keys, entropy, places.share_of_window)
        return torch.stack(
            [
                mean(torch.where(on_grid > 0, reach / on_grid, 0)),
                mean(entropy),
                torch.einsum("bwh,w->bh", information, places.window),
                mean(1 - on_grid),
                _cosine_with_others(products),
            ],
            dim=1,
        )

    def _places_of(self, attention: Attention, like: Tensor) -> "_Places":
        """Those of the latest attention are kept: often all attentions have the same tokens."""
        latest = self._latest
        if latest is None or not latest.are_of(attention, like):
            latest = _places(attention, like)
        elif latest.attention is not attention:
            latest = replace(latest, attention=attention)  # the next comparison is shorter
        self._latest = latest
        return latest

    def update(self, batch: Mapping[Attention, Float[Tensor, "b quantities heads"]]) -> None:
        """Add one batch; see `Probe.update`."""
        values = {a: extract.cpu().double().numpy() for a, extract in batch.items()}
        for attention, value in values.items():
            self.add({attention: np.stack([np.ones_like(value), value, value**2]).sum(1)})
        mean = np.concatenate(list(values.values()), axis=-1).mean(-1)  # over all heads
        self.add({"mean": np.stack([np.ones_like(mean), mean, mean**2]).sum(1)})
        for name, quantity in MEANS_OVER_HEADS.items():
            self.record(quantity, mean[:, QUANTITIES.index(name)])

    def result(self) -> AttentionStatistics:
        """The statistics of every head; see `Probe.result`."""
        members = [key for key in self.gathered() if isinstance(key, Attention)]
        rows = [(a, head) for a in members for head in range(a.geometry.heads)]
        images, total, squares = np.concatenate([self.sums[a] for a in members], axis=-1)
        mean, error = total / images, standard_error(total, squares, images)
        alone = np.array([attention.geometry.heads == 1 for attention, _ in rows])
        mean[-1, alone] = error[-1, alone] = np.nan
        columns = dict(zip(QUANTITIES, mean, strict=True))
        errors = {f"{name}_error": e for name, e in zip(QUANTITIES, error, strict=True)}
        all_heads: dict[str, Any] = {}
        images, total, squares = self.sums["mean"]
        mean_error = standard_error(total, squares, images)
        for name in MEANS_OVER_HEADS:
            i = QUANTITIES.index(name)
            all_heads[f"mean_{name}"] = float(total[i] / images[i])
            all_heads[f"mean_{name}_error"] = float(mean_error[i])
        return AttentionStatistics(
            block=np.array([attention.name for attention, _ in rows]),
            stage=np.array([attention.block.stage for attention, _ in rows]),
            depth=np.array([attention.block.depth for attention, _ in rows]),
            head=np.array([head + 1 for _, head in rows]),
            keys=np.array([attention.geometry.keys.index.shape[1] for attention, _ in rows]),
            **columns,
            **errors,
            **all_heads,
        )


@dataclass(frozen=True)
class _Places:
    """Where the tokens of an attention lie."""

    attention: Attention
    share_of_window: Float[Tensor, "w q"]  # of a query on the grid in its window
    window: Float[Tensor, " w"]  # share of a window in the image
    # 1 for keys on the grid, 0 for others; and distances in pixels.
    keys_and_distances: Float[Tensor, "w q 2 k"]

    def are_of(self, attention: Attention, like: Tensor) -> bool:
        """Whether they are those of an attention, on this device and in this precision."""
        held = self.keys_and_distances
        if (held.dtype, held.device) != (like.dtype, like.device):
            return False
        ours, theirs = self.attention.geometry, attention.geometry
        return ours is theirs or (
            self.attention.image == attention.image
            and ours.queries.grid == theirs.queries.grid
            and ours.keys.grid == theirs.keys.grid
            and np.array_equal(ours.queries.index, theirs.queries.index)
            and np.array_equal(ours.keys.index, theirs.keys.index)
        )


def _places(attention: Attention, like: Tensor) -> _Places:
    placed = _on_grid(attention.geometry.queries, like)
    distances = _distances(attention, like)
    keys = _on_grid(attention.geometry.keys, like)[:, None].expand_as(distances)
    return _Places(
        attention=attention,
        share_of_window=placed / placed.sum(1, keepdim=True).clamp(min=1),
        window=placed.sum(1) / placed.sum(),
        keys_and_distances=torch.stack([keys, distances], dim=2),
    )


def _sums_on_grid(
    weights: Float[Tensor, "b w h q k"], places: _Places
) -> tuple[Float[Tensor, "b w h q"], Float[Tensor, "b w h q"]]:
    """Sum over keys on the grid of the weights, and of the weights times distances."""
    if weights.shape[1] == 1:
        # One product for each query, of all images and heads, reads the weights once for both.
        rows = weights.flatten(0, 2).transpose(0, 1)
        sums = rows @ places.keys_and_distances[0].mT
        on_grid, reach = sums.permute(2, 1, 0).unflatten(1, weights.shape[:3])
        return on_grid, reach
    # Windows are small: for them there would be many products of few numbers.
    keys, distances = places.keys_and_distances[:, None].unbind(3)
    on_grid = (weights @ keys[:, :, 0, :, None]).squeeze(-1)
    return on_grid, (weights * distances).sum(-1)


def _without_subnormal(weights: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Weights below the smallest normal number (1e-38 in float32) are set to 0.

    Masks of -100, as Swin has them, make many of them, and arithmetic with them is slow: the
    statistics of a masked attention took up to 13 times as long.
    """
    return functional.threshold(weights, torch.finfo(weights.dtype).tiny, 0.0)


def _on_grid(places: TokenGrid, like: Tensor) -> Float[Tensor, "windows tokens"]:
    """1 for tokens that have a place, 0 for others."""
    return torch.from_numpy(places.index != OFF_GRID).to(like)


def _distances(attention: Attention, like: Tensor) -> Float[Tensor, "windows queries keys"]:
    """Distances between the centers of tokens in pixels; 0 where one has no place."""
    ends = []
    for places in (attention.geometry.queries, attention.geometry.keys):
        (height, width), (rows, columns) = attention.image, places.grid
        y = (places.index // columns + 0.5) * height / rows
        x = (places.index % columns + 0.5) * width / columns
        ends.append(torch.from_numpy(np.stack([y, x], axis=-1)).to(like))
    placed = [_on_grid(p, like) for p in (attention.geometry.queries, attention.geometry.keys)]
    return torch.cdist(*ends) * placed[0][:, :, None] * placed[1][:, None, :]


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


_ROUNDING = 1e-6  # an entropy that is 0 but for rounding


def _entropy(shares: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    """-sum of p log p over the last axis; in half the time of `torch.special.entr`."""
    logarithm = shares.clamp(min=torch.finfo(shares.dtype).tiny).log_()
    return -logarithm.mul_(shares).sum(-1)


def _cosine_with_others(products: Float[Tensor, "b h h"]) -> Float[Tensor, "b h"]:
    """Mean cosine of each head with the others, from their inner products; 0 for one head."""
    norm = products.diagonal(dim1=1, dim2=2).sqrt()
    cosine = products / (norm[:, :, None] * norm[:, None, :])
    return (cosine.sum(2) - 1) / max(1, products.shape[1] - 1)
