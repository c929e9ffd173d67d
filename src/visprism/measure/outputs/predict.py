"""Prediction: one pass over labeled data, several with dropout, or several models."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Images, batch_size, forward, pixels
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather, rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.core.rng import stream
from visprism.measure.batches import Batch, labeled
from visprism.measure.outputs.predictions import Predictions

Progress = Callable[[Iterable], Iterable]
_Part = tuple[Tensor, Tensor]  # of a batch: logits (s, b, k) and targets (b,)


def predict(
    model: nn.Module | Sequence[nn.Module],
    batches: Iterable[Batch],
    *,
    samples: int = 1,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> Predictions:
    """The logits of a model for every image, in float32, with the targets.

    With `samples` above 1 every batch goes through the model so many times with its dropout at
    work and nothing else in training mode (Monte Carlo dropout). Several models are an
    ensemble. Either gives a stack of logits, whose probabilities the metrics average.

    Several processes take turns with the batches; the images stay in their order. Costs the
    forward passes and the memory of the logits.

    Args:
        model: in evaluation mode; or several of them, with the same classes.
        batches: each is (images, targets); images are a tensor (B, C, H, W) or a mapping.
        samples: stochastic passes of each model.
        seed: of dropout; the same however the work is shared.
        compute: device and precision of the forward pass.
        progress: wraps the batches to show how far it is, as ``tqdm.tqdm`` does.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if a model is in training mode, gives no logits or probabilities, there are
            no labeled images, or several passes are asked of a model without dropout.

    Source: Gal and Ghahramani (2016), Dropout as a Bayesian approximation; Lakshminarayanan et
    al. (2017), Simple and scalable predictive uncertainty estimation using deep ensembles.
    """
    models = [model] if isinstance(model, nn.Module) else list(model)
    _check(models, samples)
    parts: list[_Part] = []
    shape: tuple[int, ...] = ()
    shown = progress if progress and rank() == 0 else iter
    with torch.no_grad(), ExitStack() as borrowed:
        for each in models:
            borrowed.enter_context(compute.borrow(each))
        for turn, batch in enumerate(shown(share(batches))):
            images, targets = labeled(batch, compute)
            shape = tuple(pixels(images).shape[1:])
            number = rank() + turn * world_size()
            passes = _passes(models, images, samples, compute, (seed, number))
            parts.append((torch.stack(passes), targets))
    parts, shape = _together(parts, shape)
    facts = replace(
        provenance or Provenance(),
        images=sum(len(targets) for _, targets in parts),
        image_shape=shape,
        batch_size=max(len(targets) for _, targets in parts),
        precision=compute.precision,
        device=compute.device,
        processes=world_size(),
        seed=seed if samples > 1 else (provenance or Provenance()).seed,
    )
    stack = torch.cat([logits for logits, _ in parts], dim=1)
    targets = torch.cat([targets for _, targets in parts])
    return Predictions(stack if len(stack) > 1 else stack[0], targets, facts)


def _check(models: Sequence[nn.Module], samples: int) -> None:
    if not models:
        raise InputError("wanted a model, or several for an ensemble; got none")
    if samples < 1:
        raise InputError(f"samples is {samples}; wants at least 1 pass")
    for model in models:
        if any(module.training for module in model.modules()):
            raise InputError("the model is in training mode; call model.eval() first")
        if samples > 1 and not _dropouts(model):
            raise InputError(
                f"{type(model).__name__} has no dropout (nn.Dropout with p above 0), so that "
                f"{samples} passes would be the same; ask for samples=1"
            )


def _passes(
    models: Sequence[nn.Module],
    images: Images,
    samples: int,
    compute: Compute,
    use: tuple[int, int],
) -> list[Float[Tensor, "b k"]]:
    """Logits of each model and pass in turn."""
    found = []
    for which, model in enumerate(models):
        if samples == 1:
            found.append(_logits(model, images, compute))
            continue
        for sample in range(samples):
            with _stochastic(model, compute, (*use, which, sample)):
                found.append(_logits(model, images, compute))
    return found


def _logits(model: nn.Module, images: Images, compute: Compute) -> Float[Tensor, "b k"]:
    with compute.autocast():
        logits = forward(model, images)
    if logits.ndim != 2 or len(logits) != batch_size(images):
        raise InputError(
            f"{type(model).__name__} gives {tuple(logits.shape)} for {batch_size(images)} "
            "images; wants logits (images, classes), so give a classifier with its head"
        )
    return logits.float().cpu()


def _dropouts(model: nn.Module) -> list[nn.Module]:
    kind = nn.modules.dropout._DropoutNd
    return [m for m in model.modules() if isinstance(m, kind) and m.p > 0]


@contextmanager
def _stochastic(model: nn.Module, compute: Compute, use: tuple[int, ...]) -> Iterator[None]:
    """Inside, dropout is at work, with randomness of its own; nothing else is in training."""
    device = compute.torch_device
    seed, *rest = use
    generator = stream(seed, "dropout", *rest)
    dropouts = _dropouts(model)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.random.set_rng_state(generator.get_state())
        if device.type == "cuda":
            torch.cuda.manual_seed(generator.initial_seed())
        try:
            for module in dropouts:
                module.train()
            yield
        finally:
            for module in dropouts:
                module.eval()


def _together(
    parts: list[_Part], shape: tuple[int, ...]
) -> tuple[list[_Part], tuple[int, ...]]:
    """What all processes have, in the order of the batches.

    Raises:
        InputError: if there is nothing.
    """
    every = gather((parts, shape))
    longest = max(len(own) for own, _ in every)
    if not longest:
        raise InputError("no images were seen; is the data empty?")
    turns = [own[turn] for turn in range(longest) for own, _ in every if turn < len(own)]
    return turns, next(shape for own, shape in every if own)
