"""Processes: the process group of ``torchrun``, and how it shares work."""

import atexit
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

import torch
from torch import Tensor, distributed

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError

T = TypeVar("T")


class ProcessGroup:
    """The process group that was made, kept from one use to the next."""

    def __init__(self) -> None:
        self.inside = False
        self._like: tuple | None = None  # of what group there is: where, and its backend
        self._stores: dict[tuple, distributed.Store] = {}
        self._made: Counter[tuple] = Counter()  # groups, by place

    @property
    def ours(self) -> bool:
        """Whether the group that there is was made here."""
        return self._like is not None

    def enter(self, backend: str | None) -> None:
        """Join the processes that the environment names, unless they are joined."""
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        place = tuple(os.environ.get(name) for name in names)
        if self._like != (place, backend):
            self.part()
            if place not in self._stores:
                self._stores[place], _, _ = next(distributed.rendezvous("env://"))
            # A new name for each: the store still has the addresses of a group that was left.
            self._made[place] += 1
            store = distributed.PrefixStore(
                f"visprism/{self._made[place]}", self._stores[place]
            )
            rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            distributed.init_process_group(backend, store=store, rank=rank, world_size=world)
            self._like = place, backend
        self.inside = True

    def part(self) -> None:
        """Leave the processes, if they are joined."""
        if self.ours and distributed.is_initialized():
            distributed.destroy_process_group()
        self._like = None


GROUP = ProcessGroup()
atexit.register(GROUP.part)


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


@contextmanager
def processes(compute: Compute = CPU) -> Iterator[None]:
    """Inside, the processes that ``torchrun`` started share the work.

    The connections are reused until the program ends, but are closed after an error, since
    other processes may then wait for this one.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started == 1 or _several():
        yield
        return
    GROUP.enter("gloo" if compute.torch_device.type == "cpu" else None)
    try:
        if compute.torch_device.type == "cuda":
            torch.cuda.set_device(compute.torch_device)  # where objects are gathered
        yield
    except BaseException:
        GROUP.part()
        raise
    finally:
        GROUP.inside = False


def require_single_process(what: str) -> None:
    """Require a single process, since several would write to the same folder."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1:
        raise InputError(
            f"the number of processes of {what} must be 1, got {started}. Run it without "
            "torchrun."
        )


def _several() -> bool:
    there = distributed.is_available() and distributed.is_initialized()
    return there and (GROUP.inside or not GROUP.ours)
