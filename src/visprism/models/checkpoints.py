"""Checkpoints: the weights of a model in a file, and what is known of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance
from visprism.models.metadata import encoded
from visprism.models.state_dicts import read_state_dict, some


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
    """Write a model's weights and what is known of it as safetensors, whole or not at all.

    Args:
        model: its state dict is written.
        path: should end in .safetensors, by which `load_checkpoint` knows the format.
        recipe: how it was trained: a dataclass or a dictionary.
        preprocessing: how it wants its images; `load_model` then follows it.
        class_names: in the order of the logits.
        metrics: what was measured, by name.
        provenance: with which versions, data and command.

    Raises:
        InputError: if something in the metadata has no place in JSON.
    """
    head = encoded(
        recipe=recipe,
        preprocessing=preprocessing,
        class_names=tuple(class_names),
        metrics=metrics,
        provenance=provenance,
    )
    # Copies: the format has no place for two names of one tensor.
    state = {k: v.detach().cpu().clone().contiguous() for k, v in model.state_dict().items()}
    with atomic_write(Path(path)) as scratch:
        save_file(state, scratch, metadata=head)


def load_checkpoint(model: nn.Module, path: Path) -> None:
    """Give `model` the weights in `path`; it is left alone if they do not fit.

    Raises:
        InputError: if the file is missing, is no checkpoint, would run code, or holds other
            keys or shapes than the model has.
    """
    load_state(model, read_state_dict(path), path)


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Give `model` the weights that were read from `path`; it is left alone if they do not fit.

    Raises:
        InputError: if there are other keys, shapes or kinds of numbers than the model has, or
            numbers that are not finite where the model's are.
    """
    own = model.state_dict()
    misfits = {
        "missing from the file": [k for k in own if k not in state],
        "not in the model": [k for k in state if k not in own],
        "of another shape": [
            f"{k} {tuple(state[k].shape)} instead of {tuple(own[k].shape)}"
            for k in own
            if k in state and state[k].shape != own[k].shape
        ],
        "of whole numbers instead of fractions": [
            f"{k} {state[k].dtype}"
            for k in own
            if k in state and own[k].is_floating_point() and not state[k].is_floating_point()
        ],
    }
    found = [f"{len(keys)} {sort} ({some(keys)})" for sort, keys in misfits.items() if keys]
    if found:
        biases = any(k.endswith("qkv.bias") for k in misfits["not in the model"])
        hint = "; the option qkv_bias=True makes place for its qkv.bias" if biases else ""
        raise InputError(
            f"{path} does not fit the model's {len(own)} tensors: {'; '.join(found)}{hint}"
        )
    broken = [k for k in own if _breaks_off(state[k], own[k])]
    if broken:
        raise InputError(
            f"{path} was refused: {len(broken)} of its {len(state)} tensors ({some(broken)}) "
            "hold NaN or infinite numbers, as of a training that diverged; name a checkpoint "
            "from before"
        )
    model.load_state_dict(dict(state))


def _breaks_off(stored: Tensor, own: Tensor) -> bool:
    """Whether numbers are not finite where the model has finite ones (not as in masks)."""
    if not stored.is_floating_point() or bool(stored.isfinite().all()):
        return False
    return bool(stored.isnan().any()) or bool(own.isfinite().all())
