"""Vectors in the space of a model's parameters, part by part: differences and products."""

from collections.abc import Mapping

import torch
from torch import Tensor

from visprism.core.errors import InputError

_SHOWN = 3  # names in an error message


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
    state: Mapping[str, Tensor], own: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """``state - own`` for every entry of `own`; what else `state` holds does not count.

    Args:
        state: such as a state dict.
        own: parameters by name.
        what: `state` is called in an error.

    Raises:
        InputError: if an entry is missing or has another shape.
    """
    missing = [name for name in own if name not in state]
    if missing:
        raise InputError(
            f"{what} lacks {len(missing)} of the model's {len(own)} parameters "
            f"({_some(missing)}); wants a state dict of the same architecture"
        )
    fitting(state, own, what)
    broken = [name for name in own if not torch.isfinite(state[name]).all()]
    if broken:
        raise InputError(
            f"{what} has weights that are not finite ({_some(broken)}); give one that has only"
            " finite ones"
        )
    return {
        name: state[name].detach().to(weight) - weight.detach() for name, weight in own.items()
    }


def fitting(
    vector: Mapping[str, Tensor], own: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """The entries of `vector` for parameters of the model, in their type.

    Raises:
        InputError: if an entry has another shape than the parameter, or none is of a parameter.
    """
    shared = {name: vector[name] for name in own if name in vector}
    if vector and not shared:
        raise InputError(
            f"{what} has entries for {_some(list(vector))}, and none for a parameter of the "
            "model; name them as model.named_parameters() does"
        )
    odd = [
        f"{name} {tuple(part.shape)} instead of {tuple(own[name].shape)}"
        for name, part in shared.items()
        if part.shape != own[name].shape
    ]
    if odd:
        raise InputError(
            f"{what} has parameters of other shapes than the model: {_some(odd)}; wants the "
            "same architecture"
        )
    return {name: part.detach().to(own[name]) for name, part in shared.items()}


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
