"""AlterNet: a CNN made into an AlterNet, by putting self-attention where it helps."""

from visprism.harmonize.block_selection import Placement, placed
from visprism.harmonize.conv_blocks import ConvBlock, conv_blocks
from visprism.harmonize.convert import harmonize
from visprism.harmonize.model_file import save_alternet
from visprism.harmonize.search import ReplacementSearch, search_replacements
from visprism.harmonize.search_job import Shape, search

__all__ = [
    "ConvBlock",
    "Placement",
    "ReplacementSearch",
    "Shape",
    "conv_blocks",
    "harmonize",
    "placed",
    "save_alternet",
    "search",
    "search_replacements",
]
