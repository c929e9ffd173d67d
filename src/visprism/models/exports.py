"""Exports: weights under the names of another package, or for images of another size.

timm's own functions convert what they know, such as the original files of DINOv2, BEiT and
Swin. Position embeddings are resampled as timm does.
"""

import logging
import re
import sys
from collections.abc import Mapping
from math import isqrt
from pathlib import Path

from timm.layers import resample_abs_pos_embed, resample_abs_pos_embed_nhwc
from torch import Tensor, nn

State = Mapping[str, Tensor]
_log = logging.getLogger(__name__)

_TABLES = ("pos_embed", "pos_embedding", "position_embeddings")  # ends of their names
_PREFIX_TOKENS = (0, 1, 2, 5)  # none, class, distillation, four registers
# Modules of EfficientNet-PyTorch (Melas-Kyriazi), and timm's.
_ENDS = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head"}
_ENDS |= {"_bn1": "bn2", "_fc": "classifier"}
_SEPARABLE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw"}
_SEPARABLE |= {"_bn2": "bn2", "_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
_INVERTED = _SEPARABLE | {"_expand_conv": "conv_pw", "_bn0": "bn1", "_bn1": "bn2"}
_INVERTED |= {"_project_conv": "conv_pwl", "_bn2": "bn3"}


def converted(state: State, model: nn.Module, path: Path) -> State:
    """The tensors of `path` as `model` has them; unchanged where nothing fits better."""
    expected = model.state_dict()
    if _fits(state, expected):
        return state
    if "_conv_stem.weight" in state:
        return _efficientnet(state, model)
    resampled = _resampled(state, model, path)
    if _fits(resampled, expected):
        return resampled
    for kind in type(model).__mro__:
        if kind.__module__.startswith("timm.models."):
            convert = getattr(sys.modules[kind.__module__], "checkpoint_filter_fn", None)
            filtered = _filtered(convert, resampled, model)
            if filtered is not None and _fits(filtered, expected):
                _log.warning("timm converts the names and shapes of %s", path)
                return filtered
    return resampled


def _fits(state: State, expected: State) -> bool:
    return state.keys() == expected.keys() and all(
        state[k].shape == expected[k].shape for k in expected
    )


def _filtered(convert: object, state: State, model: nn.Module) -> State | None:
    """The state as timm's function converts it; None where that does not know the names."""
    try:
        return convert(dict(state), model) if callable(convert) else None
    except (LookupError, AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _resampled(state: State, model: nn.Module, path: Path) -> State:
    """Position embeddings, of a grid of another size, resampled (bicubic, antialiased)."""
    changed = dict(state)
    for name, table in model.state_dict().items():
        stored = state.get(name)
        if stored is None or stored.shape == table.shape or not name.endswith(_TABLES):
            continue
        if stored.ndim == table.ndim == 4 and stored.shape[1] == table.shape[1]:  # PiT's
            old, new = tuple(stored.shape[2:]), tuple(table.shape[2:])
            nhwc = resample_abs_pos_embed_nhwc(stored.permute(0, 2, 3, 1), list(new))
            changed[name] = nhwc.permute(0, 3, 1, 2)
        elif stored.ndim == table.ndim == 3 and stored.shape[2] == table.shape[2]:
            grid = getattr(getattr(model, "patch_embed", None), "grid_size", None)
            sizes = [
                (tokens, _square(stored.shape[1] - tokens), new)
                for tokens in _PREFIX_TOKENS
                for new in (grid, _square(table.shape[1] - tokens))
                if new and new[0] * new[1] == table.shape[1] - tokens
            ]
            sizes = [(tokens, old, new) for tokens, old, new in sizes if old]
            if not sizes:
                continue
            tokens, old, new = sizes[0]
            changed[name] = resample_abs_pos_embed(
                stored, list(new), old, num_prefix_tokens=tokens
            )
        else:
            continue
        before, after = ("x".join(map(str, size)) for size in (old, new))
        _log.warning(
            "%s of %s was resampled from %s to %s positions", *(name, path, before, after)
        )
    return changed


def _square(length: int) -> tuple[int, int] | None:
    side = isqrt(max(length, 0))
    return (side, side) if side and side * side == length else None


def _efficientnet(state: State, model: nn.Module) -> State:
    """EfficientNets of the packages efficientnet_pytorch and efficientnet_lite_pytorch."""
    stages = getattr(model, "blocks", ())
    blocks = [(i, j, block) for i, stage in enumerate(stages) for j, block in enumerate(stage)]
    renamed = {}
    for key, tensor in state.items():
        inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", key)
        outside = re.fullmatch(r"(\w+)\.(\w+)", key)
        if inside and int(inside[1]) < len(blocks):
            i, j, block = blocks[int(inside[1])]
            names = _INVERTED if hasattr(block, "conv_pwl") else _SEPARABLE
            key = f"blocks.{i}.{j}.{names.get(inside[2], inside[2])}.{inside[3]}"
        elif outside:
            key = f"{_ENDS.get(outside[1], outside[1])}.{outside[2]}"
        renamed[key] = tensor
    return renamed
