"""Folding: a convolution and the frozen BatchNorm behind it as one convolution.

With frozen statistics BatchNorm is a scale and a shift for each channel, so that

    BN(W * x + b) = (s W) * x + beta + s (b - mean),    s = gamma / sqrt(var + eps)

as a function of the same parameters: values and derivatives of any order are those of the model
as it is written, and nothing is computed over feature maps for the norm.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from visprism.anatomy import Images, forward
from visprism.anatomy.trace.operations import tensors_in
from visprism.core.devices import delayed_interrupts

Pair = tuple[str, str]  # names of a convolution and of its norm
_Map = Callable[[Tensor], Tensor]
_ABSENT = object()  # the value of an attribute that is not there


def foldable(model: nn.Module, images: Images) -> tuple[Pair, ...]:
    """Convolutions whose output nothing but one frozen BatchNorm reads.

    Modules with hooks or a replaced ``forward``, such as those of accelerate, are skipped: what
    they compute is unknown. Runs the model once on `images`, which may be few.
    """
    named = [(name, m) for name, m in model.named_modules() if not is_patched(m)]
    norms = {m: name for name, m in named if _after(m) is not None}
    convolutions: dict[nn.Module, str] = {m: n for n, m in named if type(m) is nn.Conv2d}
    if not norms or not convolutions:
        return ()
    made: list[tuple[nn.Module, Tensor]] = []
    read: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        m.register_forward_hook(lambda m, _, out: made.append((m, out))) for m in convolutions
    ]
    hooks += [
        m.register_forward_pre_hook(
            lambda m, args, named: read.append((m, next(iter((*args, *named.values()))))),
            with_kwargs=True,
        )
        for m in norms
    ]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.no_grad(), _Uses() as uses:
            forward(model, images)
    finally:
        for hook in hooks:
            hook.remove()
        for buffer, before in buffers:
            buffer.data.copy_(before)
    runs = Counter(m for m, _ in (*made, *read))
    reader = {id(x): m for m, x in read}
    return tuple(
        (convolutions[m], norms[reader[id(out)]])
        for m, out in made
        if uses.of[id(out)] == 1
        and id(out) in reader
        and runs[m] == runs[reader[id(out)]] == 1
        and out.shape[1] == reader[id(out)].num_features
    )


@contextmanager
def folded(model: nn.Module, pairs: Sequence[Pair]) -> Iterator[None]:
    """Inside, each convolution does what its norm would do, as a function of the parameters."""
    with _replaced(model, pairs, _differentiable):
        yield


@contextmanager
def folded_constants(model: nn.Module, pairs: Sequence[Pair]) -> Iterator[None]:
    """The same for passes without derivatives in the parameters: kernels are computed once.

    Costs the memory of the kernels.
    """
    with _replaced(model, pairs, _constant):
        yield


@contextmanager
def _replaced(
    model: nn.Module, pairs: Sequence[Pair], fused: Callable[[nn.Conv2d, nn.BatchNorm2d], _Map]
) -> Iterator[None]:
    modules = [(model.get_submodule(a), model.get_submodule(b)) for a, b in pairs]
    before = [(vars(m), vars(m).get("forward", _ABSENT)) for pair in modules for m in pair]
    try:
        for convolution, norm in modules:
            convolution.forward = fused(convolution, norm)  # pyrefly: ignore
            norm.forward = _after(norm)  # pyrefly: ignore
        yield
    finally:
        with delayed_interrupts():
            for attributes, method in before:
                if method is _ABSENT:
                    attributes.pop("forward", None)
                else:
                    attributes["forward"] = method


def is_patched(module: nn.Module) -> bool:
    """Whether a call of the module does more, or other, than its class says."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return "forward" in vars(module) or any(hooks) or bool(module._backward_pre_hooks)


def _differentiable(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> _Map:
    return lambda x: convolution._conv_forward(x, *_kernel(convolution, norm))


@torch.no_grad()
def _constant(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> _Map:
    dtype = convolution.weight.dtype  # that of a norm may be another
    kernel, shift = (tensor.to(dtype) for tensor in _kernel(convolution, norm))
    return lambda x: convolution._conv_forward(x, kernel, shift)


def _kernel(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Kernel and bias of both as one convolution."""
    assert norm.running_var is not None  # see `_after`
    assert norm.running_mean is not None
    scale = (norm.running_var + norm.eps).rsqrt()
    shift = -norm.running_mean
    if convolution.bias is not None:
        shift = shift + convolution.bias
    if norm.affine:
        scale = scale * norm.weight
    shift = shift * scale
    if norm.affine:
        shift = shift + norm.bias
    return convolution.weight * scale[:, None, None, None], shift


def _after(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """What a frozen BatchNorm does besides the norm; None for any other module."""
    if module.training or getattr(module, "running_var", None) is None:
        return None
    if type(module) is nn.BatchNorm2d:
        return lambda x: x
    layers = sys.modules.get("timm.layers.norm_act")
    if layers is not None and type(module) is layers.BatchNormAct2d:
        return lambda x: module.act(module.drop(x))  # pyrefly: ignore
    return None


class _Uses(TorchFunctionMode):
    """Counts how often torch functions are given each tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[int] = Counter()
        self._kept: list[Tensor] = []  # so that no other tensor has its number

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:  # noqa: ANN001
        out = func(*args, **(kwargs or {}))
        if tensors_in(out):  # asking for a shape is no use
            operands = tensors_in((args, kwargs or {}))
            self.of.update({id(x) for x in operands})
            self._kept += operands
        return out
