"""Author formats: the checkpoints that Park and Kim (2022) publish for CIFAR-100.

They are a ResNet-50 of the authors' own class, and a ViT-Ti, PiT-Ti and Swin-Ti of timm 0.5,
each a pickled dictionary with an entry ``state_dict``. Each is a network of the zoo under other
names.
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
from visprism.models.layers.shifted_windows import window_index, windows_apart

State = Mapping[str, Tensor]
_SHOWN = 3  # keys in an error message
_CLASSES = 100
_GRID, _WINDOW = 32, 4  # tokens along a side, of Swin's first stage and of its windows

# Of the training images of CIFAR-100, as the authors' configurations have them.
_IMAGES = Preprocessing((32, 32), (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


@dataclass(frozen=True)
class AuthorFormat:
    """Names of the tensors of one network of the authors, and its name in the zoo."""

    marks: tuple[str, ...]  # keys that only this format has
    classifier: str  # a key; its tensor has a row for each class
    names: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]  # theirs, ours
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the zoo's network
    constants: str | None = None  # keys of masks and indices; the first group is the stage

    def options(self, state: State) -> dict[str, Any]:
        """The arguments with which the zoo's network is the one in the file."""
        return {"num_classes": len(state[self.classifier]), **self.arguments}

    def preprocessing(self, state: State) -> Preprocessing | None:
        """The preprocessing of the images, if the network has the classes of CIFAR-100."""
        return _IMAGES if len(state[self.classifier]) == _CLASSES else None

    def translated(self, state: State, path: Path) -> dict[str, Tensor]:
        """The weights under the zoo's names.

        Raises:
            InputError: if a key is unknown, or a constant differs from the zoo's.
        """
        if state[self.classifier].ndim != 2:
            raise InputError(
                f"{path} was refused: its {self.classifier} must have one row "
                f"per class, got shape {tuple(state[self.classifier].shape)}"
            )
        ours, unknown = {}, []
        for key, tensor in state.items():
            constant = re.fullmatch(self.constants, key) if self.constants else None
            if constant:
                _check_constant(key, tensor, path, stage=int(constant[1]))
                continue
            matching = [pair for pair in self.names if re.fullmatch(pair[0], key)]
            if len(matching) == 1:
                ours[re.sub(*matching[0], key)] = tensor
            else:
                unknown.append(key)
        if unknown:
            more = ", ..." if len(unknown) > _SHOWN else ""
            raise InputError(
                f"{path} looks like a checkpoint of the authors of 'How do "
                f"vision transformers work?', but {len(unknown)} of its "
                f"{len(state)} tensors ({', '.join(unknown[:_SHOWN])}{more}) "
                "are not theirs"
            )
        return ours


def author_format(name: str, state: State) -> AuthorFormat | None:
    """The format in which the authors wrote the zoo's network `name`, if `state` has it."""
    candidate = FORMATS.get(name)
    return candidate if candidate and all(mark in state for mark in candidate.marks) else None


def _check_constant(key: str, tensor: Tensor, path: Path, *, stage: int) -> None:
    """Check that a mask or an index that timm 0.5 stored is what the zoo's network has."""
    side, shift = _GRID // 2**stage, _WINDOW // 2
    window = (_WINDOW, _WINDOW)
    if key.endswith("index"):
        same = torch.equal(tensor, window_index(window, window))
    else:
        apart = windows_apart((side, side), window, (shift, shift))
        same = torch.equal(tensor, apart * -100.0)
    if not same:
        raise InputError(
            f"{path} was refused: its {key} must be that of windows of "
            f"{_WINDOW}x{_WINDOW} tokens shifted by {shift} on a grid of "
            f"{side}x{side}"
        )


_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_LAYER = "(weight|bias)"
_BLOCK = rf"(norm[12]|attn\.(qkv|proj)|mlp\.fc[12])\.{_LAYER}"
_SAME = r"\g<0>"

FORMATS: Mapping[str, AuthorFormat] = {
    "resnet50_32": AuthorFormat(
        marks=("layer0.0.weight", "classifier.0.dense.weight"),
        classifier="classifier.0.dense.weight",
        names=(
            (r"layer0\.0\.weight", "conv1.weight"),
            (rf"layer0\.1\.{_NORM}", r"bn1.\1"),
            (r"(layer[1-4]\.\d+)\.conv([123])\.0\.weight", r"\1.conv\2.weight"),
            (rf"(layer[1-4]\.\d+)\.conv([123])\.1\.{_NORM}", r"\1.bn\2.\3"),
            (r"(layer[1-4]\.\d+)\.shortcut\.0\.weight", r"\1.downsample.0.weight"),
            (rf"(layer[1-4]\.\d+)\.shortcut\.1\.{_NORM}", r"\1.downsample.1.\2"),
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
            (  # timm 0.5 pools at the end of a stage, timm 1 at the beginning
                rf"transformers\.(\d)\.pool\.(conv|fc)\.{_LAYER}",
                lambda key: f"transformers.{int(key[1]) + 1}.pool.{key[2]}.{key[3]}",
            ),
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
            (  # timm 0.5 merges patches at the end of a stage, timm 1 at the beginning
                rf"layers\.(\d)\.downsample\.(norm|reduction)\.{_LAYER}",
                lambda key: f"layers.{int(key[1]) + 1}.downsample.{key[2]}.{key[3]}",
            ),
            (rf"head\.{_LAYER}", r"head.fc.\1"),
        ),
        arguments={"qkv_bias": False},
        constants=r"layers\.([0-3])\.blocks\.\d+\.(attn_mask|attn\.relative_position_index)",
    ),
}
