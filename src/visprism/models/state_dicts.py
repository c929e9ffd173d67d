"""State dictionaries: tensors by name, out of a file and whatever is wrapped around them.

A ``.safetensors`` file can hold tensors only. Any other file is read by torch with
``weights_only=True``, which refuses a pickle that would call a function.
"""

import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from visprism.core.errors import InputError

_PICKLE = b"\x80"  # how one begins
_SHOWN = 3  # keys of each sort in an error message
_WRAPPERS = ("module.", "_orig_mod.")  # DistributedDataParallel, torch.compile
_NESTS = ("state_dict", "model")  # where training scripts put the state dict
_AVERAGES = ("state_dict_ema", "model_ema", "ema")  # and moving averages of the weights
_COUNT = "n_averaged"  # an entry of torch's AveragedModel beside those of its module


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors in a checkpoint by name; what wraps them or their names is taken off.

    Raises:
        InputError: if the file is missing, is no checkpoint, would run code, or holds both
            weights and a moving average of them.
    """
    if not path.is_file():
        raise InputError(f"the checkpoint {path} does not exist or is not a file")
    content = _read(path)
    content = _unnested(content, path)
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"{path} holds no state dict but {_what(content)}")
    odd = [k for k, v in content.items() if not isinstance(v, Tensor)]
    if odd:
        raise InputError(
            f"{path} holds no state dict: {len(odd)} of its {len(content)} entries "
            f"({some(odd)}) are not tensors; save model.state_dict() alone"
        )
    names = [str(name) for name in content if name != _COUNT]
    averaged = all(name.startswith(_WRAPPERS[0]) for name in names)
    return {
        _bare(str(name)): tensor
        for name, tensor in content.items()
        if not (averaged and name == _COUNT)
    }


def _unnested(content: Any, path: Path) -> Any:  # noqa: ANN401 (whatever was pickled)
    """What lies inside the dictionaries that training scripts put around a state dict.

    Raises:
        InputError: if there are two state dicts, so that it is not clear which one is meant.
    """
    while isinstance(content, Mapping):
        here = [n for n in (*_NESTS, *_AVERAGES) if isinstance(content.get(n), Mapping)]
        averages = [n for n in here if n in _AVERAGES]
        if averages and len(here) > 1:
            raise InputError(
                f"{path} holds several sets of weights ({', '.join(here)}), of which "
                f"{averages[0]} is a moving average; save the one that you want alone, by "
                f"torch.save(torch.load(path)[{averages[0]!r}], other_path)"
            )
        if not here:
            break
        content = content[here[0]]
    return content


def _read(path: Path) -> Any:  # noqa: ANN401 (whatever was pickled)
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise InputError(
                f"{path} was refused: it is no safetensors file ({error})"
            ) from error
    # Training scripts keep their arguments beside the weights; a Namespace only holds values.
    quiet = warnings.catch_warnings(action="ignore")  # of a pickle, which is refused below
    with torch.serialization.safe_globals([Namespace]), quiet:
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise InputError(f"{path} is damaged or incomplete ({error})") from error
        except (
            pickle.UnpicklingError,
            RuntimeError,
            EOFError,
            ValueError,
            LookupError,
        ) as error:
            code = re.search(r"GLOBAL ([\w.]+)", str(error))
            found = "is no checkpoint"
            if _begins(path) == _PICKLE:
                found = (
                    "is a pickle that torch's safe reader does not know, so it might run code"
                )
            if code:
                found = f"would run code when loaded ({code[1]})"
            raise InputError(
                f"{path} was refused: it {found}; save the weights alone, by "
                "torch.save(model.state_dict(), path) or as safetensors"
            ) from error


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1)


def _bare(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def _what(content: object) -> str:
    return "nothing" if content in ({}, None) else f"a {type(content).__name__}"


def some(keys: Sequence[object]) -> str:
    """The first names of a list, for a message."""
    more = ", ..." if len(keys) > _SHOWN else ""
    return ", ".join(map(str, keys[:_SHOWN])) + more
