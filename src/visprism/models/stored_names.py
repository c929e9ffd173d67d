"""Model names that a file states: entries of a registry, never code.

The metadata of a checkpoint name the architecture of its weights. Whoever wrote the file chose
that name, so it may select an architecture of the zoo, timm, torchvision or Hugging Face, and
numbers, flags and words for its options. Code and further files are named by the user alone.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.models.spec import ModelSpec

_REGISTERED = re.compile(r"[\w.-]+")  # a name of the zoo, timm or torchvision
_REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # OWNER/NAME of the Hugging Face Hub
_WORD = re.compile(r"[\w.+-]*")  # such as "gelu"; it cannot name a folder
# Options by which libraries load weights or code, none of which describes an architecture.
LOADING_OPTIONS = frozenset(
    {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}
    | {"weights", "weights_backbone", "trust_remote_code", "code_revision", "gguf_file"}
    | {"use_kernels", "allow_all_kernels", "attn_implementation", "model_args"}
)


def stored_model_name(text: str, path: Path) -> str:
    """The architecture that the metadata of `path` name, if it is safe to build.

    A checkpoint in the name is left out: the weights are those of `path`.

    Example:
        >>> stored_model_name("resnet20?num_classes=100@start.pt", Path("best.safetensors"))
        'resnet20?num_classes=100'
    """
    try:
        spec = ModelSpec.parse(text)
    except InputError as error:
        raise _refused(text, path, "that is not a model name") from error
    if spec.source == "file":
        raise _refused(text, path, "metadata must not name code")
    allowed = _REPOSITORY if spec.source == "hf" else _REGISTERED
    if not allowed.fullmatch(spec.name) or ".." in spec.name:
        raise _refused(text, path, "metadata must not name a path")
    for name, value in spec.arguments.items():
        if name in LOADING_OPTIONS or name.startswith("_"):
            raise _refused(text, path, f"metadata must not set {name}")
        if not is_plain(value):
            raise _refused(
                text, path, f"{name} must be a number, a boolean, a string or a list of these"
            )
    return text.partition("@")[0]


def check_configuration(values: Mapping[str, Any], source: str) -> None:
    """Check that a Hugging Face configuration selects an architecture and no code.

    Attention kernels of the Hub are code; the wrapper of timm passes on any argument.
    """
    kernel = values.get("attn_implementation") or ""
    architecture = values.get("architecture") or ""
    arguments = values.get("model_args") or {}
    loading = isinstance(arguments, Mapping) and sorted(LOADING_OPTIONS & set(arguments))
    fault = None
    if not isinstance(kernel, str) or "/" in kernel:
        fault = f"attn_implementation={kernel!r} would load code"
    elif not isinstance(architecture, str) or ":" in architecture:
        fault = f"architecture={architecture!r} is not a name of timm"
    elif (
        not isinstance(arguments, Mapping)
        or loading
        or not all(map(is_plain, arguments.values()))
    ):
        fault = f"model_args={arguments!r} must be numbers, flags and words of an architecture"
    if fault:
        raise InputError(f"the configuration of {source} is refused: {fault}")


def is_plain(value: object) -> bool:
    """Whether an option is a number, a boolean, a string, None, or a list of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)


def _refused(text: str, path: Path, reason: str) -> InputError:
    stated = text if len(text) <= 200 else f"{text[:200]}..."
    return InputError(
        f"the metadata of {path} name the model {stated!r}, which is refused: {reason}. "
        f"Name the model before the file, as file.py:function@{path}."
    )
