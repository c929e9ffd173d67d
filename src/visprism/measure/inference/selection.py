"""Selection: the inference settings of a model, verified against the model as it is written.

The selection reads no clock: two runs on one machine select the same settings, so that their
results are equal bit for bit. Precision is never changed.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Images, batch_size, first_images, forward, pixels
from visprism.core.devices import PRECISIONS, Compute
from visprism.core.inference import Inference
from visprism.measure.inference.batch_norm_folding import foldable, is_patched
from visprism.measure.inference.forward import inference
from visprism.passes.batches import on_device

_VERIFIED, _FRACTION = 8, 32  # images that are compared: at most, and one in how many
_TOLERANCE, _ROUNDINGS = 1e-4, 8  # of the largest logit; in roundings of lower precisions
# Pixels of a batch: the output of a layer then still fits into the caches of a CPU, and fills
# a GPU.
_PIXELS = {"cpu": 2**16, "other": 2**22}
_SMALLEST = 8  # images of a batch
_DEPENDS = "its logits depend on the other images of a batch"
_VARIES = "its logits differ between two passes of the same images"


def default_batch_size(images: Images, compute: Compute) -> int:
    """Number of images of a forward pass for images of this size, on this kind of device."""
    height, width = pixels(images).shape[-2:]
    kind = "cpu" if compute.torch_device.type == "cpu" else "other"
    return max(_SMALLEST, _PIXELS[kind] // max(1, height * width))


def verified_images(total: int | None) -> int:
    """Number of images on which settings are compared with the model as it is written.

    One in 32, from 2 to 8, so that the comparison is short beside the passes themselves; 8
    where the number of all images is unknown.
    """
    return _VERIFIED if total is None else max(2, min(_VERIFIED, total // _FRACTION))


@torch.no_grad()
def select_inference(
    model: nn.Module,
    images: Images,
    compute: Compute,
    *,
    size: int | None = None,
    total: int | None = None,
) -> Inference:
    """The fastest settings whose logits are those of the model as it is written.

    Few images run through the model as it is written, and, in two parts, with the
    settings. The largest class of each image must be the same, and no logit may differ by more
    than 1e-4 of the largest one (in bf16 and fp16, 8 roundings). Tried in turn: channels-last
    with folded BatchNorm, each of both alone, and neither. Where parts of a batch give other
    logits than the batch, batches stay as they are given; so they do where the model raises an
    error for the few images, which may be too few for it.

    Models that are compiled, scripted, quantized, replicated or have hooks run as written:
    what else depends on their modules is unknown. Buffers and the random state are restored.

    Cost: two to seven forward passes of at most 8 images; see `verified_images`.

    Args:
        model: in evaluation mode.
        images: the first ones of those that will be measured.
        compute: device and precision.
        size: images of a forward pass; by default a number for images of this size.
        total: number of all images that will be measured; None if it is unknown.
    """
    reason = _unsupported(model)
    if reason:
        return Inference(size, reason=reason)
    few = on_device(first_images(images, verified_images(total)), compute, copy=True)
    if size is None and batch_size(few) > 1:  # one image does not show what a batch does
        size = default_batch_size(images, compute)
    with compute.borrow(model), _restored_state(model, compute):
        return _selected(model, few, compute, size)


def _selected(
    model: nn.Module, images: Images, compute: Compute, size: int | None
) -> Inference:
    """The settings that agree with the model as it is written, or why none does."""
    number = batch_size(images)
    try:
        with compute.autocast():
            expected = forward(model, images)
            folds = foldable(model, first_images(images, 2))
    except Exception:  # whatever a user's forward raises
        return Inference(None, reason=_fails_on(min(2, number), number))
    real = not expected.is_complex() and expected.dtype != torch.bool
    if expected.ndim != 2 or len(expected) != number or not expected.numel() or not real:
        return Inference(None, reason="its output is not one vector of logits per image")
    if not expected.amax(1).isfinite().all():  # classes that are ruled out may have -inf
        return Inference(None, reason="its logits are not finite")
    formats = (True, False) if _gains_from_channels_last(model, compute) else (False,)
    for pairs in dict.fromkeys((folds, ())):
        for last in formats:
            settings = Inference(size, channels_last=last, folds=pairs)
            logits = _in_parts(model, settings, images, compute)
            if logits is not None and _agrees(logits, expected, compute):
                return settings
    return Inference(None, reason=_difference(model, images, expected, compute))


def _difference(
    model: nn.Module, images: Images, expected: Float[Tensor, "b k"], compute: Compute
) -> str:
    """Why two parts of a batch do not give the logits of the batch, as far as passes show."""
    number = batch_size(images)
    if _in_parts(model, Inference(), images, compute) is None:
        return _fails_on(number // 2, -(-number // 2))
    try:
        with compute.autocast():
            again = forward(model, images)
    except Exception:  # whatever a user's forward raises
        return _VARIES
    return _DEPENDS if _agrees(again, expected, compute) else _VARIES


def _fails_on(least: int, most: int) -> str:
    """The reason of a model that raises an error for a batch of so many images."""
    sizes = " or ".join(str(n) for n in dict.fromkeys((max(1, least), most)))
    return f"it fails on a batch of {sizes} image{'s' * (most > 1)}"


def _in_parts(
    model: nn.Module, settings: Inference, images: Images, compute: Compute
) -> Tensor | None:
    """The output for a batch in two parts; None where the model raises an error.

    As where it views feature maps as contiguous, or expects more images.
    """
    number = batch_size(images)
    first = first_images(images, -(-number // 2))
    parts = [first] if number == 1 else [first, _rest(images, batch_size(first))]
    try:
        with inference(model, settings, compute) as run:
            return torch.cat([run(part) for part in parts])
    except Exception:  # whatever a user's forward raises
        return None


def _agrees(logits: Tensor, expected: Float[Tensor, "b k"], compute: Compute) -> bool:
    """Whether logits are the expected ones, but for rounding."""
    if logits.shape != expected.shape or logits.dtype != expected.dtype:
        return False
    rounding = torch.finfo(PRECISIONS[compute.precision]).eps
    reach = max(_TOLERANCE, 0.0 if compute.precision == "fp32" else _ROUNDINGS * rounding)
    finite = expected.isfinite()
    if not torch.equal(logits[~finite], expected[~finite]):
        return False
    near = (logits - expected)[finite].abs().max() <= reach * expected[finite].abs().max()
    return bool(near and torch.equal(logits.argmax(1), expected.argmax(1)))


def _rest(images: Images, start: int) -> Images:
    if isinstance(images, Tensor):
        return images[start:]
    number = batch_size(images)
    return {n: t[start:] if len(t) == number else t for n, t in images.items()}


def _gains_from_channels_last(model: nn.Module, compute: Compute) -> bool:
    """Whether kernels for this format are faster; on a GPU those of low precision are."""
    fast = compute.torch_device.type == "cpu" or compute.precision != "fp32"
    return fast and any(isinstance(module, nn.Conv2d) for module in model.modules())


@contextmanager
def _restored_state(model: nn.Module, compute: Compute) -> Iterator[None]:
    """Inside, passes may change buffers and draw random numbers; on exit both are restored."""
    device = compute.torch_device
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)


def _unsupported(model: nn.Module) -> str:
    """Why nothing of a model is changed; "" if something may be."""
    modules = list(model.modules())
    replicated = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    tensors = [*model.parameters(), *model.buffers()]
    checks = {
        "it is scripted": any(isinstance(m, torch.jit.ScriptModule) for m in modules),
        "it is compiled": any(map(_is_compiled, modules)),
        "it has hooks or a replaced forward": any(map(is_patched, modules)),
        "it is replicated": any(isinstance(m, replicated) for m in modules),
        "it is quantized": any(map(_is_quantized, modules)),
        "its tensors are not dense": not all(map(_is_dense, tensors)),
    }
    return next((reason for reason, applies in checks.items() if applies), "")


def _is_compiled(module: nn.Module) -> bool:
    dynamo = sys.modules.get("torch._dynamo")  # takes seconds to import
    optimized = dynamo is not None and isinstance(module, dynamo.OptimizedModule)
    return optimized or module._compiled_call_impl is not None


def _is_quantized(module: nn.Module) -> bool:
    quantized = sys.modules.get("torch.ao.nn.quantized.modules.utils")
    return quantized is not None and isinstance(module, quantized.WeightedQuantizedModule)


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor holds its numbers as they are, in memory."""
    plain = type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
    return plain and tensor.layout is torch.strided and not tensor.is_quantized
