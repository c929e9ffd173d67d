"""Optimisers: which parameters each one moves, and which of them decay."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from visprism.training.recipe import Recipe

# Muon's steps, scaled to the size of AdamW's, can be larger: it was tried at 1, 2, 4 and 8.
_MUON = 4.0


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[tuple[Optimizer, float]]:
    """Optimisers that share the model's parameters, each with its factor on the learning rate.

    AdamW moves everything, but under ``optimizer="muon"`` the matrices inside of blocks: those
    with two axes and more than one dot in their name (``blocks.0.attn.qkv.weight``), so neither
    the head nor what embeds the patches.

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization; Jordan et al.
    (2024), Muon: an optimizer for hidden layers in neural networks.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    inner = recipe.optimizer == "muon"
    matrices = [p for name, p in named if inner and p.ndim == 2 and name.count(".") > 1]
    rest = [p for _, p in named if not any(p is matrix for matrix in matrices)]
    adamw = torch.optim.AdamW(
        decay_groups(rest, recipe.weight_decay), lr=recipe.lr, betas=(0.9, recipe.beta2)
    )
    if not matrices:
        return [(adamw, 1.0)]
    muon = torch.optim.Muon(
        matrices,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return [(adamw, 1.0), (muon, _MUON)]


def decay_groups(parameters: Iterable[Tensor], weight_decay: float) -> list[dict]:
    """Parameters in two groups: kernels and matrices, which decay, and all others.

    A parameter with fewer than two axes of length over 1 (a bias, a norm, a class token) does
    not decay, and neither does a table of positions, which is a (1, N, C) parameter.
    """
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for parameter in parameters:
        is_table = parameter.ndim == 3 and len(parameter) == 1
        groups[parameter.squeeze().ndim >= 2 and not is_table].append(parameter)
    return [
        {"params": group, "weight_decay": weight_decay if decays else 0.0}
        for decays, group in groups.items()
        if group
    ]
