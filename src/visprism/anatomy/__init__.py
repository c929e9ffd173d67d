"""Anatomy: a model as an ordered row of blocks, and ways to watch and cut them."""

from visprism.anatomy.attending import attend, without_head
from visprism.anatomy.attention import Attention, Weights, attentions
from visprism.anatomy.blocks import Anatomy, Block
from visprism.anatomy.cost import Costs, costs
from visprism.anatomy.dissect import dissect
from visprism.anatomy.forward import Images, batch_size, forward, pixels
from visprism.anatomy.kinds import Kind
from visprism.anatomy.layers import layers
from visprism.anatomy.layout import Layout
from visprism.anatomy.removals import Removal, head_removals, joint_removal, unit_removals
from visprism.anatomy.surgery import lesion, replace, watch

__all__ = [
    "without_head",
    "unit_removals",
    "joint_removal",
    "head_removals",
    "Removal",
    "Anatomy",
    "Attention",
    "Block",
    "Costs",
    "Images",
    "Kind",
    "Layout",
    "Weights",
    "attend",
    "attentions",
    "batch_size",
    "costs",
    "dissect",
    "forward",
    "layers",
    "lesion",
    "pixels",
    "replace",
    "watch",
]
