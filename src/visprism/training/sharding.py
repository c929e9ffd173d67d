"""Sharding: weights, gradients and the optimiser's state, shared out among the processes.

By PyTorch's FSDP2: every process keeps a part of each tensor, and gathers those of a unit, as a
block of a transformer, only while it computes with it. What is written is whole, in the form
that runs which are not sharded write.

Source: Zhao et al. (2023), PyTorch FSDP: experiences on scaling fully sharded data parallel;
Rajbhandari et al. (2020), ZeRO: memory optimizations toward training trillion parameter models.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning_fabric.strategies import ModelParallelStrategy
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from visprism.core.errors import InputError
from visprism.core.processes import rank, world_size
from visprism.training.recipe import Recipe

_LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_LARGE = 1 / 8  # of all parameters: a larger block is cut into those that it has inside
_OPTIMIZERS = ("adamw", "sgd")  # they move every number by itself


def check_shardable(model: nn.Module, recipe: Recipe) -> None:
    """Whether this can be shared out among the processes that there are.

    Raises:
        InputError: if there is one process, or for the optimiser, the compiler or a parameter.
    """
    if world_size() == 1:
        raise InputError(
            "sharded shares the weights out among processes, and this is the only one; start "
            "several by torchrun --nproc-per-node N, or train without sharded"
        )
    if recipe.optimizer not in _OPTIMIZERS:
        raise InputError(
            f"optimizer {recipe.optimizer!r} cannot be sharded, as it may look at a tensor "
            f"whole; take {' or '.join(_OPTIMIZERS)}, or train without sharded"
        )
    if recipe.compile:
        raise InputError(
            "a sharded model cannot be compiled; set compile=false, or train without sharded"
        )
    first: dict[int, str] = {}
    kinds = {parameter.dtype for parameter in model.parameters()}
    if len(kinds) > 1:
        raise InputError(
            f"parameters of several types ({', '.join(sorted(map(str, kinds)))}) cannot be "
            "sharded; make them one by model.float(), or train without sharded"
        )
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(parameter), name)
        if other != name or parameter.ndim == 0:
            why = f"the same as {other}" if other != name else "a single number without an axis"
            raise InputError(
                f"the parameter {name} is {why}, which cannot be sharded; train without sharded"
            )


def strategy() -> ModelParallelStrategy:
    """Fabric's strategy that shares a module out among all processes."""
    return ModelParallelStrategy(
        _shared_out, data_parallel_size=world_size(), tensor_parallel_size=1
    )


def units(model: nn.Module) -> list[nn.Module]:
    """The modules that are gathered at a time, those inside first; without the model itself.

    They are the members of sequences and lists, as those are called by themselves: the blocks
    of a transformer, of a stage. One with over 1/8 of all parameters gives way to those that it
    has inside, which become units first.
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


def whole_state(tree: Any) -> Any:  # noqa: ANN401 (a state, as torch nests it)
    """All tensors of a state, whole, in the memory of the first process; others get None.

    Every process must call it, as they gather one tensor after the other.
    """

    def gathered(tensor: DTensor) -> Tensor | None:
        full = tensor.full_tensor()
        return full.cpu() if rank() == 0 else None

    return tree_map_only(DTensor, gathered, tree)


def gather_into(model: nn.Module, sharded: nn.Module) -> None:
    """Give `model`, in every process, the weights that are shared out in its copy."""
    own = model.state_dict()
    with torch.no_grad():
        for name, tensor in sharded.state_dict().items():
            own[name].copy_(tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)


def load_module(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give a module a state that is whole; of a sharded one each process takes its part."""
    like = module.state_dict()
    module.load_state_dict({name: _part(tensor, like[name]) for name, tensor in state.items()})


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimiser a state that is whole; of sharded parameters each takes its part."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parts = {
        number: {name: _part(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": parts})


def local(tensor: Tensor) -> Tensor:
    """What this process has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def same_buffers(model: nn.Module) -> None:
    """Give all processes the running statistics of the first, as DDP does."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    if not buffers:
        return
    together = torch.cat([b.flatten().float() for b in buffers])
    distributed.broadcast(together, 0)
    for buffer, flat in zip(buffers, together.split([b.numel() for b in buffers]), strict=True):
        buffer.copy_(flat.view_as(buffer))


def same_tensors(model: nn.Module, device: torch.device | str) -> None:
    """Give all processes the parameters and buffers of the first, which lie where they lay."""
    for tensor in (*model.parameters(), *model.buffers()):
        first = tensor.detach().to(device).contiguous()
        distributed.broadcast(first, 0)
        tensor.data.copy_(first)


def _shared_out(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    same_tensors(model, mesh.device_type)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.contiguous()  # as FSDP wants them
    # The root too is freed after a forward pass, so that its parameters are always the parts.
    for unit in (*units(model), model):
        fully_shard(unit, mesh=mesh["data_parallel"], reshard_after_forward=True)
    return model


def _part(value: Any, like: Tensor) -> Any:  # noqa: ANN401 (an optimiser keeps numbers, too)
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
