"""A training by two processes with and without a monitor, run by a test with torchrun.

torchrun --nproc-per-node 2 monitor_in_processes.py FOLDER
"""

import logging
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import visprism as vp


def trained(monitor=None, wrap=DistributedDataParallel):
    torch.manual_seed(get_rank())
    model = wrap(Net())
    optimizer = MAKE["sgd"](model.parameters())
    for step in range(1, 5):
        images, targets = drawn(10 * step + get_rank(), 8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(model, step, optimizer)
    return model


if __name__ == "__main__":
    from test_monitor import MAKE, Net, drawn, monitor_of

    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    init_process_group("gloo")
    states = {
        "with": trained(monitor_of(folder / "run")).module.state_dict(),
        "without": trained().module.state_dict(),
    }
    data = TensorDataset(*drawn(3, 16))
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    trained(vp.Monitor(loader, "calibration", every=4, share=1.0, out=folder / "sampler"))
    if get_rank() == 0:
        logging.basicConfig(filename=folder / "others.txt", format="%(message)s", force=True)
    trained(vp.Monitor([drawn(get_rank(), 16)], "calibration", every=2, share=1.0))
    mesh = init_device_mesh("cpu", (2,))
    if get_rank() == 0:
        for name, state in states.items():
            torch.save(state, folder / f"{name}.pt")
        logging.basicConfig(filename=folder / "sharded.txt", format="%(message)s", force=True)
    trained(monitor_of(), lambda model: fully_shard(model, mesh=mesh))
    destroy_process_group()
