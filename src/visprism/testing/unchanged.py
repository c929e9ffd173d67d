"""The check that a measurement gives a model, and the process, back as they were."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError
from visprism.testing.state import process_state, state_of_model

_SET_DATA = Tensor.data.__set__  # pyrefly: ignore
_STEP = 6  # factor between the numbers of torch functions after which a run is interrupted


class InterruptionError(RuntimeError):
    """The exception that `check_unchanged` raises inside a measurement."""


def check_unchanged(
    measure: Callable[[nn.Module], object], model: nn.Module, *, interrupt: bool = True
) -> str | None:
    """Check that `measure(model)` leaves the model and the process as they were.

    Compared bit for bit, or by identity: parameters, buffers and their memory, gradients,
    ``requires_grad``, modes, hooks, submodules and attributes of every module; states of
    random numbers; flags of torch, as of gradients, autocast and backends; functions of torch
    that could be patched; filters of warnings, signal handlers, environment and folder.

    The measurement runs to its end. Then it is interrupted within its 1st, 6th, 36th, ...
    torch function, in turn by an exception and by a KeyboardInterrupt, until a run ends first.
    Each run starts from what the earlier ones left.

    Args:
        measure: the measurement, a function of the model.
        model: the model; whatever else the measurement needs is bound in `measure`.
        interrupt: whether to interrupt it.

    Returns:
        The reason for which the measurement refuses the model (an `InputError`), or None.

    Raises:
        AssertionError: if something changed, with its name, or a KeyboardInterrupt did not end
            the measurement.
    """
    reason = None
    with _unchanged("a measurement", model):
        try:
            measure(model)
        except InputError as error:
            reason = str(error)
    gc.collect()
    number, errors = 1, (InterruptionError, KeyboardInterrupt)
    while interrupt:
        error = errors[0]
        law = f"a measurement with {error.__name__} in torch function {number}"
        mode = _InterruptionMode(number, error)
        ended = False
        with _unchanged(law, model):
            try:
                with as_written(), mode:  # the compiler does not know the mode
                    measure(model)
                ended = True
            except (InterruptionError, KeyboardInterrupt, InputError):
                pass
            except Exception as raised:  # as by type checks, which run torch functions
                if not any(isinstance(e, InterruptionError) for e in _causes(raised)):
                    raise
        if mode.number < number:
            break
        if ended and error is KeyboardInterrupt:
            raise AssertionError(f"{law}: the interruption did not end it")
        number, errors = number * _STEP, errors[::-1]
    return reason


@contextmanager
def _unchanged(law: str, model: nn.Module) -> Iterator[None]:
    model_before, process_before = state_of_model(model), process_state()
    yield
    process_after, model_after = process_state(), state_of_model(model)
    for before, after in ((model_before, model_after), (process_before, process_after)):
        changes = [name for name in before | after if before.get(name) != after.get(name)]
        if changes:
            raise AssertionError(f"{law} changed {', '.join(changes[:5])}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class _InterruptionMode(TorchFunctionMode):
    """Raises an error in place of the torch function of a number."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        super().__init__()
        self.number = 0
        self.at, self.error = at, error

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:  # noqa: ANN001
        # Assignments of `data` restore models, and signals wait while they do.
        self.number += func != _SET_DATA
        if self.number == self.at and func != _SET_DATA:
            raise self.error(f"in torch function {self.at}")
        return func(*args, **(kwargs or {}))
