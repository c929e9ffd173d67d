"""The check that a measurement gives a model, and the process, back as they were."""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as global_hooks
from torch.overrides import TorchFunctionMode

from visprism.anatomy.trace.forward import as_written
from visprism.core.devices import settings_of_products
from visprism.core.errors import InputError

_SET_DATA = Tensor.data.__set__  # pyrefly: ignore
_AT = (1, 30, 900)  # numbers of the torch functions within which a run is interrupted


def check_unchanged(
    measure: Callable[[nn.Module], object], model: nn.Module, *, interrupt: bool = True
) -> str | None:
    """Check that `measure(model)` leaves the model and the process as they were.

    Compared bit for bit, or by identity: parameters, buffers and their memory, gradients,
    ``requires_grad``, modes, hooks, submodules and attributes of every module; states of
    random numbers; flags of torch, as of gradients, autocast and products; functions of torch
    that could be patched; filters of warnings.

    The measurement runs to its end. Then it is interrupted within its 1st, 30th and 900th torch
    function by a KeyboardInterrupt. Each run starts from what the earlier ones left.

    Args:
        measure: the measurement, a function of the model.
        model: the model; whatever else the measurement needs is bound in `measure`.
        interrupt: whether to interrupt it.

    Returns:
        The reason for which the measurement refuses the model (an `InputError`), or None.

    Raises:
        AssertionError: if something changed, with its name, or an interruption did not end the
            measurement.
    """
    reason = None
    with _unchanged("a measurement", model):
        try:
            measure(model)
        except InputError as error:
            reason = str(error)
    for number in _AT if interrupt else ():
        law = f"a measurement that was interrupted in torch function {number}"
        mode = _InterruptionMode(number)
        with _unchanged(law, model):
            try:
                with as_written(), mode:  # the compiler does not know the mode
                    measure(model)
                if mode.number >= number:
                    raise AssertionError(f"{law}: the interruption did not end it")
            except (KeyboardInterrupt, InputError):
                pass
    return reason


class _InterruptionMode(TorchFunctionMode):
    """Raises a KeyboardInterrupt in place of the torch function of a number."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.number, self.at = 0, at

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:  # noqa: ANN001
        if func != _SET_DATA:  # restores models, and signals wait while it does
            self.number += 1
            if self.number == self.at:
                raise KeyboardInterrupt
        return func(*args, **(kwargs or {}))


@contextmanager
def _unchanged(law: str, model: nn.Module) -> Iterator[None]:
    before, functions = _state(model), _functions()
    yield
    after, functions_after = _state(model), _functions()
    changes = [n for n in before | after if not _same(before.get(n), after.get(n))]
    # torch binds some names at first use.
    changes += [n for n, function in functions.items() if functions_after.get(n) != function]
    if changes:
        raise AssertionError(f"{law} changed {', '.join(changes[:5])}")


def _state(model: nn.Module) -> dict[str, tuple]:
    """All that a measurement could change, by name: tuples of objects and values."""
    state: dict[str, tuple] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for key, value in vars(module).items():
            items = value.items() if isinstance(value, dict) else ()
            state[f"{name}.{key}"] = (type(module), value, *(x for pair in items for x in pair))
    parameters = model.named_parameters(remove_duplicate=False)
    for name, tensor in (*parameters, *model.named_buffers(remove_duplicate=False)):
        gradient = () if tensor.grad is None else (tensor.grad, _bits(tensor.grad))
        hooks = tuple((tensor._backward_hooks or {}).values())
        memory = (tensor.data_ptr(), tensor.stride()) if tensor.layout is torch.strided else ()
        form = tensor.requires_grad, tensor.dtype, tensor.device, *memory
        state[name] = (tensor, *form, _bits(tensor), *gradient, *hooks)
    state |= {key: (repr(v),) for key, v in vars(global_hooks).items() if "_global" in key}
    return state | {
        "random numbers": (torch.get_rng_state().numpy().tobytes(), random.getstate()),
        "random numbers of NumPy": (repr(np.random.get_state()),),  # noqa: NPY002
        "mode of gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "precision of products": (
            *settings_of_products(),
            torch.backends.mha.get_fastpath_enabled(),
        ),
        "filters of warnings": tuple(warnings.filters),
    }


def _functions() -> dict[str, Any]:
    """Functions of torch by name."""
    return {
        f"{namespace.__name__}.{key}": value
        for namespace in (functional, torch, Tensor, nn.Module)
        for key, value in vars(namespace).items()
        if callable(value)
    }


def _bits(tensor: Tensor) -> bytes:
    """The numbers of a tensor; NaN equals itself, and 0 is not -0."""
    plain = tensor.detach().as_subclass(Tensor)
    plain = plain.int_repr() if plain.is_quantized else plain.to_dense()
    return plain.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()


def _same(before: tuple | None, after: tuple | None) -> bool:
    """Whether values are equal, and objects the same."""
    if before is None or after is None or len(before) != len(after):
        return False
    return all(a is b or _equal(a, b) for a, b in zip(before, after, strict=True))


def _equal(a: object, b: object) -> bool:
    """Compares plain values; two objects that are not the same differ."""
    plain = (bool, int, float, str, bytes, tuple, torch.dtype, torch.device)
    return isinstance(a, plain) and type(a) is type(b) and bool(a == b)
