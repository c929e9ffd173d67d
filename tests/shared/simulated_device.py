"""A device that this machine does not have, simulated: its tensors do not mix with the CPU's.

A tensor there is one of a subclass, whose numbers are on the CPU. All functions of torch pass
through the mode, which knows the places of their arguments, and refuses what CUDA refuses.
"""

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("mps:0")  # which has no numbers of 64 bits

# They take tensors of two devices on CUDA too.
_ACROSS = {Tensor.copy_, Tensor.data.__set__, Tensor.__getitem__, Tensor.__setitem__}
_READING = {Tensor.numpy, Tensor.__array__}


class There(Tensor):
    """A tensor on the simulated device."""


def _is_there(place):
    return isinstance(place, str | torch.device) and torch.device(place).type == DEVICE.type


def _placed(result, there):
    """The same tensor on the simulated device, or on the CPU."""
    return result.as_subclass(There if there else Tensor)


class SimulatedDevice(TorchFunctionMode):
    """Inside, `device="mps"` is a device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = self._result(func, args, dict(kwargs or {}))
        if isinstance(result, There) and result.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return result

    def _result(self, func, args, kwargs):
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        there = [isinstance(t, There) for t in tensors]
        if func == Tensor.device.__get__ and there[0]:
            return DEVICE
        if func in _READING and there[0]:
            raise TypeError(f"can't convert {DEVICE} device type tensor to numpy")
        if func in {Tensor.to, Tensor.cpu}:
            return _moved(func, *args, **kwargs)
        if (
            func not in _ACROSS
            and len({p for t, p in zip(tensors, there, strict=True) if t.ndim}) > 1
        ):
            raise RuntimeError(
                f"Expected all tensors to be on one device, found {DEVICE} and cpu"
            )
        if "device" in kwargs and kwargs["device"] is not None:
            place = _is_there(kwargs["device"])
            if place and kwargs.get("generator") is not None:
                raise RuntimeError(
                    f"Expected a {DEVICE} device type for generator but found cpu"
                )
            return _placed(func(*args, **kwargs | {"device": "cpu"}), place)
        return func(*args, **kwargs)


def _moved(func, tensor, *args, **kwargs):
    """`Tensor.to` and `Tensor.cpu`, with a device, a type, or another tensor."""
    there = isinstance(tensor, There)
    place = there and func is not Tensor.cpu
    rest = []
    for arg in (*args, *([kwargs.pop("device")] if "device" in kwargs else [])):
        if isinstance(arg, str | torch.device):
            place = _is_there(arg)
        elif isinstance(arg, Tensor):
            place = isinstance(arg, There)
            rest.append(arg.dtype)
        elif arg is not None:
            rest.append(arg)
    with torch._C.DisableTorchFunctionSubclass():
        result = tensor.to(*rest, **kwargs) if rest or kwargs else tensor
        copied = result.clone() if result is tensor and place != there else result
    return result if place == there and result is tensor else _placed(copied, place)


def put_there(model):
    """The model with parameters and buffers on the simulated device."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                there = parameter.detach().to(DEVICE)
                module._parameters[name] = nn.Parameter(there, parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(DEVICE)
    return model
