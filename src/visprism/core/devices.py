"""Devices: where a model computes and in which precision."""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from visprism.core.errors import InputError

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}

# Device of the borrowed model: where its images go if no device is named.
_borrowed: ContextVar[torch.device | None] = ContextVar("_borrowed", default=None)

# Images of the last forward pass, for the sentence on too little memory.
images_at_once: ContextVar[int] = ContextVar("images_at_once", default=1)


@dataclass(frozen=True)
class Compute:
    """A device and the precision of the model's arithmetic on it.

    Measurements of what the model gives are made in float32 or better, whatever the precision.

    Args:
        device: as torch names it: "cpu", "cuda", "cuda:1", "mps"; None: where the model's
            parameters lie.
        precision: "fp32", "tf32" for products of GPUs with 10 bits, "bf16" or "fp16" for mixed
            precision.
    """

    device: str | None = None
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            precisions = ", ".join(PRECISIONS)
            raise InputError(f"precision must be one of {precisions}, got {self.precision!r}")
        if self.device is None:
            return
        try:
            if torch.device(self.device).type == "xla":  # known to torch once it is imported
                importlib.import_module("torch_xla")
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
        """The named device, the borrowed model's device, or the accelerator."""
        if self.device is not None:
            return _of_process(torch.device(self.device))
        return _borrowed.get() or default_device()

    def on(self, model: nn.Module) -> "Compute":
        """The same with a device: the model's parameters' device if none is named."""
        return self if self.device is not None else replace(self, device=str(_place(model)))

    def autocast(self) -> AbstractContextManager:
        """Inside, mixed precision is on, if the precision asks for it."""
        if self.precision not in _AUTOCAST:
            return nullcontext()
        # Its cache of weights would outlive a change of them within another autocast.
        return torch.autocast(
            self.torch_device.type, dtype=_AUTOCAST[self.precision], cache_enabled=False
        )

    @contextmanager
    def borrow(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model lies on the device; afterwards all is as it was.

        Its buffers are copies, so that passes which change them leave them as they were. A
        model that lies on several devices stays where it is. A caller's autocast is off, and
        float32 is float32: torch would compute convolutions of a GPU in TF32.
        """
        place = _place(model)
        device = place if self.device is None else self.torch_device
        devices = devices_of(model)
        if len(devices) > 1 and device != place:
            places = " and ".join(map(str, devices))
            raise InputError(
                f"device must not be named for a model on {places}, got {self.device!r}: it is "
                "measured where it lies"
            )
        kinds = {d.type for d in (device, *devices)}
        with ExitStack() as stack:
            stack.callback(_borrowed.set, _borrowed.get())
            _borrowed.set(device)
            stack.enter_context(_arithmetic(self.precision, kinds))
            if device != place:
                stack.enter_context(_copied_to(model, device))
            stack.enter_context(copied_buffers(model))
            yield

    def arithmetic(self) -> AbstractContextManager:
        """Inside, products have the precision, as within `borrow`; the model is not touched."""
        return _arithmetic(self.precision, {self.torch_device.type})


def devices_of(model: nn.Module) -> list[torch.device]:
    """The devices of a model's parameters, in their order."""
    return list(dict.fromkeys(parameter.device for parameter in model.parameters()))


def require_one_device(model: nn.Module, quantity: str) -> None:
    """Refuse a model over several devices where its parameters are one vector."""
    devices = list(map(str, devices_of(model)))
    if len(devices) > 1:
        raise InputError(
            f"model must lie on one device for {quantity}, got {' and '.join(devices)}. Move "
            f"it: model.to({devices[-1]!r})."
        )


def default_device() -> torch.device:
    """The accelerator of this process, or the CPU where there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else _of_process(accelerator)


def _of_process(device: torch.device) -> torch.device:
    """A device with its number: of several processes each takes its own GPU."""
    if device.type in ("cpu", "meta") or device.index is not None:
        return device
    if device.type == "cuda" and "LOCAL_RANK" in os.environ:
        index = int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count())
        return torch.device("cuda", index)
    return torch.empty(0, device=device).device


def _place(model: nn.Module) -> torch.device:
    """The device of the first parameter or buffer."""
    tensors = (tensor for of in (model.parameters(), model.buffers()) for tensor in of)
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    if device.type == "meta":
        raise InputError(
            "parameters must be in memory, got a model on the meta device, where accelerate "
            "leaves what it offloads. Load the model whole, without offloading."
        )
    return device


@contextmanager
def _arithmetic(precision: str, kinds: set[str]) -> Iterator[None]:
    """Inside, products have the precision and can be repeated; autocast of a caller is off.

    Too little memory is one sentence.
    """
    tf32 = precision == "tf32"
    before = settings_of_products()
    of_gpu, of_cpu = ["tf32" if tf32 else "ieee"] * 3, ["ieee"] * 3
    with ExitStack() as stack:
        stack.callback(set_products, *before)
        set_products("high" if tf32 else "highest", tf32, False, True, *of_gpu, *of_cpu)
        for kind in kinds | {"cpu"}:  # part of a measurement runs on the CPU
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if "xla" in kinds:
            stack.enter_context(BatchNormOfXla())
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise _too_little_memory(error) from error


def _too_little_memory(error: torch.OutOfMemoryError) -> InputError:
    """The error for images that do not fit the memory together."""
    number = images_at_once.get()
    reason = ". ".join(str(error).split(". ")[:2]).rstrip(".")
    remedy = "Use another device, a smaller model or smaller images."
    if number > 1:
        half = number // 2
        remedy = (
            f"Use batches of {half}: batch_size={half}, mini_batch={half} "
            f"where there is one, limit={half} where BatchNorm is re-estimated."
        )
    return InputError(
        f"the memory of the device must hold a batch of {number} images, and does not "
        f"({reason}). {remedy}"
    )


def require_default_device() -> None:
    """Require torch to make tensors on the CPU where no device is named."""
    if (device := torch.empty(0).device).type != "cpu":
        raise InputError(
            f"torch's default device must be the CPU, got {device}. Call "
            "torch.set_default_device('cpu') first; the model may lie on any device."
        )


def settings_of_products() -> tuple[Any, ...]:
    """What torch computes products with: its older settings, cuDNN's, and its newer ones."""
    operations = _operations()
    newer = [operation.fp32_precision for operation in operations]
    cudnn: Any = torch.backends.cudnn
    # Torch refuses to read an older setting if newer ones differ from it.
    for operation in operations:
        operation.fp32_precision = "ieee"
    matmul = torch.get_float32_matmul_precision()
    try:
        convolutions = cudnn.allow_tf32
    except RuntimeError:
        convolutions = True
    for operation, value in zip(operations, newer, strict=True):
        operation.fp32_precision = value
    return matmul, convolutions, cudnn.benchmark, cudnn.deterministic, *newer


def set_products(
    matmul: str, convolutions: bool, benchmark: bool, deterministic: bool, *newer: str
) -> None:
    """Compute products with these settings, in the order of `settings_of_products`."""
    torch.set_float32_matmul_precision(matmul)
    cudnn: Any = torch.backends.cudnn
    cudnn.allow_tf32 = convolutions
    cudnn.benchmark, cudnn.deterministic = benchmark, deterministic
    for operation, value in zip(_operations(), newer, strict=True):
        operation.fp32_precision = value


def _operations() -> list[Any]:
    """Products of GPUs and of CPUs; torch's stubs do not know their settings."""
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    of_gpu = [torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn]
    return [*of_gpu, mkldnn.matmul, mkldnn.conv, mkldnn.rnn]


class BatchNormOfXla(TorchFunctionMode):
    """Inside, BatchNorm is computed by elementary operations.

    XLA's own has no gradient in evaluation mode, where it keeps no statistics for it, and keeps
    the biased variance as running statistics (torch_xla 2.9).
    """

    def __torch_function__(
        self, func: Callable, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        function = _batch_norm if func is functional.batch_norm else func
        return function(*args, **(kwargs or {}))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As `torch.nn.functional.batch_norm`."""
    if not training and running_mean is not None and running_var is not None:
        mean, var = running_mean, running_var
    else:
        var, mean = torch.var_mean(input.float(), [0, *range(2, input.ndim)], correction=0)
        number = input.numel() // input.shape[1]
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.detach(), momentum)
            running_var.lerp_(var.detach() * (number / (number - 1)), momentum)
    shape = (1, -1, *[1] * (input.ndim - 2))
    scale = torch.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight
    out = (input - mean.view(shape)) * scale.view(shape)
    out = out if bias is None else out + bias.view(shape)
    return out.to(input.dtype)


@contextmanager
def _copied_to(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, a model has copies of its tensors on a device; on exit it has its own back.

    Its own are not touched: no tensor changes its device, on any kind of device.
    """
    copies: dict[int, Tensor] = {}  # of tensors that modules share, one
    places = [
        (module, name, tensor)
        for module in model.modules()
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]
    for _, _, tensor in places:
        if id(tensor) not in copies:
            copy: Tensor = tensor.detach().to(device)
            if isinstance(tensor, nn.Parameter):
                copy = nn.Parameter(copy, requires_grad=tensor.requires_grad)
            copies[id(tensor)] = copy
    try:
        for module, name, tensor in places:
            setattr(module, name, copies[id(tensor)])
        yield
    finally:
        for module, name, tensor in places:
            setattr(module, name, tensor)


@contextmanager
def copied_buffers(model: nn.Module) -> Iterator[None]:
    """Inside, a model has copies of its buffers; on exit it has its own back."""
    registered = [m._buffers for m in model.modules() if isinstance(m._buffers, dict)]
    names = [dict(buffers) for buffers in registered]
    tensors = [(b, b.data) for b in model.buffers() if not b.is_inference()]
    try:
        for tensor, data in tensors:
            tensor.data = data.clone()
        for buffers in registered:  # autograd saves no tensors of inference mode
            kept = {n: b for n, b in buffers.items() if b is not None and b.is_inference()}
            buffers.update({name: buffer.clone() for name, buffer in kept.items()})
        yield
    finally:
        for tensor, data in tensors:
            tensor.data = data
        for buffers, before in zip(registered, names, strict=True):
            # A forward may assign another tensor.
            if any(buffers.get(name) is not tensor for name, tensor in before.items()):
                buffers.clear()
                buffers.update(before)


CPU = Compute("cpu")


def for_complex(x: Tensor) -> Tensor:
    """A tensor whose Fourier transform is taken: on the CPU where it lies on XLA or MPS.

    Complex numbers cannot be copied to and from XLA, and MPS has a part of their functions.
    """
    return x.cpu() if x.device.type in ("xla", "mps") else x


def in_float64(x: Tensor) -> Tensor:
    """A tensor in float64: on the CPU where it lies on MPS, which has none."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def on_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors on the CPU; all of one device and type in one copy, which is waited for."""
    together: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, tensor in enumerate(tensors):
        together.setdefault((tensor.device, tensor.dtype), []).append(i)
    moved = list(tensors)
    for (device, _), places in together.items():
        if device.type != "cpu":
            flat = torch.cat([tensors[i].flatten() for i in places]).cpu()
            for i, part in zip(
                places, flat.split([tensors[i].numel() for i in places]), strict=True
            ):
                moved[i] = part.view(tensors[i].shape)
    return moved
