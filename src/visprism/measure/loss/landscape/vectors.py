"""Differences and inner products of vectors in the space of a model's parameters."""

from collections.abc import Mapping

import torch
from torch import Tensor

from visprism.core.errors import InputError

_MAX_NAMES = 3  # names in an error message


def inner(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Inner product over the parameters that both have, summed in double precision."""
    products = (
        torch.dot(first[n].flatten().double(), other[n].flatten().double()).item()
        for n in first
        if n in other
    )
    return sum(products, start=0.0)


def norm(vector: Mapping[str, Tensor]) -> float:
    """Euclidean length."""
    return inner(vector, vector) ** 0.5


def difference(
    state: Mapping[str, Tensor], parameters: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """``state - parameters`` by name; other entries of `state` are ignored.

    Args:
        state: such as a state dict.
        parameters: by name.
        what: name of `state` in errors.
    """
    missing = [name for name in parameters if name not in state]
    if missing:
        raise InputError(
            f"{what} must have all {len(parameters)} parameters of the model, got "
            f"{len(missing)} that are missing ({_list(missing)})"
        )
    fitting(state, parameters, what)
    broken = [name for name in parameters if not torch.isfinite(state[name]).all()]
    if broken:
        raise InputError(
            f"{what} must have finite weights, got some that are not ({_list(broken)})"
        )
    return {
        name: state[name].detach().to(weight) - weight.detach()
        for name, weight in parameters.items()
    }


def fitting(
    vector: Mapping[str, Tensor], parameters: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """The entries of `vector` for parameters of the model, in their type."""
    shared = {name: vector[name] for name in parameters if name in vector}
    if vector and not shared:
        raise InputError(
            f"{what} must have entries for parameters of the model, got "
            f"{_list(list(vector))}. Use the names of model.named_parameters()."
        )
    mismatched = [
        f"{name} {tuple(part.shape)} instead of {tuple(parameters[name].shape)}"
        for name, part in shared.items()
        if part.shape != parameters[name].shape
    ]
    if mismatched:
        raise InputError(
            f"{what} must have the shapes of the model's parameters, got {_list(mismatched)}"
        )
    return {name: part.detach().to(parameters[name]) for name, part in shared.items()}


def _list(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
