"""Conversion of a CNN: Conv blocks are replaced by MSA blocks, other weights stay."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import gcd

import torch
from timm.layers import DropPath, LayerNorm2d
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torchvision.ops import StochasticDepth

from visprism.anatomy.trace.forward import Images
from visprism.core.errors import InputError
from visprism.core.run import stream
from visprism.harmonize.blocks import ConvBlock, Placement, conv_blocks, select_blocks
from visprism.models.layers.residual_blocks import MSABlock, PostActMSABlock

_HEAD_DIM = 64
_HEADS_PER_WIDTH = 3  # heads x head_dim over the width of the block, in Alter-ResNets
_MAX_WINDOW = 8  # pixels


@dataclass(frozen=True)
class MSAConfig:
    """Heads and windows of the MSA blocks; see `harmonize`."""

    heads: int | tuple[int, ...] | None = None
    head_dim: int = _HEAD_DIM
    window: int | None = None


def harmonize_model(
    model: nn.Module,
    images: Images,
    placement: Placement = "alternate",
    *,
    heads: int | Sequence[int] | None = None,
    head_dim: int = _HEAD_DIM,
    window: int | None = None,
    seed: int = 0,
) -> nn.Module:
    """A copy of a CNN with multi-head self-attention (MSA) instead of some Conv blocks.

    An MSA block replaces a residual block and has its stride, channels, type of norm,
    stochastic depth and order (pre-activation, or activation after the sum). It reduces the
    channels to the width of the spatial convolution that it replaces, attends within windows
    with a bias for each relative position and head, and expands them again. All other blocks
    keep their weights, so that a trained CNN can be fine-tuned. The placement (0, 1, 1, 2) of a
    pre-activation ResNet-50 with (3, 4, 6, 4) blocks gives Alter-ResNet-50.

    Args:
        model: any CNN with residual blocks, in evaluation mode; it is not changed.
        images: a few, of the size of the model's input.
        placement: which blocks; see `select_blocks`.
        heads: of all MSA blocks, or per stage; by default 3 times the width of the spatial
            convolution / head_dim: 3, 6, 12 and 24 in the stages of an Alter-ResNet.
        head_dim: channels of each head.
        window: side of a window in positions of the feature map; by default `default_window`.
        seed: of the new weights.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.
    """
    for name, module in model.named_modules():
        if isinstance(module, MSABlock | PostActMSABlock):
            raise InputError(
                f"model must be a CNN without MSA blocks, got one at {name!r}. Convert the "
                "original CNN, and select all blocks at once."
            )
    blocks = conv_blocks(model, images)
    names = select_blocks(blocks, placement)
    stages = max(block.stage for block in blocks)
    if window is None:
        window = default_window(blocks)
    if isinstance(heads, Sequence) and len(heads) != stages:
        ends = {block.stage: block.name for block in blocks}
        raise InputError(
            f"heads must be one number, or one per stage ({stages} stages, which end at "
            f"{', '.join(ends.values())}), got {len(heads)} numbers"
        )
    copy = deepcopy(model)
    for block in blocks:
        if block.name not in names:
            continue
        number = heads[block.stage - 1] if isinstance(heads, Sequence) else heads
        if number is None:
            number = max(1, round(_HEADS_PER_WIDTH * block.width / head_dim))
        old = copy.get_submodule(block.name)
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(stream(seed, "harmonize", block.name).get_state())
            make = PostActMSABlock if block.post_activation else MSABlock
            new = make(
                *(block.in_chans, block.out_chans, block.stride),
                num_heads=number,
                head_dim=head_dim,
                window=window,
                width=block.width,
                norm_layer=_norm_like(old, block.name),
                drop_path=_drop_path(old),
            )
        like = next(old.parameters())
        new = new.to(like.device, like.dtype).train(old.training)
        for name, module in list(copy.named_modules(remove_duplicate=False)):
            if module is old:  # under each of its names
                copy.set_submodule(name, new)
    return copy


def default_window(blocks: Sequence[ConvBlock]) -> int:
    """The side of the last stage's grid, at most 8 pixels: 4 at 32x32, and 7 at 224x224."""
    return min(_MAX_WINDOW, *blocks[-1].grid)


def _norm_like(old: nn.Module, name: str) -> Callable[[int], nn.Module]:
    """Builds norms of the type in the block `name`, or BatchNorm if it has none."""
    leaves = [module for module in old.modules() if not list(module.children())]
    for module in leaves:
        if isinstance(module, nn.GroupNorm):
            groups, rest = module.num_groups, {"eps": module.eps, "affine": module.affine}
            return lambda channels: nn.GroupNorm(gcd(groups, channels), channels, **rest)
        if isinstance(module, nn.LayerNorm):  # also over channels of maps
            return partial(LayerNorm2d, eps=module.eps)
        if isinstance(module, nn.InstanceNorm2d):
            return partial(nn.InstanceNorm2d, eps=module.eps, affine=module.affine)
        if isinstance(module, _BatchNorm):
            return partial(nn.BatchNorm2d, eps=module.eps, momentum=module.momentum)
    for module in leaves:
        unknown = list(module.parameters()) + list(module.buffers())
        if unknown and not isinstance(module, _ConvNd | nn.Linear | nn.PReLU):
            raise InputError(
                "norms of replaced blocks must be BatchNorm, GroupNorm, LayerNorm or "
                f"InstanceNorm2d, got a {type(module).__name__} in block {name!r}. Leave the "
                "block out of placement."
            )
    return nn.BatchNorm2d


def _drop_path(old: nn.Module) -> float:
    """The rate of stochastic depth of the block."""
    for module in old.modules():
        if isinstance(module, DropPath):
            return float(module.drop_prob or 0.0)
        if isinstance(module, StochasticDepth):
            return float(module.p)
    return 0.0
