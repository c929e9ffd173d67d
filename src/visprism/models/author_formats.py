"""Author formats: how a checkpoint of the code of Park and Kim (2022) becomes one of the zoo.

Their files are pickled dictionaries with the entries ``name`` and ``state_dict``. Each network
is one of the zoo under other names; `visprism.models.author_networks` declares them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.models.layers.shifted_windows import window_index, windows_apart

State = Mapping[str, Tensor]
Replacement = str | Callable[[re.Match[str]], str]
_SHOWN = 3  # keys in an error message
_GRID, _WINDOW = 32, 4  # tokens along a side, of Swin's first stage and of its windows

# Means and deviations by number of classes, as the authors' configurations have them.
_CIFAR = {
    10: Preprocessing((32, 32), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    100: Preprocessing((32, 32), (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}


def _no_options(state: State) -> dict[str, Any]:
    return {}


def _unchanged(state: State) -> State:
    return state


@dataclass(frozen=True)
class AuthorFormat:
    """The tensors of one family of the authors: their names, and those in the zoo."""

    networks: str  # a pattern of the zoo's names
    marks: tuple[str, ...]  # keys that only this format has
    classifier: str = ""  # a key; its tensor has a row for each class
    names: tuple[tuple[str, Replacement], ...] = ()  # patterns of theirs, and ours
    in_order: bool = False  # layers get the names of the zoo's layers in their order
    arguments: Callable[[State], dict[str, Any]] = _no_options  # of the zoo's network
    rearranged: Callable[[State], State] = _unchanged  # joins and splits tensors before naming
    values: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = ()  # by pattern of our names
    constants: str | None = None  # keys of masks and indices; the first group is the stage
    layer_norm_eps: float | None = None  # of the authors' norms, where the zoo's have another
    refusal: str = ""  # why no network of the zoo gives the same logits

    def options(self, state: State) -> dict[str, Any]:
        """The arguments with which the zoo's network is the one in the file."""
        return {"num_classes": self._classes(state), **self.arguments(state)}

    def preprocessing(self, state: State, name: str) -> Preprocessing | None:
        """The preprocessing of the images, if the network has the classes of a CIFAR."""
        return _CIFAR.get(self._classes(state)) if name.endswith("_32") else None

    def check(self, state: State, name: str, path: Path) -> None:
        """Check that the zoo has the network `name` of the authors that is in the file."""
        reason = self.refusal
        if "_smoothing" in name:
            reason = (
                "the authors' spatial smoothing enlarges the feature map by a pixel, which "
                "that of visprism does not"
            )
        if reason:
            raise InputError(f"{path} was refused: {reason}. Its logits would differ.")
        if state[self.classifier].ndim != 2:
            raise InputError(
                f"{path} was refused: its {self.classifier} must have one row "
                f"per class, got shape {tuple(state[self.classifier].shape)}"
            )

    def translated(self, state: State, model: nn.Module, path: Path) -> dict[str, Tensor]:
        """The weights under the names of `model`, a network of the zoo."""
        try:
            state = self.rearranged(state)
            ours, unknown = self._named(state, path)
            if self.in_order:
                ours = _in_order(ours, model, path)
            for pattern, change in self.values:
                ours |= {k: change(t) for k, t in ours.items() if re.fullmatch(pattern, k)}
        except (IndexError, LookupError, RuntimeError) as error:
            raise InputError(
                f"{path} was refused: a tensor is missing or has another number of axes than "
                "in the authors' network"
            ) from error
        if unknown:
            more = ", ..." if len(unknown) > _SHOWN else ""
            raise InputError(
                f"{path} looks like a checkpoint of the authors of 'How do "
                f"vision transformers work?', but {len(unknown)} of its "
                f"{len(state)} tensors ({', '.join(unknown[:_SHOWN])}{more}) "
                "are not theirs"
            )
        return ours

    def prepare(self, model: nn.Module) -> None:
        """Give the norms of a network of the zoo the authors' epsilon."""
        if self.layer_norm_eps is not None:
            for module in model.modules():
                if isinstance(module, nn.LayerNorm):
                    module.eps = self.layer_norm_eps

    def _classes(self, state: State) -> int:
        return len(state[self.classifier])

    def _named(self, state: State, path: Path) -> tuple[dict[str, Tensor], list[str]]:
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
        return ours, unknown


def _in_order(state: State, model: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors with the names of the model's layers, which compute in the same order."""
    theirs, ours = (
        list(dict.fromkeys(key.rpartition(".")[0] for key in names))
        for names in (state, model.state_dict())
    )
    if len(theirs) != len(ours):
        raise InputError(
            f"{path} does not match the model: it has {len(theirs)} layers with weights, the "
            f"model {len(ours)}"
        )
    layers = dict(zip(theirs, ours, strict=True))
    parts = ((key.rpartition("."), tensor) for key, tensor in state.items())
    return {f"{layers[layer]}.{last}": tensor for (layer, _, last), tensor in parts}


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
