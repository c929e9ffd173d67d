"""Anatomy: a model as an ordered row of blocks, and ways to watch and cut them."""

from visprism.anatomy.attending import attend, without_head
from visprism.anatomy.attention import Attention, Weights, attentions
from visprism.anatomy.blocks import Anatomy, Block
from visprism.anatomy.cost import Costs, costs
from visprism.anatomy.dissect import dissect
from visprism.anatomy.forward import Images, batch_size, check_repeatable, forward, pixels
from visprism.anatomy.kinds import Kind
from visprism.anatomy.layers import layers
from visprism.anatomy.layout import Layout
from visprism.anatomy.removals import (
    Removal,
    cuts_of,
    head_removals,
    joint_removal,
    unit_removals,
)
from visprism.anatomy.resuming import first_images, record, resumable, resumed
from visprism.anatomy.surgery import lesion, replace, watch

__all__ = [
    "Anatomy",
    "Attention",
    "Block",
    "Costs",
    "Images",
    "Kind",
    "Layout",
    "Removal",
    "Weights",
    "attend",
    "attentions",
    "batch_size",
    "check_repeatable",
    "costs",
    "cuts_of",
    "dissect",
    "first_images",
    "forward",
    "head_removals",
    "joint_removal",
    "layers",
    "lesion",
    "pixels",
    "record",
    "replace",
    "resumable",
    "resumed",
    "unit_removals",
    "watch",
    "without_head",
]
