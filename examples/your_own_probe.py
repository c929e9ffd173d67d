"""A statistic that visprism does not have: how sparse each block's feature maps are.

A probe says what to keep of one feature map and how to add it up; `observe` does the rest.
Run: python examples/your_own_probe.py
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

import visprism as vp


@dataclass(frozen=True)
class Sparsity(vp.Result):
    """RankSlice of activations that are below a hundredth of the map's largest; a row per block."""

    block: np.ndarray
    sparsity: np.ndarray


class SparsityProbe(vp.Probe):
    def extract(self, x: Tensor) -> Tensor:
        size = x.abs()
        return (size < size.amax((1, 2, 3), keepdim=True) / 100).float().mean((1, 2, 3))

    def update(self, batch: Mapping[vp.Block, Tensor]) -> None:
        self.add({b: np.array([s.sum().item(), len(s)]) for b, s in batch.items()})

    def result(self) -> Sparsity:
        total, images = np.stack(list(self.gathered().values())).T
        return Sparsity(block=np.array([b.name for b in self.sums]), sparsity=total / images)


loaded = vp.load_model("torchvision:resnet18")
images = vp.load_data("shapes", limit=64)
batches = vp.batches(images, vp.Preprocessing(size=(64, 64)), batch_size=16)
anatomy = vp.dissect(loaded.model, next(iter(batches))[0])
(result,) = vp.observe(anatomy, batches, [SparsityProbe()])
for name, sparsity in zip(result.block, result.sparsity, strict=True):
    print(f"{name:10} {sparsity:6.1%}")
