"""Anatomy: a model as a sequence of blocks, which can be watched, replaced and ablated."""

from visprism.anatomy.blocks.anatomy import Anatomy, Block, costs
from visprism.anatomy.blocks.attention import Attention, Weights, attentions
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.blocks.kinds import Kind
from visprism.anatomy.blocks.layers import layers
from visprism.anatomy.run.ablations import (
    Ablation,
    block_ablations,
    combine_ablations,
    convolutional_blocks,
    inner_blocks,
    quantization,
    quantized,
    replaced_ablation,
    weights_of,
)
from visprism.anatomy.run.attention_weights import attend, watch_heads
from visprism.anatomy.run.cached_forward import cache_cuts, can_start_at, forward_from_cut
from visprism.anatomy.run.replaced_parts import (
    Parts,
    ReplacedPart,
    Replacement,
    block_parts,
    channel_parts,
    convolution_parts,
    head_parts,
    token_parts,
)
from visprism.anatomy.run.surgery import ablate, replace, watch, watch_tokens
from visprism.anatomy.trace.forward import (
    Images,
    SeveralOutputsError,
    batch_size,
    check_repeatable,
    errors_of_model,
    forward,
    part_of,
    pixels,
    placed,
)
from visprism.anatomy.trace.token_positions import Layout

__all__ = [
    "Ablation",
    "Anatomy",
    "Attention",
    "Block",
    "Images",
    "Kind",
    "Layout",
    "Parts",
    "ReplacedPart",
    "Replacement",
    "SeveralOutputsError",
    "Weights",
    "ablate",
    "attend",
    "attentions",
    "batch_size",
    "block_ablations",
    "block_parts",
    "cache_cuts",
    "can_start_at",
    "channel_parts",
    "check_repeatable",
    "combine_ablations",
    "convolution_parts",
    "convolutional_blocks",
    "costs",
    "dissect",
    "errors_of_model",
    "forward",
    "forward_from_cut",
    "head_parts",
    "inner_blocks",
    "layers",
    "part_of",
    "pixels",
    "placed",
    "quantization",
    "quantized",
    "replace",
    "replaced_ablation",
    "token_parts",
    "watch",
    "watch_heads",
    "watch_tokens",
    "weights_of",
]
