"""Convert: Conv blocks of any CNN replaced by MSA blocks, all other weights kept."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from math import gcd

import torch
from timm.layers import DropPath, LayerNorm2d
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torchvision.ops import StochasticDepth

from visprism.anatomy import Images
from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.harmonize.block_selection import Placement, placed
from visprism.harmonize.conv_blocks import ConvBlock, conv_blocks
from visprism.models.layers.msa_block import MSABlock, PostActMSABlock

_HEAD_DIM = 64
_PER_WIDTH = 3  # heads x head_dim over the width that attention reads, in Alter-ResNets
_LARGEST = 8  # pixels of a window's side


def harmonize(
    model: nn.Module,
    images: Images,
    placement: Placement = "alternate",
    *,
    heads: int | Sequence[int] | None = None,
    head_dim: int = _HEAD_DIM,
    window: int | None = None,
    seed: int = 0,
) -> nn.Module:
    """A copy of a CNN with multi-head self-attention in the place of some of its Conv blocks.

    An MSA block takes the place of a residual block and keeps its stride, its numbers of
    channels, its kind of norm, its stochastic depth and its order: pre-activation, or
    activation after the sum. It narrows to the width of the spatial convolution that it
    replaces, attends inside windows with a bias for each relative position and head, and
    widens again. All other blocks keep their weights, so that a trained CNN can be tuned on;
    of a pre-activation ResNet-50 with (3, 4, 6, 4) blocks, (0, 1, 1, 2) makes Alter-ResNet-50.

    Args:
        model: any CNN with residual blocks, in evaluation mode; it is left as it is.
        images: a few, of the size that it is meant for.
        placement: which blocks; see `placed`.
        heads: of the MSA blocks, one number or one for each stage. By default 3 width /
            head_dim, which gives 3, 6, 12 and 24 to the stages of an Alter-ResNet: more heads
            in late stages.
        head_dim: channels of each head.
        window: side of a window in pixels; by default the side of the last stage's grid, and 8
            at most, which gives 4 at 32x32 and 7 at 224x224.
        seed: of the new weights.

    Raises:
        InputError: if there is no residual Conv block, or an MSA block already, placement,
            heads or window do not fit, or a block has a norm of a kind that is unknown.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"got a {type(model).__name__}; harmonize wants a torch.nn.Module")
    for name, module in model.named_modules():
        if isinstance(module, MSABlock | PostActMSABlock):
            raise InputError(
                f"{name!r} is an MSA block already, and placement counts Conv blocks alone; "
                "give the CNN as it was before, and all that is to be replaced at once"
            )
    blocks = conv_blocks(model, images)
    names = placed(blocks, placement)
    stages = max(block.stage for block in blocks)
    if window is None:
        window = min(_LARGEST, *blocks[-1].grid)
    if type(head_dim) is not int or head_dim < 1:
        raise InputError(f"head_dim is {head_dim}; wants a whole number of channels from 1 up")
    if type(window) is not int or window < 1:
        raise InputError(
            f"window is {window}; wants one whole number of pixels from 1 up, the side of all "
            "windows, or None for the side of the last stage's grid"
        )
    if isinstance(heads, Sequence) and len(heads) != stages:
        ends = {block.stage: block.name for block in blocks}
        raise InputError(
            f"heads has {len(heads)} numbers, but the network has {stages} stages, which end "
            f"at {', '.join(ends.values())} (where a convolution is dilated instead of strided "
            "none ends); give one number, or one for each stage"
        )
    copy = deepcopy(model)
    for block in blocks:
        if block.name not in names:
            continue
        number = heads[block.stage - 1] if isinstance(heads, Sequence) else heads
        if number is None:
            number = max(1, round(_PER_WIDTH * block.width / head_dim))
        old = copy.get_submodule(block.name)
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(stream(seed, "harmonize", block.name).get_state())
            new = _msa_block(block, old, num_heads=number, head_dim=head_dim, window=window)
        like = next(old.parameters())
        new = new.to(like.device, like.dtype).train(old.training)
        for name, module in list(copy.named_modules(remove_duplicate=False)):
            if module is old:  # under each of its names
                copy.set_submodule(name, new)
    return copy


def _msa_block(
    block: ConvBlock, old: nn.Module, *, num_heads: int, head_dim: int, window: int
) -> nn.Module:
    make = PostActMSABlock if block.post_activation else MSABlock
    return make(
        block.in_chans,
        block.out_chans,
        block.stride,
        num_heads=num_heads,
        head_dim=head_dim,
        window=window,
        width=block.width,
        norm_layer=_norm_like(old, block.name),
        drop_path=_drop_path(old),
    )


def _norm_like(old: nn.Module, name: str) -> Callable[[int], nn.Module]:
    """Makes norms for maps, of the kind that the block `name` has; BatchNorms if it has none.

    Raises:
        InputError: if it has a norm of an unknown kind, or one that is unknown at all: a module
            with numbers of its own that is neither a norm, a convolution nor a linear map.
    """
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
                f"block {name!r} has a {type(module).__name__}, and harmonize takes over norms "
                "that are a BatchNorm, GroupNorm, LayerNorm or InstanceNorm2d of torch; leave "
                "the block out of placement, or give its norm one of these as its class"
            )
    return nn.BatchNorm2d


def _drop_path(old: nn.Module) -> float:
    """The probability with which the block's branch is left out in training."""
    for module in old.modules():
        if isinstance(module, DropPath):
            return float(module.drop_prob or 0.0)
        if isinstance(module, StochasticDepth):
            return float(module.p)
    return 0.0
