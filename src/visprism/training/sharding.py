"""Sharding: weights, gradients and optimizer state distributed over the processes.

By PyTorch's FSDP2: every process has a shard of each tensor, and gathers the tensors of a unit,
such as a transformer block, only while it computes with them. Files hold full tensors, in the
form that runs without sharding write.

Source: Zhao et al. (2023), PyTorch FSDP: experiences on scaling fully sharded data parallel;
Rajbhandari et al. (2020), ZeRO: memory optimizations toward training trillion parameter models.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from visprism.core.errors import InputError
from visprism.core.processes import rank, world_size
from visprism.training.recipe import Recipe

_LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_LARGE = 1 / 8  # of all parameters: a larger block is split into the blocks inside it
_ELEMENTWISE = ("adamw", "sgd")  # optimizers that update every number by itself


def check_shardable(model: nn.Module, recipe: Recipe) -> None:
    """Require that the model and the recipe can be sharded over the processes."""
    kinds = sorted({str(parameter.dtype) for parameter in model.parameters()})
    fault = None
    if world_size() == 1:
        fault = "sharded must be false in a single process. Launch several with torchrun"
    elif recipe.optimizer not in _ELEMENTWISE:
        fault = f"optimizer must be adamw or sgd for a sharded model, got {recipe.optimizer!r}"
    elif recipe.compile:
        fault = "compile must be false for a sharded model"
    elif len(kinds) > 1:
        fault = f"parameters of a sharded model must have one type, got {', '.join(kinds)}"
    if fault:
        raise InputError(f"{fault}, or train without sharding.")
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(parameter), name)
        if other != name or parameter.ndim == 0:
            reason = f"tied to {other}" if other != name else "a tensor without axes"
            raise InputError(
                f"parameters of a sharded model must be separate tensors with axes, and {name} "
                f"is {reason}. Train without sharding."
            )


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """Shard a module over all processes, in place; all begin with the first one's tensors."""
    mesh = init_device_mesh(device.type, (world_size(),))
    tensors = *model.parameters(), *model.buffers()
    broadcast_tensors(tensors, device)
    for tensor in tensors:
        tensor.data = tensor.data.contiguous()  # as FSDP requires
    # The root is freed after a forward pass too, so that its parameters are always shards.
    for unit in (*units(model), model):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
    return model.to(device)


def units(model: nn.Module) -> list[nn.Module]:
    """The modules that are gathered one at a time, inner ones first, without the model itself.

    They are the members of sequences and lists, such as the blocks of a transformer or of a
    stage. A member with more than 1/8 of all parameters is split into the members inside it.
    """
    large = _LARGE * _size(model)

    def inside(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            listed = isinstance(module, _LISTS) and not isinstance(child, _LISTS)
            if not listed or _size(child) > large:
                yield from inside(child)
            if listed and _size(child):
                yield child

    return list(dict.fromkeys(inside(model)))


def full_state(tree: Any) -> Any:
    """All tensors of a state in full, in the memory of the first process; others get None.

    Every process must call it.
    """

    def gathered(tensor: DTensor) -> Tensor | None:
        full = whole(tensor)
        return full.cpu() if rank() == 0 else None

    return tree_map_only(DTensor, gathered, tree)


def load_module(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a full state into a module; of a sharded module each process loads its shard."""
    like = module.state_dict()
    module.load_state_dict(
        {name: _shard_of(tensor, like[name]) for name, tensor in state.items()}
    )


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a full state into an optimizer; each process loads its shard of parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    shards = {
        number: {name: _shard_of(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": shards})


def whole(tensor: Tensor) -> Tensor:
    """A tensor in full, in every process, all of which must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """The shard of a tensor in this process, or the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def broadcast_tensors(tensors: Iterable[Tensor], device: torch.device | str) -> None:
    """Copy the tensors of the first process to all, on their device."""
    for tensor in tensors:
        first = tensor.detach().to(device).contiguous()
        distributed.broadcast(first, 0)
        tensor.data.copy_(first)


def _shard_of(value: Any, like: Tensor) -> Any:
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
