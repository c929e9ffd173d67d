"""Anatomy: a model as an ordered row of blocks, and ways to watch and cut them."""

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.attention import Attention, Weights, attentions
from visprism.anatomy.blocks.cost import Costs, costs
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.blocks.kinds import Kind
from visprism.anatomy.blocks.layers import layers
from visprism.anatomy.run.ablations import (
    Ablation,
    ablation_cuts,
    block_ablations,
    combine_ablations,
    head_ablations,
)
from visprism.anatomy.run.attention_weights import attend, without_head
from visprism.anatomy.run.cached_forward import first_images, record, resumable, resumed
from visprism.anatomy.run.surgery import lesion, replace, watch
from visprism.anatomy.trace.forward import Images, batch_size, check_repeatable, forward, pixels
from visprism.anatomy.trace.layout import Layout

__all__ = [
    "Ablation",
    "Anatomy",
    "Attention",
    "Block",
    "Costs",
    "Images",
    "Kind",
    "Layout",
    "Weights",
    "ablation_cuts",
    "attend",
    "attentions",
    "batch_size",
    "block_ablations",
    "check_repeatable",
    "combine_ablations",
    "costs",
    "dissect",
    "first_images",
    "forward",
    "head_ablations",
    "layers",
    "lesion",
    "pixels",
    "record",
    "replace",
    "resumable",
    "resumed",
    "watch",
    "without_head",
]
