"""Anatomy: a model as a sequence of blocks, which can be watched, replaced and ablated."""

from visprism.anatomy.blocks.anatomy import Anatomy, Block, costs
from visprism.anatomy.blocks.attention import Attention, Weights, attentions
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.blocks.kinds import Kind
from visprism.anatomy.blocks.layers import layers
from visprism.anatomy.run.ablations import (
    Ablation,
    ablation_cuts,
    block_ablations,
    combine_ablations,
    convolution_ablations,
    head_ablations,
)
from visprism.anatomy.run.attention_weights import ablate_head, attend
from visprism.anatomy.run.cached_forward import (
    cache_cuts,
    can_start_at,
    first_images,
    forward_from_cut,
)
from visprism.anatomy.run.surgery import ablate, replace, watch, watch_tokens
from visprism.anatomy.trace.forward import Images, batch_size, check_repeatable, forward, pixels
from visprism.anatomy.trace.layout import Layout

__all__ = [
    "Ablation",
    "Anatomy",
    "Attention",
    "Block",
    "Images",
    "Kind",
    "Layout",
    "Weights",
    "ablate",
    "ablate_head",
    "ablation_cuts",
    "attend",
    "attentions",
    "batch_size",
    "block_ablations",
    "cache_cuts",
    "can_start_at",
    "check_repeatable",
    "combine_ablations",
    "convolution_ablations",
    "costs",
    "dissect",
    "first_images",
    "forward",
    "forward_from_cut",
    "head_ablations",
    "layers",
    "pixels",
    "replace",
    "watch",
    "watch_tokens",
]
