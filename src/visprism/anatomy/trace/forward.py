"""The forward pass of any image classifier: one tensor or a dict in, logits out."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy.trace.operations import tensors_in
from visprism.core.devices import copied_buffers, images_at_once
from visprism.core.errors import InputError, shortage
from visprism.core.preprocessing import OUTPUT

Images = Tensor | Mapping[str, Tensor]

_SAME = 1e-3  # relative: a GPU adds up in another order each time


def forward(model: nn.Module, images: Images) -> Tensor:
    """The model's logits, or its main output where it has no logits.

    A mapping is passed by keyword where the model's ``forward`` has arguments of these names
    (as Hugging Face models have), or takes any and names none (as wrappers do), and as one
    argument otherwise. If an output has several tensors, it is the one that the model's
    attribute ``visprism_output`` names, by key or number; else ``logits`` or ``out``, else the
    only one with two axes, and the last of feature maps in a list or of different shapes, as
    backbones give one for each stage.
    Nothing else is guessed. It lies where the images lie, also of a model that ends on another
    device. The model is given a copy of the images, which it may change.
    """
    logits = output_of(model, copies_of(images))
    return logits.reshape(-1, 1) if logits.ndim < 2 else logits  # one for each image


def output_of(model: nn.Module, images: Images) -> Tensor:
    """What `forward` returns, of these images instead of a copy."""
    first = next((t for t in _values(images) if t.ndim == 4), _values(images)[0])
    logits = _logits(returned_by(model, images), model)
    if logits.requires_grad and not torch.is_grad_enabled():
        logits = logits.detach()  # of a model that turns gradients on
    return logits if logits.device == first.device else logits.to(first.device)


def returned_by(model: nn.Module, images: Images) -> Any:
    """Whatever the model returns for a batch."""
    first = next((t for t in _values(images) if t.ndim == 4), _values(images)[0])
    images_at_once.set(len(first))
    by_name = isinstance(images, Mapping) and _takes(model, set(images))
    try:
        return model(**images) if by_name else model(images)
    except (StopIteration, GeneratorExit, SystemExit) as error:  # it would end a loop of ours
        raise RuntimeError(f"forward raised {error!r}") from error


def without_replicas(model: nn.Module) -> nn.Module:
    """The module within `DataParallel` or `DistributedDataParallel`; others as they are.

    The wrappers synchronize buffers and count forward passes, which a measurement must not do.
    What has a module as its attribute ``model``, such as a `LoadedModel`, stands for that.
    """
    inner = getattr(model, "model", None)
    if not isinstance(model, nn.Module) and isinstance(inner, nn.Module):
        model = inner
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    return model.module if isinstance(model, wrappers) else model


@contextmanager
def errors_of_model(model: nn.Module, given: Any, name: str = "") -> Iterator[None]:
    """Errors of a model on its first images become one sentence with its name."""
    try:
        yield
    except (SeveralOutputsError, torch.OutOfMemoryError):
        raise
    except InputError as error:
        raise InputError(f"{name}: {error}" if name else str(error)) from error
    except Exception as error:  # whatever a user's forward raises
        if shortage(error):
            raise
        title = name or type(model).__name__
        raise InputError(_refusal(title, model, given, error)) from error


def _refusal(name: str, model: nn.Module, given: Any, error: Exception) -> str:
    """Why a model cannot process the images, with what it was given."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    reason = reason.removesuffix(", but expected one of:").rstrip(" .:")
    if isinstance(given, Mapping):
        return (
            f"{name} cannot process a mapping with {', '.join(map(str, given))}: {reason}. "
            "Pass batches of images, or of (images, targets)."
        )
    kind = str(given.dtype).removeprefix("torch.")
    text = f"{name} cannot process {kind} images of {'x'.join(map(str, given.shape[1:]))}"
    dtypes = {str(p.dtype).removeprefix("torch.") for p in model.parameters()}
    sparse = [n for n, p in model.named_parameters() if p.layout is not torch.strided]
    if sparse:
        return f"{text}, as {sparse[0]} is sparse: {reason}. Convert it by to_dense()."
    if dtypes - {kind} and (len(dtypes) == 1 or "type" in reason):
        names = ", ".join(sorted(dtypes))
        return f"{text}, as its parameters are {names}: {reason}. Convert one of them."
    if "device" in reason or "should be the same" in reason:
        return (
            f"{text}: {reason}. The model may keep a device, or a tensor that is no buffer: "
            "name no device, and move the model as a whole."
        )
    remedy = (
        "Pass images of the shape that its forward takes: --size, or size of DataOptions. "
        "Files give three channels, a Dataset or DataLoader in Python any number. A module "
        "around a model may convert what it takes from float images (B, C, H, W)."
    )
    return f"{text}: {reason}. {remedy}"


@torch.no_grad()
def check_repeatable(model: nn.Module, images: Images) -> Tensor:
    """Check that two forward passes agree; returns their logits. Buffers are restored."""
    with copied_buffers(model):
        once, again = forward(model, images), forward(model, images)
    apart = float((once - again).abs().max())
    if apart > _SAME * float(once.abs().max()):
        raise InputError(
            f"{type(model).__name__} must be deterministic, and its logits "
            f"differ by up to {apart} between two passes: it draws random "
            "numbers or changes its buffers in evaluation mode"
        )
    return once


def part_of(images: Images, start: int, stop: int) -> Images:
    """Consecutive images of a batch, with what a mapping holds for all images."""
    if isinstance(images, Mapping):
        number = batch_size(images)
        return {n: t[start:stop] if len(t) == number else t for n, t in images.items()}
    return images[start:stop]


def copies_of(images: Images) -> Images:
    """The same images in new memory."""
    if isinstance(images, Mapping):
        return {name: tensor.clone() for name, tensor in images.items()}
    return images.clone()


def _values(images: Images) -> list[Tensor]:
    return list(images.values()) if isinstance(images, Mapping) else [images]


def pixels(images: object) -> Float[Tensor, "b c h w"]:
    """The images: the tensor itself, or the first of a mapping that can hold images."""
    tensors = list(images.values()) if isinstance(images, Mapping) else [images]
    batch = next((t for t in tensors if isinstance(t, Tensor) and t.ndim == 4), None)
    if batch is None or not batch.is_floating_point() or len(batch) == 0:
        got = ", ".join(map(_described, tensors)) or "nothing"
        raise InputError(
            "images must be floating-point tensors of shape (B, C, H, W), or a "
            f"mapping with them, got {got}"
        )
    return batch


def placed(images: Images, device: torch.device | None) -> Images:
    """The same images on a device; a GPU receives them while it computes."""
    if isinstance(images, Mapping):
        return {name: _to_device(tensor, device) for name, tensor in images.items()}
    return _to_device(images, device)


def _to_device(tensor: Tensor, device: torch.device | None) -> Tensor:
    if tensor.device.type == "cpu" and device is not None and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


@contextmanager
def as_written() -> Iterator[None]:
    """Inside, modules run as their code says, once.

    Compiled modules run eagerly, so that their operations can be recorded. What
    ``torch.utils.checkpoint`` would compute again in the backward pass is kept instead: by then
    the weights or methods of the model may be others.
    """
    with ExitStack() as stack:
        # The compiler takes seconds to import; if it is not imported, nothing is compiled,
        # unless by flex attention.
        if not sys.modules.keys().isdisjoint(_COMPILERS):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if checkpoints := sys.modules.get("torch.utils.checkpoint"):
            for name, plain in _PLAIN.items():
                if hasattr(checkpoints, name):
                    stack.callback(setattr, checkpoints, name, getattr(checkpoints, name))
                    setattr(checkpoints, name, plain)
        yield


def _plain_generator(*_args: Any, **_options: Any) -> Iterator[None]:
    """Instead of ``torch.utils.checkpoint``'s generator, which wraps the call of a function."""
    yield


class _PlainFunction:
    """In place of ``torch.utils.checkpoint.CheckpointFunction``."""

    @staticmethod
    def apply(function: Callable[..., Any], _preserve: bool, *args: Any) -> Any:
        """What the function gives, with its activations."""
        return function(*args)


_COMPILERS = {"torch._dynamo", "torch.nn.attention.flex_attention"}
# In place of what ``torch.utils.checkpoint`` does, by its names in versions of torch.
_PLAIN = {
    "_checkpoint_without_reentrant_generator": _plain_generator,
    "_checkpoint_without_reentrant_generator_impl": _plain_generator,
    "CheckpointFunction": _PlainFunction,
}


def batch_size(images: Images) -> int:
    """Number of images in a batch."""
    return len(pixels(images))


def _takes(model: nn.Module, names: set[str]) -> bool:
    """Whether ``forward`` has arguments of these names, or hands on whatever it gets."""
    arguments = inspect.signature(model.forward).parameters
    kinds = {argument.kind.name for argument in arguments.values()}
    return names <= set(arguments) or kinds - {"VAR_POSITIONAL"} == {"VAR_KEYWORD"}


class SeveralOutputsError(InputError):
    """A model returns several tensors, and which one holds the logits is not known."""

    def __init__(self, model: nn.Module, parts: Mapping[str, Tensor]) -> None:
        self.vectors = {name: t.shape[1] for name, t in parts.items() if t.ndim == 2}
        listed = ", ".join(f"{name} {tuple(t.shape)}" for name, t in parts.items())
        super().__init__(
            f"the output of {type(model).__name__} with the logits must be known, got {listed}"
            ". Name it: output='NAME' of examine, --output NAME, MODEL?output=NAME, or "
            f"model.{OUTPUT} = 'NAME'."
        )


_MAIN = ("logits", "out")


def levels_of(output: Any, model: nn.Module) -> list[Tensor]:
    """What a model gives, where all are maps and none is the main one; else nothing."""
    tensors = tensors_in(output)
    named = isinstance(output, Mapping) and not output.keys().isdisjoint(_MAIN)
    if named or hasattr(model, OUTPUT) or any(t.ndim != 4 for t in tensors):
        return []
    return tensors


def _logits(output: Any, model: nn.Module) -> Tensor:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = dict(output)
    elif isinstance(output, tuple | list):
        named = dict(zip(getattr(output, "_fields", range(len(output))), output, strict=True))
    else:
        named = {"logits": getattr(output, "logits", None)}
    if not any(isinstance(part, Tensor) for part in named.values()):  # tuples of tensors
        lists = {n: part for n, part in named.items() if isinstance(part, tuple | list)}
        named = {f"{n}.{i}": t for n, part in lists.items() for i, t in enumerate(part)}
    parts = {str(name): part for name, part in named.items() if isinstance(part, Tensor)}
    if not parts:
        raise InputError(
            f"the output of {type(model).__name__} must be logits, as a tensor or "
            f"under the name 'logits', got {type(output).__name__} without a tensor"
        )
    stated = next((name for name in _MAIN if name in parts), None)
    name = getattr(model, OUTPUT, stated)
    if name is not None:
        if name not in parts:
            raise InputError(f"output must be one of {', '.join(parts)}, got {name!r}")
        return parts[name]
    tensors = [t for t in parts.values() if t.ndim == 2] or list(parts.values())
    stages = len({t.shape[1:] for t in tensors}) == len(tensors)  # no two are alike
    stages = stages or isinstance(output, list) or all("." in name for name in parts)
    if len(tensors) == 1 or (stages and all(t.ndim == 4 for t in tensors)):
        return tensors[-1]
    if hasattr(model, "head_dist"):
        return tensors[0]  # timm's distilled networks in training mode: the classes come first
    raise SeveralOutputsError(model, parts)
