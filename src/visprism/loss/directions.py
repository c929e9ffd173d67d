"""Directions in the space of a model's parameters, and their normalization.

A direction has an entry for each parameter that it moves; all other parameters and buffers are
fixed. Networks with larger filters look flatter along a direction of fixed length, although
scaling a filter before a norm changes nothing: hence each filter of a direction gets the norm
of the same filter of the weights.

Source: Li et al. (2018), Visualizing the loss landscape of neural nets, sec. 4.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.modules.conv import _ConvTransposeNd

from visprism.core.errors import InputError
from visprism.core.run import stream

_MAX_NAMES = 3  # names in an error message

Direction = dict[str, Tensor]  # by the name of the parameter

# Parts of the names of tables of positions, relative positions or tokens, as timm, torchvision
# and Hugging Face name them.
_TABLES = ("bias", "pos", "token", "rel_")
_NORM_LAYERS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
_PAPER_FIXED = ("pos_embed", "relative_position")  # in the notebooks of the reference

# Keeps the quotient finite where a random filter is zero; the paper's code has it too.
_PAPER_FLOOR = 1e-7


def gaussian(
    model: nn.Module,
    *use: object,
    normalization: str = "filter",
    perturb_positions: bool = False,
    seed: int = 0,
) -> Direction:
    """A normally distributed direction, normalized.

    With w a parameter and d its random part, ``"filter"`` gives every output filter of d the
    norm of the same filter of w (an output channel of a convolution, a neuron of a linear
    layer, an entry of a table), ``"layer"`` all of d the norm of all of w, and ``"none"``
    leaves d as it is. ``"paper"`` follows the paper's code: the norm is taken along the first
    axis, over all filters instead of within one, and class tokens move.

    Biases, parameters of norms, LayerScale and class tokens are fixed, and so are tables of
    positions unless `perturb_positions` is true.

    Source: Li et al. (2018), sec. 4; "paper": the code of Park and Kim (2022).
    """
    if normalization not in NORMALIZATIONS:
        raise InputError(
            f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {normalization!r}"
        )
    moves = _moves_in_paper if normalization == "paper" else _moves
    direction = {}
    for name, parameter in parameters_of(model).items():
        module = model.get_submodule(name.rpartition(".")[0])
        if moves(name, parameter, module, perturb_positions):
            # Drawn on the CPU, so that all devices have the same direction.
            noise = torch.randn(
                parameter.shape, generator=stream(seed, "direction", *use, name)
            )
            table = _is_table(name.rpartition(".")[2], parameter, module)
            weight = parameter.detach().cpu().double()
            part = _normalized(noise.double(), weight, module, table, normalization)
            direction[name] = part.to(parameter)
    if not direction:
        raise InputError(
            f"model must have a kernel or a matrix that can move, and {type(model).__name__} "
            "has none"
        )
    return direction


def parameters_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """The floating-point parameters by name, each once."""
    return {n: p for n, p in model.named_parameters() if p.is_floating_point()}


def filter_norms(weight: Tensor, module: nn.Module, table: bool = False) -> Tensor:
    """The norm of each output filter, in a shape that broadcasts to the parameter's.

    A transposed convolution has its output channels on the second axis, per group; any other
    weight on the first, also if it has only one. An entry of a table (1, N, C) is a vector
    along the last axis, of a table (1, C, h, w) along the second.
    """
    if isinstance(module, _ConvTransposeNd):
        grouped = weight.unflatten(0, (module.groups, -1))
        norms = vector_norm(grouped, dim=(1, *range(3, grouped.ndim)), keepdim=True)
        return norms.expand(-1, grouped.shape[1], *norms.shape[2:]).flatten(0, 1)
    if table and weight.ndim >= 3 and len(weight) == 1:
        return vector_norm(weight, dim=-1 if weight.ndim == 3 else 1, keepdim=True)
    return vector_norm(weight, dim=tuple(range(1, weight.ndim)), keepdim=True)


NORMALIZATIONS = ("filter", "layer", "none", "paper")


def _normalized(
    noise: Tensor, weight: Tensor, module: nn.Module, table: bool, normalization: str
) -> Tensor:
    if normalization == "filter":
        return noise * filter_norms(weight, module, table) / filter_norms(noise, module, table)
    if normalization == "layer":
        return noise * (weight.norm() / noise.norm())
    if normalization == "paper":  # along the first axis, with the floor of the paper's code
        return noise * weight.norm(dim=0) / (noise.norm(dim=0) + _PAPER_FLOOR)
    return noise


def _moves(name: str, parameter: Tensor, module: nn.Module, perturb_positions: bool) -> bool:
    last = name.rpartition(".")[2]
    sides = sum(side > 1 for side in parameter.shape)
    if isinstance(module, _NORM_LAYERS):
        return False
    if _is_table(last, parameter, module):
        return perturb_positions and sides >= 2
    return parameter.ndim >= 2 and (last == "weight" or sides >= 2)


def _moves_in_paper(
    name: str, parameter: Tensor, module: nn.Module, perturb_positions: bool
) -> bool:
    fixed = not perturb_positions and any(part in name for part in _PAPER_FIXED)
    return parameter.ndim >= 2 and not fixed


def _is_table(name: str, parameter: Tensor, module: nn.Module) -> bool:
    """Whether a parameter holds an entry for each position or token.

    What is called "weight" belongs to a layer, except in `nn.Embedding`.
    """
    if isinstance(module, nn.Embedding):
        return True
    leading = parameter.ndim >= 3 and len(parameter) == 1
    return name != "weight" and (leading or any(word in name for word in _TABLES))


def inner(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Inner product over the parameters that both have, summed in double precision."""
    products = (
        torch.dot(_vector(first[n]), _vector(other[n])).item() for n in first if n in other
    )
    return sum(products, start=0.0)


def gram(vectors: Sequence[Mapping[str, Tensor]]) -> Float[np.ndarray, "n n"]:
    """Inner products of all pairs of vectors of the same parameters, in double precision."""
    matrix = np.zeros((len(vectors), len(vectors)))
    for name in vectors[0]:
        rows = torch.stack([_vector(vector[name]) for vector in vectors])
        matrix += (rows @ rows.mT).numpy()
    return matrix


def _vector(tensor: Tensor) -> Float[Tensor, " n"]:
    """In double precision, on the CPU: other devices may not have it."""
    return tensor.detach().flatten().cpu().double()


def norm(vector: Mapping[str, Tensor]) -> float:
    """Euclidean length."""
    return inner(vector, vector) ** 0.5


def difference(
    state: Mapping[str, Tensor], parameters: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """``state - parameters`` by name; other entries of `state`, named `what`, are ignored."""
    missing = [name for name in parameters if name not in state]
    if missing:
        raise InputError(
            f"{what} must have all {len(parameters)} parameters of the model, got "
            f"{len(missing)} that are missing ({_list(missing)})"
        )
    other = fitting(state, parameters, what)
    broken = [name for name, part in other.items() if not torch.isfinite(part).all()]
    if broken:
        raise InputError(
            f"{what} must have finite weights, got some that are not ({_list(broken)})"
        )
    return {name: other[name] - weight.detach() for name, weight in parameters.items()}


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
