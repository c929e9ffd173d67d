"""Memory: how much is free, that it is reused, and how much is taken at most."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device, or half of the machine's where it does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        return next(1024 * int(line[1]) for line in lines if line[0] == "MemAvailable:")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


_LINUX = sys.platform == "linux"
_C_LIBRARY = ctypes.CDLL(None) if _LINUX else None

# Parameters of `mallopt` by number (malloc.h) and what `reused_memory` sets: no block is mapped
# separately, and free memory at the end of the heap stays.
_REUSE = {-4: 0, -1: 2**31 - 1}  # M_MMAP_MAX, M_TRIM_THRESHOLD
# What they are in a process that has freed large blocks, after which the C library sets the
# thresholds itself, M_MMAP_THRESHOLD among them.
_USUAL = {-4: 65_536, -1: 64 * 2**20, -3: 32 * 2**20}

_RETURN = {-4: 65_536, -1: 0, -3: 2**16}

_lock = threading.Lock()
_users = 0  # of reused memory


@contextmanager
def reused_memory() -> Iterator[None]:
    """Inside, memory that is freed is reused and stays in the process; at the end it leaves.

    The C library of GNU returns each block of more than 32 MiB to the system when it is freed,
    and the system clears the pages of the next one when they are first written to. A ResNet-50
    with 16 images of 224x224 spends a third of a forward pass on that.

    Calls may be nested, and made in several threads. Other C libraries are left as they are,
    and so are a user's settings (``MALLOC_MMAP_THRESHOLD_`` and others, ``GLIBC_TUNABLES``).
    """
    global _users
    if not _settable():
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            _set(_REUSE)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _set(_USUAL)
                return_free_memory()


@contextmanager
def _returned_memory() -> Iterator[None]:
    """Inside, each block of 64 KiB and more is returned to the system when it is freed."""
    if _settable():
        with _lock:
            _set(_RETURN)
    try:
        yield
    finally:
        if _settable():
            with _lock:
                _set(_REUSE if _users else _USUAL)


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Inside, a function that gives the most bytes that were taken beyond those at the start.

    On a CPU it is memory of the process, as Linux reports it; None on other devices.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def resident(name: str) -> int:
        lines = status.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield lambda: torch.cuda.max_memory_allocated(device) - before
    elif device.type == "cpu" and os.access(reset, os.W_OK):
        with _returned_memory():
            return_free_memory()
            before = resident("VmRSS")
            reset.write_text("5")  # the peak is the present from now on
            yield lambda: resident("VmHWM") - before
    else:
        yield lambda: None


def _settable() -> bool:
    by_user = any(name.startswith("MALLOC_") for name in os.environ)
    by_user = by_user or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    return hasattr(_C_LIBRARY, "gnu_get_libc_version") and not by_user


def _set(values: Mapping[int, int]) -> None:
    for parameter, value in values.items():
        _C_LIBRARY.mallopt(parameter, value)  # pyrefly: ignore


def return_free_memory() -> None:
    """Return memory that was freed to the system, if the C library is GNU's.

    It otherwise keeps free memory below any small object that is alive, so that a process
    grows with each measurement. Cost: less than a millisecond.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
