"""Prediction: one pass over labeled data, several with dropout, or several models."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy.trace.forward import Images, batch_size, pixels
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.memory import reused_memory
from visprism.core.processes import rank, world_size
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.passes.batches import Batch, check_evaluation_mode, in_order, labeled
from visprism.passes.forward_passes import Forward, inference
from visprism.passes.predictions import Predictions

_DROPOUT = nn.modules.dropout._DropoutNd
# Modules of stochastic depth drop residual branches, not units.
_STOCHASTIC_DEPTH = ("DropPath", "StochasticDepth")


def dropout_modules(model: nn.Module) -> list[nn.Module]:
    """The modules whose training mode turns dropout on.

    These are dropout modules, and modules that own a dropout probability and ask for their own
    mode, as fused attention and functional dropout do: those with a dropout module as a child,
    or with a number whose name contains "drop". Modules that contain a normalization with
    running statistics are left out.
    """
    return [module for module in model.modules() if _has_dropout(module)]


@contextmanager
def stochastic(model: nn.Module, compute: Compute, seed: int, *use: object) -> Iterator[None]:
    """Inside, dropout is active, with a random stream; nothing else is in training mode."""
    device = compute.torch_device
    generator = stream(seed, "dropout", *use)
    modules = dropout_modules(model)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.random.set_rng_state(generator.get_state())
        if device.type == "cuda":
            with torch.cuda.device(device):  # it seeds the current one
                torch.cuda.manual_seed(generator.initial_seed())
        try:
            for module in modules:
                module.training = True  # its children keep their mode
            yield
        finally:
            for module in modules:
                module.training = False


def _has_dropout(module: nn.Module) -> bool:
    if isinstance(module, _DROPOUT):
        return module.p > 0
    if type(module).__name__ in _STOCHASTIC_DEPTH or _has_running_statistics(module):
        return False
    children = any(isinstance(child, _DROPOUT) and child.p > 0 for child in module.children())
    return children or any(
        isinstance(value, float) and 0 < value < 1
        for name, value in vars(module).items()
        if "drop" in name and "path" not in name and "depth" not in name
    )


def _has_running_statistics(module: nn.Module) -> bool:
    return any("running_" in name for name, _ in module.named_buffers())


def predict(
    model: nn.Module | Sequence[nn.Module],
    batches: Iterable[Batch],
    *,
    samples: int = 1,
    device: str | None = None,
    run: Run = DEFAULT_RUN,
) -> Predictions:
    """The logits of a model for every image, in float32, with the targets.

    With `samples` above 1 every batch passes through the model that many times with dropout
    active and nothing else in training mode (Monte Carlo dropout). Several models are an
    ensemble. Both give a stack of logits, whose probabilities the metrics average.

    Several processes share the batches; the images stay in their order. Costs the forward
    passes and the memory of the logits.

    Args:
        model: in evaluation mode; or several of them, with the same classes.
        batches: each is (images, targets); images are a tensor (B, C, H, W) or a mapping.
        samples: number of stochastic passes of each model.
        device: as torch names it; by default the run's, or where the model lies.
        run: device, precision, progress, and the seed of dropout, which gives the same passes
            on any number of processes.

    Source: Gal and Ghahramani (2016), Dropout as a Bayesian approximation; Lakshminarayanan et
    al. (2017), Simple and scalable predictive uncertainty estimation using deep ensembles.
    """
    models = [model] if isinstance(model, nn.Module) else list(model)
    _check(models, samples)
    run = run.at(device).on(models[0])
    parts: list[tuple[Tensor, Tensor, torch.Size]] = []  # logits (s, b, k), targets, shape
    with reused_memory(), ExitStack() as stack:
        forwards = [
            stack.enter_context(inference(member, run.compute, dropout=samples > 1))
            for member in models
        ]
        for turn, batch in enumerate(run.track_share(batches, "predictions")):
            images, targets = labeled(batch, run.compute)
            number = rank() + turn * world_size()
            passes = _passes(models, forwards, images, samples, run, number)
            parts.append((torch.stack(passes), targets, pixels(images).shape[1:]))
            if samples > 1 and not turn:
                _check_stochastic(models, parts[0][0], samples)
    logits, targets, (shape, *_) = zip(*in_order(parts), strict=True)
    provenance = run.measured(
        images=sum(map(len, targets)), batch_size=max(map(len, targets)), image_shape=shape
    )
    stack = torch.cat(logits, dim=1)
    return Predictions(stack if len(stack) > 1 else stack[0], torch.cat(targets), provenance)


def _check(models: Sequence[nn.Module], samples: int) -> None:
    if not models:
        raise InputError("model must be a module or a sequence of at least one, got none")
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")
    for model in models:
        check_evaluation_mode(model)
        if samples > 1 and not dropout_modules(model):
            raise InputError(
                f"samples must be 1 for {type(model).__name__}, which has no dropout with a "
                f"probability above 0, got {samples}"
            )


def _passes(
    models: Sequence[nn.Module],
    forwards: Sequence[Forward],
    images: Images,
    samples: int,
    run: Run,
    batch: int,
) -> list[Float[Tensor, "b k"]]:
    """Logits of each model and pass in turn."""
    passes = []
    for which, (model, forward) in enumerate(zip(models, forwards, strict=True)):
        if samples == 1:
            passes.append(_logits(model, forward, images))
            continue
        for sample in range(samples):
            with stochastic(model, run.compute, run.seed, batch, which, sample):
                passes.append(_logits(model, forward, images))
    return passes


def _check_stochastic(
    models: Sequence[nn.Module], logits: Float[Tensor, "s b k"], samples: int
) -> None:
    """Refuse models that have dropout but do not apply it in any pass."""
    for model, passes in zip(models, logits.split(samples), strict=True):
        if torch.equal(passes, passes[:1].expand_as(passes)):
            raise InputError(
                f"samples must be 1 for {type(model).__name__}, all {samples} passes of which "
                "are equal: its dropout is not active when its modules are in training mode"
            )


def _logits(model: nn.Module, forward: Forward, images: Images) -> Float[Tensor, "b k"]:
    logits = forward(images)
    if logits.ndim != 2 or len(logits) != batch_size(images):
        raise InputError(
            f"output of the model must be logits (images, classes), got {tuple(logits.shape)} "
            f"of {type(model).__name__} for {batch_size(images)} images. Use a classifier with "
            "its head."
        )
    return logits.float().cpu()
