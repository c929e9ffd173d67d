"""AlterNet: a CNN with self-attention instead of some of its Conv blocks."""

from visprism.harmonize.alternet import save_alternet
from visprism.harmonize.blocks import ConvBlock, Placement, conv_blocks, select_blocks
from visprism.harmonize.convert import MSAConfig, harmonize_model
from visprism.harmonize.replacement_search import ReplacementSearch
from visprism.harmonize.search import search_by_recipe, search_replacements

__all__ = [
    "ConvBlock",
    "MSAConfig",
    "Placement",
    "ReplacementSearch",
    "conv_blocks",
    "harmonize_model",
    "save_alternet",
    "search_by_recipe",
    "search_replacements",
    "select_blocks",
]
