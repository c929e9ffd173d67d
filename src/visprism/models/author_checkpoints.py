"""The four checkpoints that Park and Kim (2022) publish, as networks of the zoo.

They are a ResNet-50 of the authors' class, and a ViT-Ti, PiT-Ti and Swin-Ti of timm 0.5, all
for CIFAR-100: pickled dictionaries with the entry ``state_dict``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from visprism.core.preprocessing import Preprocessing

# Means and deviations by number of classes, as in the authors' configurations.
_CIFAR = {
    10: Preprocessing((32, 32), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    100: Preprocessing((32, 32), (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}
# Masks and indices that timm 0.5 stored.
_CONSTANTS = re.compile(r"layers\.\d\.blocks\.\d+\.(attn_mask|attn\.relative_position_index)")


@dataclass(frozen=True)
class _Format:
    """The tensors of one of the checkpoints: their names, and those in the zoo."""

    marks: tuple[str, ...]  # keys that only this format has
    classifier: str  # a key; its tensor has a row for each class
    # Patterns of names that are others in the zoo, and those.
    names: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the zoo's network


def from_authors(
    name: str, state: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any], Preprocessing | None] | None:
    """Weights under the names of the zoo's network `name`, its arguments, and preprocessing.

    None if the state is not one of the authors' for this network. The preprocessing is None if
    it does not have the classes of a CIFAR.
    """
    theirs = _FORMATS.get(name)
    if theirs is None or not all(mark in state for mark in theirs.marks):
        return None
    ours = {}
    for key, tensor in state.items():
        if not _CONSTANTS.fullmatch(key):
            for pattern, replacement in theirs.names:
                key = re.sub(pattern, replacement, key)
            ours[key] = tensor
    classes = len(state[theirs.classifier])
    return ours, {"num_classes": classes, **theirs.arguments}, _CIFAR.get(classes)


def _next_stage(key: re.Match[str]) -> str:
    """The name in timm 1, which pools and merges at the beginning of a stage."""
    return f"{key[1]}.{int(key[2]) + 1}.{key[3]}"


_FORMATS = {
    "resnet50_32": _Format(
        marks=("layer0.0.weight", "layer0.1.weight", "classifier.0.dense.weight"),
        classifier="classifier.0.dense.weight",
        names=(
            (r"^layer0\.0\.", "conv1."),
            (r"^layer0\.1\.", "bn1."),
            (r"\.conv([123])\.0\.", r".conv\1."),
            (r"\.conv([123])\.1\.", r".bn\1."),
            (r"\.shortcut\.", ".downsample."),
            (r"^classifier\.0\.dense\.", "fc."),
        ),
    ),
    "vit_tiny_patch2_32": _Format(marks=("cls_token", "head.weight"), classifier="head.weight"),
    "pit_tiny_patch2_32": _Format(
        marks=("transformers.0.blocks.0.attn.qkv.bias", "head.weight"),
        classifier="head.weight",
        names=((r"^(transformers)\.(\d)\.(pool\.)", _next_stage),),
        arguments={"qkv_bias": True, "no_embed_class": True},
    ),
    "swin_tiny_patch1_window4_32": _Format(
        marks=("layers.0.downsample.reduction.weight", "head.weight"),
        classifier="head.weight",
        names=(
            (r"^(layers)\.(\d)\.(downsample\.)", _next_stage),
            (r"^head\.", "head.fc."),
        ),
        arguments={"qkv_bias": False},
    ),
}
