"""Memory of the process: what is freed is reused, and weights of models that wait leave it.

Tensors of a model that waits are views of a private map of a file, of which the system reads a
page at its first use. `WeightFile.release` drops the pages that were not written to.
"""

import ctypes
import logging
import mmap
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

_log = logging.getLogger(__name__)

_LINUX = sys.platform == "linux"
_C_LIBRARY = ctypes.CDLL(None) if _LINUX else None

_SMALLEST = 4 * 2**20  # bytes; what a study keeps of a model otherwise is as large
_ALIGNMENT = 64  # bytes; kernels may round by where a tensor begins between two multiples
_CHUNK = 4 * 2**20  # bytes that are compared and released together; full pages
_NUMBER = np.int64().itemsize  # bytes are compared as integers of this size
_PLAIN = (Tensor, nn.Parameter, nn.Buffer)

# Parameters of `mallopt` by number (malloc.h) and what `reused_memory` sets: no block is mapped
# separately, and free memory at the end of the heap stays.
_REUSE = {-4: 0, -1: 2**31 - 1}  # M_MMAP_MAX, M_TRIM_THRESHOLD
# What they are in a process that has freed large blocks, after which the C library sets the
# thresholds itself, M_MMAP_THRESHOLD among them.
_USUAL = {-4: 65_536, -1: 64 * 2**20, -3: 32 * 2**20}

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


def _settable() -> bool:
    by_user = any(name.startswith("MALLOC_") for name in os.environ)
    by_user = by_user or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    return hasattr(_C_LIBRARY, "gnu_get_libc_version") and not by_user


def _set(values: Mapping[int, int]) -> None:
    for parameter, value in values.items():
        _C_LIBRARY.mallopt(parameter, value)  # pyrefly: ignore


def return_free_memory() -> None:
    """Return memory that was freed to the system, where the C library is that of GNU.

    It otherwise keeps free memory below any small object that is alive, so that a process
    grows with each measurement. Cost: less than a millisecond.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


@dataclass(frozen=True, eq=False)
class WeightFile:
    """Two maps of a temporary file that holds tensors of a model."""

    private: mmap.mmap  # what the tensors are views of; the file never gets their changes
    original: mmap.mmap

    def release(self) -> None:
        """Drop the pages from memory. Those of chunks that were changed stay.

        Cost: a comparison with the file, about 0.02 s for each 100 MB.
        """
        size = len(self.private)
        now, before = (np.frombuffer(m, np.int64) for m in (self.private, self.original))
        for start in range(0, size, _CHUNK):
            stop = min(start + _CHUNK, size)
            numbers = slice(start // _NUMBER, stop // _NUMBER)
            unchanged = np.array_equal(now[numbers], before[numbers])
            for pages in (self.private, self.original) if unchanged else (self.original,):
                pages.madvise(mmap.MADV_DONTNEED, start, stop - start)


def map_weights(model: nn.Module, name: str = "") -> WeightFile | None:
    """Make tensors of a model views of a temporary file; None where they stay in memory.

    Parameters and buffers stay the same objects, with the same values, strides and shared
    memory. The file has no name, so that nothing is left of it when the process ends, however
    it ends. It lies in the folder for temporary files (``TMPDIR``), which must be on a disk for
    the weights to leave memory.

    Tensors stay in memory that are sparse, quantized, of a subclass or on another device than
    the CPU. All do on other systems than Linux, where there are less than 4 MiB of them, and
    with a warning where the file cannot be written.

    Args:
        model: is owned by the caller; a user's model is not to be changed.
        name: of the model, for the warning.
    """
    tensors = _tensors_by_storage(model)
    sizes = [of_storage[0].untyped_storage().nbytes() for of_storage in tensors]
    if not _LINUX or sum(sizes) < _SMALLEST:
        return None
    try:
        weights, starts = _written(tensors)
    except OSError as error:
        _log.warning(
            "the weights of %s stay in memory, since no temporary file could be written (%s). "
            "Free some space, or set TMPDIR to another folder",
            *(name or type(model).__name__, error.strerror or error),
        )
        return None
    for of_storage, start, size in zip(tensors, starts, sizes, strict=True):
        storage = torch.frombuffer(
            weights.private, dtype=torch.uint8, count=size, offset=start
        ).untyped_storage()
        for tensor in of_storage:
            view = torch.empty(0, dtype=tensor.dtype)
            tensor.data = view.set_(
                storage, tensor.storage_offset(), tensor.size(), tensor.stride()
            )
    return_free_memory()
    return weights


def _tensors_by_storage(model: nn.Module) -> list[list[Tensor]]:
    """Parameters and buffers that can be mapped; those that share memory stand together."""
    by_storage: dict[int, list[Tensor]] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        by_storage.setdefault(_address(tensor), []).append(tensor)
    by_storage.pop(0, None)
    return [tensors for tensors in by_storage.values() if all(map(_is_plain, tensors))]


def _address(tensor: Tensor) -> int:
    """Where the memory of a tensor begins that this process has; 0 without such memory."""
    try:
        in_memory = tensor.layout is torch.strided and tensor.device.type == "cpu"
        return tensor.untyped_storage().data_ptr() if in_memory else 0
    except (RuntimeError, ValueError):  # as lazy parameters and some subclasses raise
        return 0


def _is_plain(tensor: Tensor) -> bool:
    unusual = tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    return type(tensor) in _PLAIN and not unusual and not tensor.is_inference()


def _written(tensors: Sequence[Sequence[Tensor]]) -> tuple[WeightFile, list[int]]:
    """A file of the memory of each group of tensors, and where each begins."""
    starts = []
    with tempfile.TemporaryFile(prefix="visprism-") as file:
        for of_storage in tensors:
            file.write(bytes((_address(of_storage[0]) - file.tell()) % _ALIGNMENT))
            starts.append(file.tell())
            values = torch.empty(0, dtype=torch.uint8).set_(of_storage[0].untyped_storage())
            file.write(values.numpy().data)
        file.write(bytes(-file.tell() % _NUMBER))
        file.flush()
        private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        original = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return WeightFile(private, original), starts
