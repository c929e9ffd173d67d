"""Launch: Lightning Fabric for the device, the precision and the processes that there are."""

import logging
import os
import warnings

from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy

from visprism.core.devices import Compute
from visprism.core.processes import world_size
from visprism.training.sharding import strategy


def fabric_for(compute: Compute, *, sharded: bool = False, unreached: bool = False) -> Fabric:
    """Fabric on the processes that `visprism.core.processes.processes` has joined.

    Each has the whole model, or, `sharded`, its part. `unreached`: there are parameters that
    the loss does not reach, which takes DDP a walk through the graph of every step.
    """
    device = compute.torch_device
    whole = DDPStrategy(find_unused_parameters=unreached) if world_size() > 1 else "auto"
    several = world_size() > 1
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if several else 1
    log = logging.getLogger("lightning_fabric")
    level = log.level
    with warnings.catch_warnings():
        # It tells of what it finds about it: other schedulers, its precision, a GPU not used.
        log.setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", module="lightning_fabric")
        fabric = Fabric(
            accelerator=device.type,
            devices=[device.index or 0] if device.type == "cuda" and not several else local,
            num_nodes=world_size() // local,
            precision="bf16-mixed" if compute.precision == "bf16" else "32-true",
            strategy=strategy() if sharded else whole,
        )
        fabric.launch()
        log.setLevel(level)
    return fabric
