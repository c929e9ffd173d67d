"""State dicts: tensors by name, from a file in any of the usual formats.

A ``.safetensors`` file can hold tensors only. Any other file is read by torch with
``weights_only=True``, which refuses a pickle that would call a function.
"""

import logging
import re
import warnings
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from visprism.core.errors import DamagedError, InputError, printable
from visprism.core.files import check_uncompressed, is_file

_SHOWN = 3  # keys of each sort in an error message
_LONGEST = 100  # characters of a key in an error message
_WRAPPERS = ("module.", "_orig_mod.")  # DistributedDataParallel, torch.compile
# Anywhere in a name: what wraps single modules.
_INNER = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod")
_NESTS = (
    "state_dict", "model_state_dict", "model_state", "model", "net",
    "module",  # of DeepSpeed
)  # fmt: skip
# Averages of the weights, as training scripts name them.
_AVERAGES = (
    "state_dict_ema", "model_ema", "ema", "ema_state_dict", "model_ema_state_dict", "ema_model",
    "ema_model_state_dict", "averaged_model", "average_model", "swa_state_dict", "swa_model",
    "model_state_dict_ema",
)  # fmt: skip
_COUNT = "n_averaged"  # an entry of torch's AveragedModel, next to its module's entries

# What training scripts keep with the weights; none of it does more than hold values.
_VALUES: list[Any] = [
    Namespace,
    np.dtype,
    *(type(np.dtype(kind)) for kind in (bool, np.int32, np.int64, np.float32, np.float64)),
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # pyrefly: ignore
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # pyrefly: ignore
]


_log = logging.getLogger(__name__)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors in a checkpoint by name, without wrapping dictionaries and prefixes.

    Given weights and their moving average, the average is taken, as timm does, with a warning.
    """
    path = Path(path)
    if not is_file(path):
        raise InputError(f"the checkpoint {path} must be an existing file")
    content = _unnested(_read(path), path)
    if not isinstance(content, Mapping) or not content:
        what = "nothing" if content in ({}, None) else f"a {type(content).__name__}"
        raise InputError(f"{path} must hold a state dict, got {what}")
    odd = [k for k, v in content.items() if not (isinstance(v, Tensor) and _is_dense(v))]
    if odd:
        raise InputError(
            f"{path} must hold a state dict, and {len(odd)} of its {len(content)} entries "
            f"({first_names(odd)}) are not dense tensors. Save only model.state_dict()."
        )
    names = [name for name in map(str, content) if name != _COUNT]
    if all(name.startswith(_WRAPPERS[0]) for name in names):
        content = {name: v for name, v in content.items() if name != _COUNT}
    return {_bare(str(name)): tensor for name, tensor in content.items()}


def _unnested(content: Any, path: Path) -> Any:
    """The state dict inside the dictionaries of training scripts."""
    while isinstance(content, Mapping):
        entries = [n for n in (*_AVERAGES, *_NESTS) if isinstance(content.get(n), Mapping)]
        if not entries:
            break
        sets = [n for n in entries if _has_tensors(content[n])]
        if len(sets) > 1:
            _log.warning(
                "%s holds several sets of weights (%s); %s is loaded. To load another one, "
                "save only that one: torch.save(torch.load(path)[%r], other_path)",
                *(path, ", ".join(sets), sets[0], sets[-1]),
            )
        elif entries[0] in _AVERAGES:
            _log.warning(
                "%s holds an average of weights (%s), which is loaded", path, entries[0]
            )
        content = content[entries[0]]
    return content


def _has_tensors(content: Mapping[Any, Any]) -> bool:
    return any(
        _has_tensors(v) if isinstance(v, Mapping) else isinstance(v, Tensor)
        for v in content.values()
    )


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise DamagedError(
                f"{path} was refused: it is not a safetensors file ({error})"
            ) from error
    check_uncompressed(path)
    quiet = warnings.catch_warnings(action="ignore")  # of a pickle, which is refused below
    try:
        with torch.serialization.safe_globals(_VALUES), quiet:
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of ten types, by what is damaged
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        fault = "it is not a checkpoint that torch.load reads with weights_only=True"
        raise DamagedError(
            f"{path} was refused: "
            f"{f'it would run code when loaded ({code[1]})' if code else fault}. Save only "
            "the weights, with torch.save(model.state_dict(), path) or as safetensors."
        ) from error


def _is_dense(tensor: Tensor) -> bool:
    """Whether no two elements of the tensor share memory."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not plain or tensor.is_quantized or tensor.is_nested:
        return False
    # An expanded tensor, of stride 0, can claim any shape.
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _bare(name: str) -> str:
    name = ".".join(part for part in name.split(".") if part not in _INNER)
    while name.startswith(_WRAPPERS):
        name = name.partition(".")[2]
    return name


def first_names(keys: Sequence[object]) -> str:
    """The first names of a list, for a message: printable, of at most 100 characters."""
    more = ", ..." if len(keys) > _SHOWN else ""
    names = (printable(str(key)) for key in keys[:_SHOWN])
    return ", ".join(n if len(n) <= _LONGEST else f"{n[:_LONGEST]}..." for n in names) + more
