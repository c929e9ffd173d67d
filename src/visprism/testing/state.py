"""The state of a model and of the process, in values that compare bit for bit."""

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as global_hooks
from torch.utils import checkpoint

State = dict[str, Any]
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_NAMESPACES = {
    "functional": functional,
    "torch": torch,
    "torch.utils.checkpoint": checkpoint,
    "Tensor": Tensor,
    "nn.Module": nn.Module,
}


class Identity:
    """An object that equals itself alone; holds it, so that no other gets its address."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    __hash__ = None  # pyrefly: ignore


class Bits:
    """The numbers of a tensor; NaN equals itself, and 0 is not -0."""

    def __init__(self, tensor: Tensor) -> None:
        plain = tensor.detach().as_subclass(Tensor)
        if plain.is_quantized:
            plain = plain.int_repr()
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        self.value = plain.clone(memory_format=torch.contiguous_format)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bits) or self.value.shape != other.value.shape:
            return False
        a, b = (bits.value.reshape(-1).view(torch.uint8) for bits in (self, other))
        return torch.equal(a, b)

    __hash__ = None  # pyrefly: ignore


def state_of_model(model: nn.Module) -> State:
    """All that a measurement could change in a model, by name."""
    state: State = {}
    with torch.no_grad():
        for name, module in model.named_modules(remove_duplicate=False):
            state |= {f"{name}.{key}": value for key, value in _of_module(module).items()}
        tensors = (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        )
        for name, tensor in tensors:
            state |= {f"{name}.{key}": value for key, value in _of_tensor(tensor).items()}
    return state


def _of_module(module: nn.Module) -> State:
    state: State = {"class": type(module)}
    for name, value in vars(module).items():
        state[name] = (Identity(value), _items(value))
    return state


def _items(value: object) -> Any:
    """Items of a container, by identity or value; the value itself where it is a plain one."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return Bits(value)
    if isinstance(value, Mapping):
        return [(key, _item(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_item(one) for one in value]
    return None


def _item(value: object) -> Any:
    return value if isinstance(value, _PLAIN) else Identity(value)


def _of_tensor(tensor: Tensor) -> State:
    state: State = {
        "object": Identity(tensor),
        "class": type(tensor),
        "values": Bits(tensor),
        "form": (tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad),
        "gradient": Identity(tensor.grad),
        "hooks": [
            [(key, Identity(hook)) for key, hook in (hooks or {}).items()]
            for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks)
        ],
    }
    if tensor.layout is torch.strided:
        state["memory"] = (tensor.data_ptr(), tensor.stride(), tensor.storage_offset())
    if tensor.grad is not None:
        state["gradient values"] = Bits(tensor.grad)
    return state


def process_state() -> State:
    """All that a measurement could change in the process, by name."""
    state: State = {name: read() for name, read in _READ.items()}
    state["random numbers of torch"] = Bits(torch.get_rng_state())
    if torch.cuda.is_initialized():
        for index, numbers in enumerate(torch.cuda.get_rng_state_all()):
            state[f"random numbers of device {index}"] = Bits(numbers)
    for name, namespace in _NAMESPACES.items():
        # torch binds some names at first use; what was bound before stays.
        attributes = {key: value for key, value in vars(namespace).items() if callable(value)}
        state |= {f"{name}.{key}": _Bound(value) for key, value in attributes.items()}
    for key, value in vars(global_hooks).items():
        if key.startswith("_global") and isinstance(value, dict):
            state[f"hooks of all modules, {key}"] = [(k, Identity(v)) for k, v in value.items()]
    return state


class _Bound(Identity):
    """A function by its name in a namespace; one that was not bound yet equals any."""

    def __eq__(self, other: object) -> bool:
        return other is None or super().__eq__(other)

    __hash__ = None  # pyrefly: ignore


def _handlers() -> list[Identity]:
    if threading.current_thread() is not threading.main_thread():
        return []
    return [Identity(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)]


_READ: dict[str, Callable[[], Any]] = {
    "random numbers of Python": random.getstate,
    "random numbers of NumPy": lambda: repr(np.random.get_state()),  # noqa: NPY002
    "mode of gradients": torch.is_grad_enabled,
    "mode of inference": torch.is_inference_mode_enabled,
    "autocast": lambda: [
        (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")
    ],
    "cache of autocast": torch.is_autocast_cache_enabled,
    "default type": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "warnings of deterministic algorithms": (
        torch.is_deterministic_algorithms_warn_only_enabled
    ),
    "anomaly detection": torch.is_anomaly_enabled,
    "precision of products": torch.get_float32_matmul_precision,
    "threads": torch.get_num_threads,
    "backends of attention": lambda: (
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    ),
    "cuDNN": lambda: (
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.mkldnn.enabled,
    ),
    "modes of torch functions": torch._C._len_torch_function_stack,
    "modes of dispatch": torch._C._len_torch_dispatch_stack,
    "filters of warnings": lambda: list(warnings.filters),
    "signal handlers": _handlers,
    "hook of exceptions": lambda: Identity(sys.excepthook),
    "environment": lambda: dict(os.environ),
    "folder": os.getcwd,
}
