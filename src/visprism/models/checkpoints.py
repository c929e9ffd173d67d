"""Checkpoints: the weights of a model in a file, and metadata about them."""

import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, is_dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed, resample_abs_pos_embed_nhwc
from torch import Tensor, nn

from visprism.core.errors import DamagedError, InputError
from visprism.core.files import atomic_write, is_file
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance
from visprism.models.state_dicts import first_names, read_state_dict

_ENTRY = "visprism"  # in the file's own metadata


@dataclass(frozen=True)
class Metadata:
    """The metadata of a checkpoint; entries that it lacks are empty or None."""

    recipe: Mapping[str, Any] = field(default_factory=dict)  # a training run's fields by name
    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] = ()  # in the order of the logits
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name, as "accuracy"
    provenance: Provenance | None = None


def read_metadata(path: Path | str) -> Metadata:
    """The metadata of the checkpoint in `path`; empty if visprism did not write it."""
    path = Path(path)
    if not is_file(path):
        raise InputError(f"the checkpoint {path} must be an existing file")
    if path.suffix != ".safetensors":
        return Metadata()
    try:
        with safe_open(path, "pt") as file:
            entries: Mapping[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise DamagedError(
            f"{path} was refused: it is not a safetensors file ({error})"
        ) from error
    try:
        content = json.loads(entries.get(_ENTRY, "{}"))
        stated = {k: v for k, v in content.items() if v is not None}
        return msgspec.convert(stated, Metadata)
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} was refused: its visprism metadata are invalid: {error}. Save it again "
            "with save_checkpoint, or remove the metadata."
        ) from error


def _encoded(metadata: Metadata) -> dict[str, str]:
    """The metadata as text for the header of a safetensors file."""
    try:
        return {_ENTRY: json.dumps(msgspec.to_builtins(metadata))}
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata of a checkpoint must be text, numbers, lists and dictionaries: {error}"
        ) from error


State = Mapping[str, Tensor]
_log = logging.getLogger(__name__)

_TABLES = ("pos_embed", "pos_embedding", "position_embeddings")  # ends of their names
_PREFIX_TOKENS = (0, 1, 2, 5)  # none, class, distillation, four registers


def converted(state: State, model: nn.Module, path: Path) -> State:
    """The tensors of `path` as `model` has them; unchanged where nothing fits better."""
    expected = model.state_dict()
    state = _with_wrapped_names(state, expected)
    if _fits(state, expected):
        return state
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


# The old weight norm's names of norm and direction, and the parametrization's.
_WEIGHT_NORM = {"_g": "original0", "_v": "original1"}


def _with_wrapped_names(state: State, expected: State) -> State:
    """The tensors under the model's names, without wrappers and with the new weight norm.

    Wrappers of single modules are ``module`` of data parallelism; the old ``weight_norm`` calls
    ``parametrizations.weight.original0`` ``weight_g``, and ``original1`` ``weight_v``.
    """
    plain = {re.sub(r"(^|\.)module\.", r"\1", name): name for name in expected}
    names = {}
    for name in state.keys() - expected.keys():
        path, _, key = name.rpartition(".")
        norm = _WEIGHT_NORM.get(key[-2:], "")
        candidates = (
            plain.get(re.sub(r"(^|\.)module\.", r"\1", name), ""),
            f"{path}.parametrizations.{key[:-2]}.{norm}".lstrip("."),
        )
        new = next((c for c in candidates if c in expected and c not in state), None)
        if new is not None:
            names[name] = new
    if len(set(names.values())) < len(names):
        return state  # two tensors for one name
    return {names.get(name, name): tensor for name, tensor in state.items()}


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


_COUNTER = "num_batches_tracked"  # of BatchNorm, which nothing but training reads


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
    """
    metadata = Metadata(
        asdict(recipe) if is_dataclass(recipe) else recipe or {},  # pyrefly: ignore
        preprocessing,
        tuple(class_names),
        metrics or {},
        provenance,
    )
    head = _encoded(metadata)
    # Copies: the format has no place for two names of one tensor.
    state = {k: v.detach().cpu().clone().contiguous() for k, v in model.state_dict().items()}
    with atomic_write(Path(path)) as scratch:
        try:
            save_file(state, scratch, metadata=head)
        except SafetensorError as error:  # it reports an error of the system as a text
            number = re.search(r"\(os error (\d+)\)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def load_checkpoint(model: nn.Module, path: Path) -> None:
    """Load the weights in `path` into `model`; it stays unchanged if they do not match."""
    load_state(model, read_state_dict(path), path)


def load_state(model: nn.Module, state: State, path: Path) -> None:
    """Load a state dict read from `path` into `model`; unchanged if it does not match.

    A prefix that all names of the model have in the file is removed, and weights of another
    package or image size are converted (`exports`). BatchNorm's counters of batches, which
    files from before torch 0.4.1 lack, are left at 0, and the classifier of a model without one
    (``num_classes=0``) is left out. Warnings say so.
    """
    expected = model.state_dict()
    state = converted(_without_prefix(state, expected, path), model, path)
    counters = sorted(k for k in expected.keys() ^ state.keys() if k.endswith(_COUNTER))
    unused = _classifier(state.keys() - expected.keys() - set(counters), state, model)
    left_out = {*counters, *unused}
    state = {k: v for k, v in state.items() if k not in left_out}
    expected = {k: v for k, v in expected.items() if k not in left_out}
    _check_fit(state, expected, path)
    # Large numbers of a wider type become infinite when they are cast.
    state = {k: v.to(expected[k].dtype) for k, v in state.items()}
    require_finite(state, expected, path)
    model.load_state_dict(state, strict=not left_out)
    if counters:
        _log.warning(
            "%s and the model differ in %d of BatchNorm's num_batches_tracked (%s), which only "
            "training uses: the model's values stay",
            *(path, len(counters), first_names(counters)),
        )
    if unused:
        _log.warning("the classifier of %s (%s) is left out", path, first_names(sorted(unused)))


def _check_fit(state: State, expected: State, path: Path) -> None:
    """Require the names, shapes and kinds of numbers of a model."""
    both = [k for k in expected if k in state]
    shapes = {k: (tuple(state[k].shape), tuple(expected[k].shape)) for k in both}
    misfits = {
        "missing from the file": [k for k in expected if k not in state],
        "not in the model": [k for k in state if k not in expected],
        "of another shape": [
            f"{k} {a} instead of {b}" for k, (a, b) in shapes.items() if a != b
        ],
        "of integers instead of floating-point numbers": [
            f"{k} {state[k].dtype}"
            for k in both
            if expected[k].is_floating_point() and not state[k].is_floating_point()
        ],
    }
    problems = [
        f"{len(keys)} {sort} ({first_names(keys)})" for sort, keys in misfits.items() if keys
    ]
    if problems:
        raise InputError(
            f"{path} does not match the model's {len(expected)} tensors: "
            f"{'; '.join(problems)}{_remedy(state, expected)}"
        )


def _remedy(state: State, expected: State) -> str:
    """What loads the file, if only one option of the model differs."""
    if any(k.endswith("qkv.bias") for k in state.keys() - expected.keys()):
        return ". The option qkv_bias=True adds qkv.bias to the model"
    others = [k for k in expected if k in state and state[k].shape != expected[k].shape]
    rows = {(*state[k].shape[:1], *expected[k].shape[:1]) for k in others}
    same = all(state[k].shape[1:] == expected[k].shape[1:] for k in others)
    if expected.keys() == state.keys() and same and len(rows) == 1:
        stored, wanted = rows.pop()
        return (
            f". The classifier of the file has {stored} rows, the model's "
            f"{wanted}. Build it with {stored}, as by ?num_classes={stored} in its name"
        )
    layers = {name.rpartition(".")[0] for name in expected.keys() - state.keys()}
    last = list(expected)[-1].rpartition(".")[0]
    if state.keys() < expected.keys() and layers == {last} and not others:
        return f". To load it without {last}, name the model with ?num_classes=0"
    return ""


def require_finite(state: State, expected: State, path: Path) -> None:
    """Require values that are finite where a model's values are."""
    broken = [k for k in expected if _not_finite(state[k], expected[k])]
    if broken:
        raise DamagedError(
            f"{path} was refused: {len(broken)} of its {len(state)} tensors "
            f"({first_names(broken)}) hold NaN or infinite values, as after a "
            "diverged training. Name an earlier checkpoint."
        )


def _not_finite(stored: Tensor, expected: Tensor) -> bool:
    """Whether values are not finite where the model's are finite (masks hold infinities)."""
    if not stored.is_floating_point() or bool(stored.isfinite().all()):
        return False
    return bool(stored.isnan().any()) or bool(expected.isfinite().all())


def _without_prefix(state: State, expected: State, path: Path) -> State:
    """The tensors under the names that the model has for them.

    Lightning, for example, stores a model as an attribute, with the prefix ``model.``.
    """
    names = {name for name in expected if not name.endswith(_COUNTER)}
    if not names.isdisjoint(state):
        return state
    matches: Counter[str] = Counter()
    for key in state:
        dots = (place for place, letter in enumerate(key, start=1) if letter == ".")
        matches.update(key[:dot] for dot in dots if key[dot:] in names)
    most = max(matches.values(), default=0)
    prefixes = sorted(prefix for prefix, count in matches.items() if count == most)
    if len(prefixes) > 1 and most == len(names):
        first, *more = ([state[prefix + name] for name in names] for prefix in prefixes)
        if not all(all(map(torch.equal, first, other)) for other in more):
            raise InputError(
                f"{path} must hold one set of weights, got several ({', '.join(prefixes)}). "
                "Save the one to load as model.state_dict()."
            )
        prefix, *again = prefixes  # of one module under several names
        state = {k: t for k, t in state.items() if not k.startswith(tuple(again))}
        prefixes = [prefix]
    if len(prefixes) != 1:
        return state
    others = [key for key in state if not key.startswith(prefixes[0])]
    if others:
        _log.warning(
            "%d tensors of %s (%s) are left out: the model's begin with %s",
            *(len(others), path, first_names(others), prefixes[0]),
        )
    inside = (item for item in state.items() if item[0].startswith(prefixes[0]))
    return {key.removeprefix(prefixes[0]): tensor for key, tensor in inside}


def _classifier(extra: AbstractSet[str], state: State, model: nn.Module) -> AbstractSet[str]:
    """Names that only the file has, if they are one linear layer and `num_classes` is 0."""
    layers = {name.rpartition(".")[0] for name in extra}
    if getattr(model, "num_classes", None) != 0 or len(layers) != 1:
        return frozenset()
    (layer,) = layers
    weight = state.get(f"{layer}.weight")
    linear = extra <= {f"{layer}.weight", f"{layer}.bias"} and weight is not None
    return extra if linear and weight.ndim == 2 else frozenset()
