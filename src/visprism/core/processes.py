"""Processes: the process group of ``torchrun``, and how it shares work."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, distributed

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError

T = TypeVar("T")


@cache
def _store(*place: str) -> tuple[Any, Iterator[int]]:
    """The store of the processes that the environment names, and numbers of groups in it."""
    store, _, _ = next(distributed.rendezvous("env://"))
    return store, count()


def rank() -> int:
    """Number of this process, 0 for the only one."""
    return distributed.get_rank() if _several() else 0


def world_size() -> int:
    """Number of processes that share the work."""
    return distributed.get_world_size() if _several() else 1


def gather(value: T) -> list[T]:
    """The values of all processes in the order of ranks; the same list in every process.

    The values are pickled: keep them small.
    """
    if world_size() == 1:
        return [value]
    values: list = [None] * world_size()
    distributed.all_gather_object(values, value)
    return values


def add_up(value: Tensor) -> Tensor:
    """The sum over all processes, in each process; a single process gets its tensor back."""
    if world_size() == 1:
        return value
    total = value.clone()
    distributed.all_reduce(total)
    return total


@dataclass(frozen=True)
class RankSlice(Generic[T]):
    """The share of one process of `items`: items r, r + world, r + 2 world, ...

    A sequence is sliced; any other iterable is read in full.
    """

    items: Iterable[T]
    rank: int
    world: int

    def __len__(self) -> int:
        """Number of items of this share; only where `items` has a length."""
        return len(range(self.rank, len(self.items), self.world))  # pyrefly: ignore

    def __iter__(self) -> Iterator[T]:
        if isinstance(self.items, Sequence):
            return iter(self.items[self.rank :: self.world])
        return islice(self.items, self.rank, None, self.world)


def share(items: Iterable[T]) -> Iterable[T]:
    """The share of this process of `items`; all of them in a single process."""
    return items if world_size() == 1 else RankSlice(items, rank(), world_size())


def join_tasks() -> None:
    """Let the tasks that Slurm's ``srun`` started be the processes of a training.

    Each has the number of tasks and its own number in its environment, as ``torchrun`` would
    set them; the first task's node is the meeting place.
    """
    of, tasks = os.environ, os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks == "1" or "WORLD_SIZE" in of:
        return
    nodes = re.match(r"([^,[]+)(?:\[(\d+))?", of.get("SLURM_STEP_NODELIST", "localhost"))
    assert nodes is not None  # the list is not empty
    of["MASTER_ADDR"] = nodes[1] + (nodes[2] or "")
    job, step = (int(of.get(f"SLURM_{name}", "0")) for name in ("JOB_ID", "STEP_ID"))
    of["MASTER_PORT"] = str(15000 + (job + 97 * step) % 20000)
    of |= {"WORLD_SIZE": tasks, "RANK": of["SLURM_PROCID"]}
    of |= {"LOCAL_RANK": of.get("SLURM_LOCALID", "0")}


@contextmanager
def processes(compute: Compute = CPU) -> Iterator[None]:
    """Inside, the processes that ``torchrun`` started share the work."""
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or _several():
        yield
        return
    store, numbers = _store(*(os.environ[name] for name in names))
    distributed.init_process_group(
        "gloo" if compute.torch_device.type == "cpu" else None,
        # A new name for each group: the store still has the addresses of one that was left.
        store=distributed.PrefixStore(f"visprism/{next(numbers)}", store),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    try:
        if compute.torch_device.type == "cuda":
            torch.cuda.set_device(compute.torch_device)  # where objects are gathered
        yield
    finally:  # after an error others may wait for this process
        distributed.destroy_process_group()


def require_single_process(what: str) -> None:
    """Require a single process, since several would write to the same folder."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1:
        raise InputError(
            f"the number of processes of {what} must be 1, got {started}. Run it without "
            "torchrun."
        )


def _several() -> bool:
    return distributed.is_available() and distributed.is_initialized()
