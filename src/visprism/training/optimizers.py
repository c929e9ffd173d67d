"""Optimizers: which parameters each one updates, weight decay, learning rates and SAM."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from visprism.core.errors import InputError
from visprism.loss.objective import is_matrix
from visprism.loss.update_rules import sam_step
from visprism.training.recipe import Recipe

# Learning rate of Muon over AdamW's; chosen from 1, 2, 4 and 8.
_MUON_LR = 4.0


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[tuple[Optimizer, float]]:
    """Optimizers of disjoint parameters, each with its factor of the learning rate.

    With ``"muon"``, Muon updates the matrices inside blocks: parameters with two axes and more
    than one dot in their name (``blocks.0.attn.qkv.weight``), except for the model's last one,
    so neither the head nor the patch embedding; AdamW updates the others. Names other than
    ``"adamw"``, ``"sgd"`` and ``"muon"`` are timm's.

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization; Jordan et al.
    (2024), Muon: an optimizer for hidden layers in neural networks.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if recipe.optimizer != "muon":
        return [(_single_optimizer([p for _, p in named], recipe), 1.0)]
    two_axes = [(name, p) for name, p in named if p.ndim == 2]
    matrices = [p for name, p in two_axes[:-1] if name.count(".") > 1]
    inner = set(map(id, matrices))
    adamw = _adamw([p for _, p in named if id(p) not in inner], recipe)
    if not matrices:
        return [(adamw, 1.0)]
    muon = torch.optim.Muon(
        matrices, lr=recipe.lr, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return [(adamw, 1.0), (muon, _MUON_LR)]


def decay_groups(parameters: Iterable[Tensor], recipe: Recipe) -> list[dict]:
    """Parameter groups with and without weight decay.

    Kernels and matrices decay (`is_matrix`); with ``decay_params="all"`` all parameters do, as
    in the paper.
    """
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for parameter in parameters:
        groups[is_matrix(parameter) or recipe.decay_params == "all"].append(parameter)
    return [
        {"params": group, "weight_decay": recipe.weight_decay if decays else 0.0}
        for decays, group in groups.items()
        if group
    ]


def _single_optimizer(parameters: list[Tensor], recipe: Recipe) -> Optimizer:
    if recipe.optimizer == "adamw":
        return _adamw(parameters, recipe)
    groups = decay_groups(parameters, recipe)
    if recipe.optimizer == "sgd":
        # The fused step of SGD does not support sharded tensors; AdamW's does.
        fused = not any(isinstance(parameter, DTensor) for parameter in parameters)
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, fused=fused)
    import timm.optim

    try:
        return timm.optim.create_optimizer_v2(
            groups, opt=recipe.optimizer, lr=recipe.lr, momentum=recipe.momentum
        )
    except (AssertionError, ImportError) as error:  # of packages for some GPUs
        raise InputError(
            f"optimizer {recipe.optimizer!r} cannot be used on this machine ({error}). Choose "
            "another, such as adamw."
        ) from error


def _adamw(parameters: list[Tensor], recipe: Recipe) -> Optimizer:
    groups = decay_groups(parameters, recipe)
    # Fused: one pass over each parameter instead of about ten.
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, recipe.beta2), fused=True)


def learning_rate(step: int, steps_per_epoch: int, recipe: Recipe) -> float:
    """Learning rate of a step, counted from 0.

    In the w steps of the warm-up it is lr k / w, so that the first step has 0. In the k-th step
    after it, of K, it is

    - ``"cosine"``: lr (1 + cos(pi k / K)) / 2;
    - ``"cosine by epoch"``: the same, k rounded down to full epochs, as in the paper's code;
    - ``"step"``: lr times `lr_decay` for each milestone that is past;
    - ``"constant"``: lr.

    Source: Loshchilov and Hutter (2017), SGDR, eq. 5.
    """
    steps = recipe.epochs * steps_per_epoch
    warm = warmup_steps(steps_per_epoch, recipe)
    if step < warm:
        return recipe.lr * step / warm
    past = step - warm
    if recipe.schedule == "constant":
        return recipe.lr
    if recipe.schedule == "step":
        passed = sum(past >= round(m * steps_per_epoch) for m in recipe.milestones)
        return recipe.lr * recipe.lr_decay**passed
    if recipe.schedule == "cosine by epoch":
        past -= past % steps_per_epoch
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * past / (steps - warm)))


def warmup_steps(steps_per_epoch: int, recipe: Recipe) -> int:
    """Number of steps of the warm-up."""
    return round(recipe.warmup * steps_per_epoch)


@contextmanager
def sam_displaced(model: nn.Module, rho: float, *, adaptive: bool) -> Iterator[None]:
    """Within the context the weights are displaced by `sam_step`; then restored, bit for bit.

    The running statistics of BatchNorm are not updated within the context.
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    before = [p.detach().clone() for p in parameters]
    gradients = [p.grad for p in parameters if p.grad is not None]
    steps = sam_step(before, gradients, rho, adaptive=adaptive)
    norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    try:
        with torch.no_grad():
            for parameter, step in zip(parameters, steps, strict=True):
                parameter.add_(step)
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        with torch.no_grad():
            for parameter, weights in zip(parameters, before, strict=True):
                parameter.copy_(weights)
