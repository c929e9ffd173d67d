"""Directions in the space of a model's parameters, and how long each of their parts is.

A direction has an entry for each parameter that it moves; all other parameters, and buffers,
stay where they are. Networks whose filters are larger look flatter along a direction of fixed
length, although scaling a filter in front of a norm changes nothing: hence a direction has, in
each of its parts, the length of the weights themselves.

Source: Li et al. (2018), Visualizing the loss landscape of neural nets, sec. 4.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.modules.conv import _ConvTransposeNd

from visprism.core.errors import InputError
from visprism.core.rng import stream

Direction = dict[str, Tensor]  # by the name of the parameter

# What the last part of a parameter's name holds if it is a table of positions, of relative
# positions, or of tokens, and not a matrix: so timm, torchvision and Hugging Face name them.
_TABLES = ("bias", "pos", "token", "rel_")
_NORM_LAYERS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
_PAPER_FIXED = ("pos_embed", "relative_position")  # in the notebooks of the reference

# Keeps the quotient finite where a random filter is zero; the paper's code has it too.
_PAPER_FLOOR = 1e-7


def gaussian(
    model: nn.Module,
    *use: object,
    normalization: str = "filter",
    tables: bool = False,
    seed: int = 0,
) -> Direction:
    """A normally distributed direction, normalised.

    With w a parameter and d its random part, ``"filter"`` gives every output filter of d the
    norm of the same filter of w (an output channel of a convolution, a neuron of a linear
    layer, an entry of a table), ``"layer"`` all of d the norm of all of w, and ``"none"``
    leaves d as it is. ``"paper"`` does as the paper's code: the norm is taken along the first
    axis, over all filters and not within one, and class tokens move.

    Biases, what belongs to norms, LayerScale and class tokens stay fixed, and so do tables of
    positions unless `tables` is true.

    Args:
        model: whose parameters are meant.
        *use: what tells this direction from others of the same seed.
        normalization: "filter", "layer", "none" or "paper".
        tables: whether tables of positions move too, entry by entry.
        seed: of the draw.

    Raises:
        InputError: if the normalization is unknown, or no parameter can move.

    Source: Li et al. (2018), sec. 4; "paper": the code of Park and Kim (2022).
    """
    if normalization not in NORMALISATIONS:
        known = ", ".join(NORMALISATIONS)
        raise InputError(f"no normalization {normalization!r}; wants one of {known}")
    lengths = NORMALISATIONS[normalization]
    moves = _moves_in_paper if normalization == "paper" else _moves
    direction = {}
    for name, parameter, module in owned(model):
        if moves(name, parameter, module, tables=tables):
            # Drawn on the CPU, so that every device has the same.
            noise = torch.randn(
                parameter.shape, generator=stream(seed, "direction", *use, name)
            )
            part = lengths(noise.double(), parameter.detach().double().cpu(), module)
            direction[name] = part.to(parameter)
    if not direction:
        raise InputError(
            f"{type(model).__name__} has no parameter that a random direction moves: it has "
            "neither a kernel nor a matrix"
        )
    return direction


def owned(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
    """Each floating-point parameter once, with its name and the module that it belongs to."""
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            yield name, parameter, modules[name.rpartition(".")[0]]


def filter_norms(weight: Tensor, module: nn.Module) -> Tensor:
    """The norm of each output filter, in a shape that broadcasts to the parameter's.

    A transposed convolution has its output channels in the second axis, anew in each group. Of
    a parameter (1, N, C) an entry is a vector along the last axis, of (1, C, h, w) along the
    second, as in tables of positions.
    """
    if isinstance(module, _ConvTransposeNd):
        grouped = weight.unflatten(0, (module.groups, -1))
        norms = vector_norm(grouped, dim=(1, *range(3, grouped.ndim)), keepdim=True)
        return norms.expand(-1, grouped.shape[1], *norms.shape[2:]).flatten(0, 1)
    if weight.ndim >= 3 and len(weight) == 1:
        return vector_norm(weight, dim=-1 if weight.ndim == 3 else 1, keepdim=True)
    return vector_norm(weight, dim=tuple(range(1, weight.ndim)), keepdim=True)


def _by_filter(noise: Tensor, weight: Tensor, module: nn.Module) -> Tensor:
    return noise * filter_norms(weight, module) / filter_norms(noise, module)


def _by_layer(noise: Tensor, weight: Tensor, module: nn.Module) -> Tensor:  # noqa: ARG001
    return noise * (weight.norm() / noise.norm())


def _as_drawn(noise: Tensor, weight: Tensor, module: nn.Module) -> Tensor:  # noqa: ARG001
    return noise


def _by_first_axis(noise: Tensor, weight: Tensor, module: nn.Module) -> Tensor:  # noqa: ARG001
    return noise * weight.norm(dim=0) / (noise.norm(dim=0) + _PAPER_FLOOR)


NORMALISATIONS: dict[str, Callable[[Tensor, Tensor, nn.Module], Tensor]] = {
    "filter": _by_filter,
    "layer": _by_layer,
    "none": _as_drawn,
    "paper": _by_first_axis,
}


def _moves(name: str, parameter: Tensor, module: nn.Module, *, tables: bool) -> bool:
    own = name.rpartition(".")[2]
    sides = sum(side > 1 for side in parameter.shape)
    if isinstance(module, _NORM_LAYERS):
        return False
    if _is_table(own, parameter, module):
        return tables and sides >= 2
    return parameter.ndim >= 2 and (own == "weight" or sides >= 2)


def _moves_in_paper(name: str, parameter: Tensor, module: nn.Module, *, tables: bool) -> bool:  # noqa: ARG001
    return parameter.ndim >= 2 and (tables or not any(part in name for part in _PAPER_FIXED))


def _is_table(own: str, parameter: Tensor, module: nn.Module) -> bool:
    """Whether a parameter holds an entry for each position or token, and is no matrix."""
    if isinstance(module, nn.Embedding):
        return True
    leading = parameter.ndim >= 3 and len(parameter) == 1
    return own != "weight" and (leading or any(word in own for word in _TABLES))
