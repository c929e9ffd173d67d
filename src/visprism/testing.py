"""Checks for analyses and measurements; run them on your own.

The laws are written once and hold for built-ins and plug-ins alike::

    def test_obeys_the_laws_of_statistics(tmp_path):
        check_statistic(MyAnalysis(), tmp_path)


    def test_the_model_comes_back_as_it_was():
        check_unchanged(lambda model: my_measurement(model, batches), MyModel().eval())
"""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as global_hooks
from torch.overrides import TorchFunctionMode

from visprism.anatomy.blocks.anatomy import Block
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.blocks.kinds import Kind
from visprism.anatomy.trace.forward import as_written
from visprism.anatomy.trace.token_positions import Layout
from visprism.core.devices import settings_of_products
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.drawing.registry import plot
from visprism.passes.features import Gathered
from visprism.passes.statistic import FeatureStatistic, PassResult
from visprism.passes.tokens import Tokens
from visprism.table.result import Result

_IMAGES = 7
_SET_DATA = Tensor.data.__set__  # pyrefly: ignore
_AT = (1, 30, 900)  # numbers of the torch functions within which a run is interrupted


def assert_results_equal(a: Result, b: Result, *, rtol: float = 1e-9) -> None:
    """Compare two results column by column, with the ends of intervals; NaN equals NaN."""
    assert type(a) is type(b), f"a {type(a).__name__} and a {type(b).__name__}"
    others = b.columns()
    for name, column in a.columns().items():
        if column.dtype.kind in "fc":
            # 1e-12: a difference of equal sums is 0 only up to rounding.
            atol = 1e-12 if rtol else 0.0
            np.testing.assert_allclose(column, others[name], rtol, atol, err_msg=name)
        else:
            np.testing.assert_array_equal(column, others[name], err_msg=name)


def check_statistic(statistic: FeatureStatistic, folder: Path | str) -> None:
    """Check the laws of feature statistics; `folder` is scratch space.

    1. Cutting the data into other batches changes nothing, nor does spreading it over
       processes, whose parts are joined in the order of the data.
    2. The order of the images changes nothing.
    3. Feature maps are left as they are, and may lie in memory in any order.
    4. A result survives being written and read.
    5. A result can be drawn.

    Raises:
        AssertionError: if one is broken; the message says which.
    """
    generator = torch.Generator().manual_seed(0)
    maps = {
        _block("stem", (3, 8, 8), 0.0): _noise(3, 8, generator),
        _block("attention", (3, 8, 8), 0.5): _noise(3, 8, generator),
        _block("downsample", (5, 4, 4), 1.0): _noise(5, 4, generator),
    }

    anatomy = dissect(nn.Sequential(nn.Conv2d(3, 3, 1)).eval(), torch.zeros(2, 3, 8, 8))

    def results(*batches: Sequence[int], maps: dict[Block, Tensor] = maps) -> Sequence[Result]:
        gathered = Gathered()
        for number, rows in enumerate(batches):
            seen = {b: _seen(statistic, b, x[list(rows)]) for b, x in maps.items()}
            extracts = {block: statistic.extract(x) for block, x in seen.items()}
            gathered.add(statistic.by_image(extracts), statistic.sums(extracts, number, 0))
        values, sums = gathered.of_all_processes()
        order = np.argsort([i for rows in batches for i in rows])
        by_image = {key: x[order] for key, x in values.items()}
        of_maps = replace(anatomy, blocks=tuple(maps))
        seen = PassResult(by_image, sums, _IMAGES, of_maps, {}, 0, Provenance(images=_IMAGES))
        return [result.measured(seen.provenance) for result in statistic.results(seen)]

    def check(law: str, others: Sequence[Result]) -> None:
        try:
            for first, second in zip(expected, others, strict=True):
                assert_results_equal(first, second)
        except AssertionError as broken:
            raise AssertionError(f"{law}: {broken}") from broken

    for block, x in maps.items():
        before = x.clone()
        statistic.extract(_seen(statistic, block, x))
        assert torch.equal(x, before), "extract changes the feature map"
    expected = results(range(_IMAGES))
    check("other batches change the result", results([0, 1, 2, 3], [4, 5], [6]))
    shuffled = torch.randperm(_IMAGES, generator=generator).tolist()
    check("the order of images changes the result", results(shuffled))
    last = {b: x.contiguous(memory_format=torch.channels_last) for b, x in maps.items()}
    check("the order of memory changes the result", results(range(_IMAGES), maps=last))
    path = Path(folder) / "result.npz"
    expected[0].save(path)
    assert_results_equal(expected[0], Result.load(path), rtol=0.0)
    ax = matplotlib.figure.Figure().subplots()
    assert plot(expected[0], ax) is ax, "plot does not return the axes that it was given"


def _seen(statistic: FeatureStatistic, block: Block, x: Tensor) -> Tensor | Tokens:
    """A feature map as it is seen; its first two positions also stand off the grid."""
    if "tokens" not in statistic.all_seen:
        return x
    return Tokens(block, x, x.flatten(2)[:, :, :2].mT + 1, ("class", "register"))


def _block(kind: Kind, shape: tuple[int, int, int], depth: float) -> Block:
    layout = Layout("b c h w", shape[1:])
    return Block(kind, kind, round(depth), depth, kind == "downsample", shape, layout)


def _noise(channels: int, side: int, generator: torch.Generator) -> Tensor:
    shape = (_IMAGES, channels, side, side)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


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
        if func != _SET_DATA:  # restores models, in microseconds
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
