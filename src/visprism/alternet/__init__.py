"""AlterNet: a CNN made into an AlterNet, by putting self-attention where it helps."""

from visprism.alternet.conv_blocks import ConvBlock, conv_blocks
from visprism.alternet.convert import harmonize
from visprism.alternet.job import Shape, search
from visprism.alternet.keeping import save_alternet
from visprism.alternet.placement import Placement, placed
from visprism.alternet.search import BuildUp, build_up

__all__ = [
    "BuildUp",
    "ConvBlock",
    "Placement",
    "Shape",
    "build_up",
    "conv_blocks",
    "harmonize",
    "placed",
    "save_alternet",
    "search",
]
