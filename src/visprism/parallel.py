"""Where the work is done: on which device, in which precision, by how many processes."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor, distributed, nn

from visprism.errors import InputError
from visprism.joining import JOINED

T = TypeVar("T")

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Compute:
    """A device and the precision of the model's arithmetic on it.

    Measurements of what the model gives are made in float32 or better, whatever the precision.

    Raises:
        InputError: if the precision is unknown, or the device is not there.
    """

    device: str = "cpu"  # as torch names it: "cpu", "cuda", "cuda:1", "mps"
    precision: str = "fp32"  # "fp32", or "bf16" or "fp16" for mixed precision

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise InputError(f"unknown precision {self.precision!r}; wanted one of {known}")
        try:
            if self.torch_device.type == "meta":
                raise NotImplementedError("its tensors hold no numbers")
            torch.empty(0, device=self.torch_device)
        except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise InputError(
                f"device {self.device!r} cannot be used here ({reason}); 'cpu' always can"
            ) from error

    @property
    def torch_device(self) -> torch.device:
        """The device of this process: of several under ``torchrun``, each takes its own GPU."""
        device = torch.device(self.device)
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            own = int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count())
            return torch.device("cuda", own)
        return device

    def autocast(self) -> AbstractContextManager:
        """Mixed precision inside, where it is asked for."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.torch_device.type, dtype=PRECISIONS[self.precision])

    @contextmanager
    def borrow(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model lies on the device; afterwards it has its own tensors back."""
        own = [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]
        try:
            for tensor, data in own:
                tensor.data = data.to(self.torch_device)
            yield
        finally:
            for tensor, data in own:
                tensor.data = data


CPU = Compute()


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device, or half of the machine's where it does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        return next(1024 * int(line[1]) for line in lines if line[0] == "MemAvailable:")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# Processes.


def rank() -> int:
    """Number of this process, 0 for the only one."""
    return distributed.get_rank() if _several() else 0


def world_size() -> int:
    """Number of processes that share the work."""
    return distributed.get_world_size() if _several() else 1


def gather(value: T) -> list[T]:
    """What each process has, in the order of ranks; the same list in every process.

    The values are pickled: keep them small.
    """
    if world_size() == 1:
        return [value]
    values: list = [None] * world_size()
    distributed.all_gather_object(values, value)
    return values


def add_up(value: Tensor) -> Tensor:
    """The sum of what all processes have, in each; one alone gets its own tensor back."""
    if world_size() == 1:
        return value
    total = value.clone()
    distributed.all_reduce(total)
    return total


@dataclass(frozen=True)
class Share(Generic[T]):
    """What one process does of `items`: numbers r, r + world, r + 2 world, ...

    Of a sequence they are a slice, so only they are made; any other iterable is read through.
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
    """What this process does of `items`; all of them where it is the only one."""
    return items if world_size() == 1 else Share(items, rank(), world_size())


@contextmanager
def processes(compute: Compute = CPU) -> Iterator[None]:
    """Inside, the processes that ``torchrun`` started share the work; one alone does it all.

    The connections stay for the next time, and until the program ends, unless an error is why
    they are left: others may then wait for what this process will not do.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started == 1 or _several():
        yield
        return
    JOINED.enter("gloo" if compute.device == "cpu" else None)
    try:
        if compute.torch_device.type == "cuda":
            torch.cuda.set_device(compute.torch_device)  # where objects are gathered
        yield
    except BaseException:
        JOINED.part()
        raise
    finally:
        JOINED.inside = False


def check_alone(what: str) -> None:
    """For what several processes would do over and over, into one folder.

    Raises:
        InputError: if ``torchrun`` has started several.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1:
        raise InputError(
            f"{what} works in one process, and {started} were started; leave out torchrun"
        )


def _several() -> bool:
    there = distributed.is_available() and distributed.is_initialized()
    return there and (JOINED.inside or not JOINED.ours)
