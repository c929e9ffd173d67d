"""Shares of a batch: the images that a process yields, and those that it must prepare."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int64
from torch import Tensor


@dataclass(frozen=True)
class RankSlice:
    """A part of a batch; the partner of an image is the one at the mirrored index."""

    places: Int64[Tensor, " m"]  # indices into the batch of all images that are prepared
    assigned: Int64[Tensor, " n"]  # indices into `places` of the images that are yielded
    partner: Int64[Tensor, " n"]  # indices into `places` of their partners


@lru_cache(maxsize=8)  # all batches of a run but the last of an epoch have the same
def share(count: int, part: tuple[int, int], *, mixes: bool) -> RankSlice:
    """The share of process `part`, (rank, world), of a batch of `count` images.

    Shares differ by at most one image. An image and its partner are in the same share, but for
    one pair at most, so that few images are prepared twice.
    """
    rank, world = part
    half = torch.arange((count + 1) // 2)
    pairs = torch.stack([half, count - 1 - half], 1).ravel()[:count]
    ends = [count * r // world for r in (rank, rank + 1)]
    assigned = pairs[ends[0] : ends[1]].sort().values
    partner = count - 1 - assigned
    places = torch.cat([assigned, partner]).unique() if mixes else assigned
    partner = partner if mixes else assigned
    return RankSlice(places, *(torch.searchsorted(places, x) for x in (assigned, partner)))
