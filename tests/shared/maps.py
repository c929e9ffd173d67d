"""What analyses find in feature maps that need no model."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from internals import Gathered
from scipy.stats import t
from torch import nn

from visprism import Block, Layout, Provenance, Seen, dissect


def blocks_of(*maps, kinds=None, stages=None, subsampling=False):
    """A block for each feature map, in forward order."""
    return [
        Block(
            name=f"block{i}",
            kind="conv" if kinds is None else kinds[i],
            stage=0 if stages is None else stages[i],
            depth=i / max(1, len(maps) - 1),
            subsampling=subsampling,
            shape=tuple(x.shape[1:]),
            layout=Layout("b c h w", tuple(x.shape[2:])),
        )
        for i, x in enumerate(maps)
    ]


def results_of(analysis, *maps, cut=None, between=None, **options):
    """All results of feature maps of successive blocks; `cut` gives the sizes of batches."""
    blocks = blocks_of(*maps, **options)
    images = len(maps[0])
    batches = zip(*(x.split(cut or [images]) for x in maps), strict=True)
    return gathered(
        analysis, [dict(zip(blocks, batch, strict=True)) for batch in batches], between
    )


def gathered(analysis, batches, between=None):
    """All results of batches, each of what is seen by block."""
    parts, images = Gathered(), 0
    for number, batch in enumerate(batches):
        extracts = {block: analysis.extract(x) for block, x in batch.items()}
        parts.add(analysis.by_image(extracts), analysis.sums(extracts, number, 0))
        images += len(next(iter(extracts.values())))
    by_image, sums = parts.of_all_processes(np.arange(images))
    origin = Provenance(images=images)
    anatomy = replace(_anatomy(), blocks=tuple(b for b in batches[0] if isinstance(b, Block)))
    seen = Seen(by_image, sums, images, anatomy, between or {}, 0, origin)
    return [result.measured(origin) for result in analysis.results(seen)]


@cache
def _anatomy():
    return dissect(nn.Sequential(nn.Conv2d(3, 3, 1)).eval(), torch.zeros(2, 3, 8, 8))


def error_of(estimate, n):
    """The standard error that a Student interval over n units shows."""
    return (estimate.high - estimate.low) / 2 / t.ppf(0.975, n - 1)
