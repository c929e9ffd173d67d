"""Harmonize: a CNN made into an AlterNet, by putting self-attention where it helps."""

from visprism.harmonize.conv_blocks import ConvBlock, conv_blocks
from visprism.harmonize.convert import harmonize
from visprism.harmonize.placement import Placement, placed
from visprism.harmonize.search import BuildUp, build_up

__all__ = [
    "BuildUp",
    "ConvBlock",
    "Placement",
    "build_up",
    "conv_blocks",
    "harmonize",
    "placed",
]
