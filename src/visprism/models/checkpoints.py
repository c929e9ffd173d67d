"""Checkpoints: the weights of a model in a file, and metadata about them."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance
from visprism.models.metadata import encode_metadata
from visprism.models.state_dicts import first_names, read_state_dict

_COUNTER = "num_batches_tracked"  # of BatchNorm, which nothing but training reads

_log = logging.getLogger(__name__)


def save_checkpoint(
    model: nn.Module,
    path: Path | str,
    *,
    recipe: object = None,
    preprocessing: Preprocessing | None = None,
    class_names: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a model's weights and metadata as safetensors, whole or not at all.

    Args:
        model: its state dict is written.
        path: should end in .safetensors, by which `load_checkpoint` knows the format.
        recipe: how it was trained: a dataclass or a dictionary.
        preprocessing: of the images that the model expects; `load_model` then uses it.
        class_names: in the order of the logits.
        metrics: values by name.
        provenance: versions, data and command of the training.

    Raises:
        InputError: if JSON cannot hold a value of the metadata.
        OutputError: if the file cannot be written, as on a full disk.
    """
    head = encode_metadata(
        recipe=recipe,
        preprocessing=preprocessing,
        class_names=tuple(class_names),
        metrics=metrics,
        provenance=provenance,
    )
    # Copies: the format has no place for two names of one tensor.
    state = {k: v.detach().cpu().clone().contiguous() for k, v in model.state_dict().items()}
    with atomic_write(Path(path)) as scratch:
        try:
            save_file(state, scratch, metadata=head)
        except SafetensorError as error:
            raise _system_error(error) from error


def _system_error(error: SafetensorError) -> Exception:
    """The error of the system that safetensors reports as a text; the same if there is none."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return error if number is None else OSError(int(number[1]), os.strerror(int(number[1])))


def load_checkpoint(model: nn.Module, path: Path) -> None:
    """Load the weights in `path` into `model`; it stays unchanged if they do not match."""
    load_state(model, read_state_dict(path), path)


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Load a state dict read from `path` into `model`; unchanged if it does not match.

    A prefix that all names of the model have in the file is removed. BatchNorm's counters of
    batches, which files from before torch 0.4.1 lack, are left at 0, and the classifier of a
    model without one (``num_classes=0``) is left out; both are logged as warnings.
    """
    expected = model.state_dict()
    state = _without_prefix(state, expected, path)
    counters = sorted(k for k in expected.keys() ^ state.keys() if k.endswith(_COUNTER))
    unused = _classifier(state.keys() - expected.keys() - set(counters), state, model)
    left_out = {*counters, *unused}
    state = {k: v for k, v in state.items() if k not in left_out}
    expected = {k: v for k, v in expected.items() if k not in left_out}
    misfits = {
        "missing from the file": [k for k in expected if k not in state],
        "not in the model": [k for k in state if k not in expected],
        "of another shape": [
            f"{k} {tuple(state[k].shape)} instead of {tuple(expected[k].shape)}"
            for k in expected
            if k in state and state[k].shape != expected[k].shape
        ],
        "of integers instead of floating-point numbers": [
            f"{k} {state[k].dtype}"
            for k in expected
            if k in state
            and expected[k].is_floating_point()
            and not state[k].is_floating_point()
        ],
    }
    problems = [
        f"{len(keys)} {sort} ({first_names(keys)})" for sort, keys in misfits.items() if keys
    ]
    if problems:
        biases = any(k.endswith("qkv.bias") for k in misfits["not in the model"])
        hint = ". The option qkv_bias=True adds qkv.bias to the model" if biases else ""
        hint += _other_classes(state, expected)
        raise InputError(
            f"{path} does not match the model's {len(expected)} tensors: "
            f"{'; '.join(problems)}{hint}"
        )
    broken = [k for k in expected if _not_finite(state[k], expected[k])]
    if broken:
        raise InputError(
            f"{path} was refused: {len(broken)} of its {len(state)} tensors "
            f"({first_names(broken)}) hold NaN or infinite values, as after a "
            "diverged training. Name an earlier checkpoint."
        )
    model.load_state_dict(state, strict=not left_out)
    if counters:
        _log.warning(
            "%s and the model differ in %d of BatchNorm's num_batches_tracked (%s), which only "
            "training uses: the model's values stay",
            *(path, len(counters), first_names(counters)),
        )
    if unused:
        _log.warning("the classifier of %s (%s) is left out", path, first_names(sorted(unused)))


def _not_finite(stored: Tensor, expected: Tensor) -> bool:
    """Whether values are not finite where the model's are finite (masks hold infinities)."""
    if not stored.is_floating_point() or bool(stored.isfinite().all()):
        return False
    return bool(stored.isnan().any()) or bool(expected.isfinite().all())


def _without_prefix(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path
) -> Mapping[str, Tensor]:
    """The tensors under the names that the model has for them.

    Lightning, for example, stores a model as an attribute, with the prefix ``model.``.
    """
    names = [name for name in expected if not name.endswith(_COUNTER)]
    if not names or any(name in state for name in names):
        return state
    ends = [key.removesuffix(names[0]) for key in state if key.endswith(f".{names[0]}")]
    prefixes = [prefix for prefix in ends if all(prefix + name in state for name in names)]
    if len(prefixes) > 1:
        raise InputError(
            f"{path} must hold one set of weights, got several "
            f"({', '.join(sorted(prefixes))}). Save the one to load as "
            "model.state_dict()."
        )
    if not prefixes:
        return _without_shared_prefix(state, names)
    others = [key for key in state if not key.startswith(prefixes[0])]
    if others:
        _log.warning(
            "%d tensors of %s (%s) are left out: the model's begin with %s",
            *(len(others), path, first_names(others), prefixes[0]),
        )
    return _inside(state, prefixes[0])


def _without_shared_prefix(
    state: Mapping[str, Tensor], names: Sequence[str]
) -> Mapping[str, Tensor]:
    """The tensors without a shared prefix, if some then have names of the model."""
    prefix = ""
    while True:
        heads = {key[len(prefix) :].partition(".")[0] for key in state}
        prefix += f"{next(iter(heads), '')}."
        if len(heads) != 1 or not all(key.startswith(prefix) for key in state):
            return state
        if any(prefix + name in state for name in names):
            return _inside(state, prefix)


def _inside(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _classifier(
    extra: AbstractSet[str], state: Mapping[str, Tensor], model: nn.Module
) -> AbstractSet[str]:
    """Names that only the file has, if they are one linear layer and `num_classes` is 0."""
    layers = {name.rpartition(".")[0] for name in extra}
    if getattr(model, "num_classes", None) != 0 or len(layers) != 1:
        return frozenset()
    (layer,) = layers
    weight = state.get(f"{layer}.weight")
    linear = extra <= {f"{layer}.weight", f"{layer}.bias"} and weight is not None
    return extra if linear and weight.ndim == 2 else frozenset()


def _other_classes(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """The remedy if only the number of classes differs."""
    others = [k for k in expected if k in state and state[k].shape != expected[k].shape]
    same_width = all(
        state[k].shape[1:] == expected[k].shape[1:] and expected[k].ndim for k in others
    )
    sizes = {(len(state[k]), len(expected[k])) for k in others} if same_width else set()
    if len(sizes) == 1 and expected.keys() == state.keys():
        ((stored, wanted),) = sizes
        return (
            f". The classifier of the file has {stored} rows, that of the model "
            f"{wanted}. Name the model with ?num_classes={stored}"
        )
    absent = expected.keys() - state.keys()
    layers = {name.rpartition(".")[0] for name in absent}
    if state.keys() < expected.keys() and len(layers) == 1 and not others:
        return f". To load it without {layers.pop()}, name the model with ?num_classes=0"
    return ""
