"""The four checkpoints that Park and Kim (2022) publish, as networks of the zoo.

They are a ResNet-50 of the authors' class, and a ViT-Ti, PiT-Ti and Swin-Ti of timm 0.5, all
for CIFAR-100: pickled dictionaries with the entry ``state_dict``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.models.state_dicts import first_names
from visprism.models.zoo.swin import window_index, windows_apart

State = Mapping[str, Tensor]
_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_LAYER = "(weight|bias)"
_BLOCK = rf"(norm[12]|attn\.(qkv|proj)|mlp\.fc[12])\.{_LAYER}"
_STAGE = r"(layer[1-4]\.\d+)"
_SAME = r"\g<0>"
_GRID, _WINDOW = 32, 4  # tokens along a side, of Swin's first stage and of its windows

# Means and deviations by number of classes, as in the authors' configurations.
_CIFAR = {
    10: Preprocessing((32, 32), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    100: Preprocessing((32, 32), (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}


@dataclass(frozen=True)
class AuthorFormat:
    """The tensors of one of the checkpoints: their names, and those in the zoo."""

    marks: tuple[str, ...]  # keys that only this format has
    classifier: str  # a key; its tensor has a row for each class
    names: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]  # patterns, and ours
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the zoo's network

    def options(self, state: State, path: Path) -> dict[str, Any]:
        """The arguments with which the zoo's network is the one in the file."""
        rows = state[self.classifier]
        if rows.ndim != 2:
            raise InputError(
                f"{path} was refused: its {self.classifier} must have one row per class, got "
                f"shape {tuple(rows.shape)}"
            )
        return {"num_classes": len(rows), **self.arguments}

    def preprocessing(self, state: State) -> Preprocessing | None:
        """The preprocessing of the images, if the network has the classes of a CIFAR."""
        return _CIFAR.get(len(state[self.classifier]))

    def translated(self, state: State, path: Path) -> dict[str, Tensor]:
        """The weights under the names of the zoo's network."""
        ours, unknown = {}, []
        for key, tensor in state.items():
            constant = re.fullmatch(_CONSTANTS, key)
            matching = [pair for pair in self.names if re.fullmatch(pair[0], key)]
            if constant:
                _check_constant(key, tensor, path, stage=int(constant[1]))
            elif matching:
                ours[re.sub(*matching[0], key)] = tensor
            else:
                unknown.append(key)
        if unknown:
            raise InputError(
                f"{path} looks like a checkpoint of the authors of 'How do vision transformers "
                f"work?', but {len(unknown)} of its {len(state)} tensors "
                f"({first_names(unknown)}) are not theirs"
            )
        return ours


def author_format(name: str, state: State) -> AuthorFormat | None:
    """The format in which the authors wrote the zoo's network `name`, if `state` has it."""
    candidate = _FORMATS.get(name)
    marked = candidate is not None and all(mark in state for mark in candidate.marks)
    return candidate if marked else None


# Masks and indices that timm 0.5 stored; the group is the stage.
_CONSTANTS = r"layers\.([0-3])\.blocks\.\d+\.(?:attn_mask|attn\.relative_position_index)"


def _check_constant(key: str, tensor: Tensor, path: Path, *, stage: int) -> None:
    """Check that a mask or an index is what the zoo's network has."""
    side, shift = _GRID // 2**stage, _WINDOW // 2
    window = (_WINDOW, _WINDOW)
    if key.endswith("index"):
        same = torch.equal(tensor, window_index(window, window))
    else:
        apart = windows_apart((side, side), window, (shift, shift))
        same = torch.equal(tensor, apart * -100.0)
    if not same:
        raise InputError(
            f"{path} was refused: its {key} must be for windows of {_WINDOW}x{_WINDOW} "
            f"tokens shifted by {shift} on a grid of {side}x{side}"
        )


def _next_stage(key: re.Match[str]) -> str:
    """The name in timm 1, which pools and merges at the beginning of a stage."""
    return f"{key[1]}.{int(key[2]) + 1}.{key[3]}"


_FORMATS = {
    "resnet50_32": AuthorFormat(
        marks=("layer0.0.weight", "layer0.1.weight", "classifier.0.dense.weight"),
        classifier="classifier.0.dense.weight",
        names=(
            (r"layer0\.0\.weight", "conv1.weight"),
            (rf"layer0\.1\.{_NORM}", r"bn1.\1"),
            (rf"{_STAGE}\.conv([123])\.0\.weight", r"\1.conv\2.weight"),
            (rf"{_STAGE}\.conv([123])\.1\.{_NORM}", r"\1.bn\2.\3"),
            (rf"{_STAGE}\.shortcut\.0\.weight", r"\1.downsample.0.weight"),
            (rf"{_STAGE}\.shortcut\.1\.{_NORM}", r"\1.downsample.1.\2"),
            (rf"classifier\.0\.dense\.{_LAYER}", r"fc.\1"),
        ),
    ),
    "vit_tiny_patch2_32": AuthorFormat(
        marks=("cls_token", "head.weight"),
        classifier="head.weight",
        names=(
            (rf"cls_token|pos_embed|(patch_embed\.proj|norm|head)\.{_LAYER}", _SAME),
            (rf"blocks\.\d+\.{_BLOCK}", _SAME),
        ),
    ),
    "pit_tiny_patch2_32": AuthorFormat(
        marks=("transformers.0.blocks.0.attn.qkv.bias", "head.weight"),
        classifier="head.weight",
        names=(
            (rf"cls_token|pos_embed|(patch_embed\.conv|norm|head)\.{_LAYER}", _SAME),
            (rf"transformers\.\d\.blocks\.\d+\.{_BLOCK}", _SAME),
            (rf"(transformers)\.(\d)\.(pool\.(?:conv|fc)\.{_LAYER})", _next_stage),
        ),
        arguments={"qkv_bias": True, "no_embed_class": True},
    ),
    "swin_tiny_patch1_window4_32": AuthorFormat(
        marks=("layers.0.downsample.reduction.weight", "head.weight"),
        classifier="head.weight",
        names=(
            (rf"(patch_embed\.(proj|norm)|norm)\.{_LAYER}", _SAME),
            (rf"layers\.\d\.blocks\.\d+\.{_BLOCK}", _SAME),
            (r"layers\.\d\.blocks\.\d+\.attn\.relative_position_bias_table", _SAME),
            (rf"(layers)\.(\d)\.(downsample\.(?:norm|reduction)\.{_LAYER})", _next_stage),
            (rf"head\.{_LAYER}", r"head.fc.\1"),
        ),
        arguments={"qkv_bias": False},
    ),
}
