"""Lightning Fabric and torch.compile: how a model runs on the devices of this machine."""

import logging
import os
import warnings
from typing import cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy
from torch import nn

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import world_size
from visprism.training.sharding import sharded_strategy


def make_fabric(compute: Compute, *, sharded: bool = False, unused: bool = False) -> Fabric:
    """Fabric on the processes that `visprism.core.processes.processes` has joined.

    With `sharded` each process has a shard of the model instead of a copy. `unused` says that
    there are parameters that the loss does not depend on: DDP then walks through the graph in
    every step.
    """
    device = compute.torch_device
    several = world_size() > 1
    replicated = DDPStrategy(find_unused_parameters=unused) if several else "auto"
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if several else 1
    log = logging.getLogger("lightning_fabric")
    level = log.level
    with warnings.catch_warnings():
        # Fabric's messages about cluster, precision and unused GPUs do not concern the user.
        log.setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", module="lightning_fabric")
        fabric = Fabric(
            accelerator=device.type,
            devices=[device.index or 0] if device.type == "cuda" and not several else local,
            num_nodes=world_size() // local,
            precision="bf16-mixed" if compute.precision == "bf16" else "32-true",
            strategy=sharded_strategy() if sharded else replicated,
        )
        fabric.launch()
        log.setLevel(level)
    return fabric


def compiled(model: nn.Module, device: torch.device) -> nn.Module:
    """The model compiled by torch.compile for each batch size; it shares the model's tensors.

    Code for dynamic sizes would depend on the first batch that it sees, and a resumed run would
    not end with the same weights.
    """
    try:
        torch.compile(lambda x: torch.relu(x + 1))(torch.ones(2, device=device))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"torch.compile does not work on this machine ({reason}). Install a C++ compiler, "
            "or set compile=false."
        ) from error
    return cast(nn.Module, torch.compile(model, dynamic=False))
