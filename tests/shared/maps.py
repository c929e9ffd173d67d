"""What analyses find in feature maps that need no model."""

from dataclasses import replace
from functools import cache

import timm
import torch
from scipy.stats import t
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism import Block, Layout, PassResult, Provenance, dissect
from visprism.passes.features import Gathered


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


def measure(*arguments, **options):
    """The main result of feature maps of successive blocks."""
    return results_of(*arguments, **options)[0]


def gathered(analysis, batches, between=None):
    """All results of batches, each of what is seen by block."""
    parts, images = Gathered(), 0
    for number, batch in enumerate(batches):
        extracts = {block: analysis.extract(x) for block, x in batch.items()}
        parts.add(analysis.by_image(extracts), analysis.sums(extracts, number, 0))
        images += _number(next(iter(batch.values())))
    by_image, sums = parts.of_all_processes()
    origin = Provenance(images=images)
    anatomy = replace(_anatomy(), blocks=tuple(b for b in batches[0] if isinstance(b, Block)))
    seen = PassResult(by_image, sums, images, anatomy, between or {}, 0, origin)
    return [result.measured(origin) for result in analysis.results(seen)]


def _number(x):
    """Images of what is seen of a source."""
    return len(x if torch.is_tensor(x) else getattr(x, "grid", getattr(x, "values", None)))


@cache
def _anatomy():
    return dissect(nn.Sequential(nn.Conv2d(3, 3, 1)).eval(), torch.zeros(2, 3, 8, 8))


def error_of(estimate, n):
    """The standard error that a Student interval over n units shows."""
    return (estimate.high - estimate.low) / 2 / t.ppf(0.975, n - 1)


def classifier(*layers, channels=1, classes=5):
    """The layers, and logits of the mean over positions."""
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    return nn.Sequential(*layers, *head).eval()


def small_vit(**options):
    """A vision transformer of two blocks on a grid of 4x4, with random weights of one seed."""
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return VisionTransformer(**sizes | options).eval()


def small_resnet(**options):
    """A ResNet of basic blocks, none of which is the identity, with weights of one seed."""
    sizes = {"channels": (8, 12, 16, 20), "layers": (1, 1, 1, 1), "zero_init_last": False}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return timm.create_model("resnet18", **sizes | options).eval()


@torch.no_grad()
def tokens_by_hand(model, images):
    """Tokens after each residual sum of such a model, and the weights of its attentions."""
    x = model._pos_embed(model.patch_embed(images))
    tokens, attention = [x], []
    for block in model.blocks:
        qkv = block.attn.qkv(block.norm1(x)).unflatten(2, (3, block.attn.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attention.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))
        x = x + block.attn.proj((attention[-1] @ v).transpose(1, 2).flatten(2))
        tokens.append(x)
        x = x + block.mlp(block.norm2(x))
        tokens.append(x)
    return tokens, attention
