"""Optimisers: which parameters each one moves, and which of them decay."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.training.names import OURS
from visprism.training.recipe import Recipe

# Muon's steps, scaled to the size of AdamW's, can be larger: it was tried at 1, 2, 4 and 8.
_MUON = 4.0


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[tuple[Optimizer, float]]:
    """Optimisers that share the model's parameters, each with its factor on the learning rate.

    Under ``"muon"``, Muon moves the matrices inside of blocks: those with two axes and more
    than one dot in their name (``blocks.0.attn.qkv.weight``), so neither the head nor what
    embeds the patches; AdamW moves the rest. Any name but our own three is timm's.

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization; Jordan et al.
    (2024), Muon: an optimizer for hidden layers in neural networks.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if recipe.optimizer != "muon":
        return [(_alone([p for _, p in named], recipe), 1.0)]
    matrices = [p for name, p in named if p.ndim == 2 and name.count(".") > 1]
    inner = set(map(id, matrices))
    adamw = _adamw([p for _, p in named if id(p) not in inner], recipe)
    if not matrices:
        return [(adamw, 1.0)]
    muon = torch.optim.Muon(
        matrices,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return [(adamw, 1.0), (muon, _MUON)]


def check_optimizer(recipe: Recipe, compute: Compute) -> None:
    """An optimiser of timm's makes a step on this machine, tried on a small map.

    Raises:
        InputError: if not, as for a package or a GPU that is not here.
    """
    if recipe.optimizer in OURS:
        return
    tried = nn.Linear(2, 2).to(compute.torch_device)
    for parameter in tried.parameters():
        parameter.grad = torch.zeros_like(parameter)
    try:
        for optimizer, _ in make_optimizers(tried, recipe):
            optimizer.step()
    except Exception as error:  # whatever it is that packages raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(
            f"optimizer {recipe.optimizer!r} cannot be used here ({reason.rstrip('.')}); "
            "choose another, such as adamw"
        ) from error


def decay_groups(parameters: Iterable[Tensor], recipe: Recipe) -> list[dict]:
    """Parameters in two groups: those that decay, kernels and matrices, and all others.

    A parameter with fewer than two axes of length over 1 (a bias, a norm, a class token) does
    not decay, and neither does a table of positions, which is a (1, N, C) parameter; under
    ``decay="all"`` all do, as in the paper.
    """
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for parameter in parameters:
        is_table = parameter.ndim == 3 and len(parameter) == 1
        matrix = sum(length > 1 for length in parameter.shape) >= 2 and not is_table
        groups[matrix or recipe.decay == "all"].append(parameter)
    return [
        {"params": group, "weight_decay": recipe.weight_decay if decays else 0.0}
        for decays, group in groups.items()
        if group
    ]


def _alone(parameters: list[Tensor], recipe: Recipe) -> Optimizer:
    if recipe.optimizer == "adamw":
        return _adamw(parameters, recipe)
    groups = decay_groups(parameters, recipe)
    if recipe.optimizer == "sgd":
        # Torch's fused step of SGD does not know sharded tensors; that of AdamW does.
        fused = not any(isinstance(parameter, DTensor) for parameter in parameters)
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, fused=fused)
    import timm.optim

    return timm.optim.create_optimizer_v2(
        groups, opt=recipe.optimizer, lr=recipe.lr, momentum=recipe.momentum
    )


def _adamw(parameters: list[Tensor], recipe: Recipe) -> Optimizer:
    # Fused: one pass over each parameter, where a step took some ten.
    groups = decay_groups(parameters, recipe)
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, recipe.beta2), fused=True)
