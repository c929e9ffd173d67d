"""Devices and precisions of computations."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from visprism.core.arguments import check_fields
from visprism.core.errors import InputError
from visprism.core.interrupts import delayed_interrupts

T = TypeVar("T")

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Compute:
    """A device and the precision of the model's arithmetic on it.

    Measurements of what the model gives are made in float32 or better, whatever the precision.
    """

    device: str = "cpu"  # as torch names it: "cpu", "cuda", "cuda:1", "mps"
    precision: str = "fp32"  # "fp32", or "bf16" or "fp16" for mixed precision

    def __post_init__(self) -> None:
        check_fields(self)
        if self.precision not in PRECISIONS:
            precisions = ", ".join(PRECISIONS)
            raise InputError(f"precision must be one of {precisions}, got {self.precision!r}")
        try:
            if self.torch_device.type == "meta":
                raise NotImplementedError("its tensors hold no numbers")
            torch.empty(0, device=self.torch_device)
        except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise InputError(
                f"device must be available on this machine, got {self.device!r} "
                f"({reason}). Use 'cpu'."
            ) from error

    @property
    def torch_device(self) -> torch.device:
        """The device of this process: of several under ``torchrun``, each takes its own GPU."""
        device = torch.device(self.device)
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            index = int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count())
            return torch.device("cuda", index)
        return device

    def autocast(self) -> AbstractContextManager:
        """Inside, mixed precision is on, if the precision asks for it."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.torch_device.type, dtype=PRECISIONS[self.precision])

    @contextmanager
    def borrow(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model lies on the device; afterwards it has its own tensors back.

        Its buffers are copies, so that passes which change them leave them as they were.
        """
        tensors = [(tensor, tensor.data) for tensor in model.parameters()]
        try:
            for tensor, data in tensors:
                tensor.data = data.to(self.torch_device)
            with copied_buffers(model, self.torch_device):
                yield
        finally:
            with delayed_interrupts():
                for tensor, data in tensors:
                    tensor.data = data


@contextmanager
def copied_buffers(model: nn.Module, device: torch.device | None = None) -> Iterator[None]:
    """Inside, a model has copies of its buffers, on a device; on exit it has its own back."""
    registered = [m._buffers for m in model.modules() if isinstance(m._buffers, dict)]
    names = [dict(buffers) for buffers in registered]
    tensors = [(buffer, buffer.data) for buffer in model.buffers()]
    try:
        for tensor, data in tensors:
            tensor.data = data.to(device, copy=True)
        yield
    finally:
        with delayed_interrupts():
            for tensor, data in tensors:
                tensor.data = data
            for buffers, before in zip(registered, names, strict=True):
                # A forward may assign another tensor.
                if any(buffers.get(name) is not tensor for name, tensor in before.items()):
                    buffers.clear()
                    buffers.update(before)


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
