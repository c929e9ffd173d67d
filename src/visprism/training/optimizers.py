"""Optimizers: which parameters each one updates, weight decay, learning rates and SAM."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from visprism.core.errors import InputError
from visprism.loss.objective import is_matrix
from visprism.loss.update_rules import sam_step
from visprism.models.sources import named_in_file
from visprism.training.recipe import Recipe

_BLOCK = re.compile(r"(?!stem|patch_embed)(.*?[._]\d+(?:\.(?:blocks\.)?\d+)?)\.")
# Learning rate of Muon over AdamW's; chosen from 1, 2, 4 and 8.
_MUON_LR = 4.0


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[tuple[Optimizer, float]]:
    """Optimizers of disjoint parameters, each with its factor of the learning rate.

    With ``"muon"``, Muon updates the matrices inside blocks: parameters with two axes and more
    than one dot in their name (``blocks.0.attn.qkv.weight``), except for the model's last one,
    so neither the head nor the patch embedding; AdamW updates the others. Names other than
    ``"adamw"``, ``"sgd"`` and ``"muon"`` are timm's, and ``FILE.py:NAME`` is a function of
    parameter groups and ``lr``.

    With `layer_decay` d, the learning rate of the parameters of layer k of 0 ... n + 1 is
    d^(n + 1 - k) times as large: 0 is what comes before the n blocks, and n + 1 what comes
    after them (`layers_of`), as in Bao et al. (2022), BEiT, and in timm.

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization; Jordan et al.
    (2024), Muon: an optimizer for hidden layers in neural networks.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise InputError("freeze must leave a parameter that trains, and leaves none")
    if recipe.optimizer != "muon":
        decays = recipe.layer_decay < 1
        layers = layers_of([name for name, _ in model.named_parameters()]) if decays else {}
        groups = parameter_groups(named, recipe, layers)
        return [(_single_optimizer(groups, recipe), 1.0)]
    two_axes = [(name, p) for name, p in named if p.ndim == 2]
    matrices = [p for name, p in two_axes[:-1] if name.count(".") > 1]
    inner = set(map(id, matrices))
    others = [(name, p) for name, p in named if id(p) not in inner]
    adamw = _adamw(parameter_groups(others, recipe), recipe)
    if not matrices:
        return [(adamw, 1.0)]
    muon = torch.optim.Muon(
        matrices, lr=recipe.lr, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return [(adamw, 1.0), (muon, _MUON_LR)]


def parameter_groups(
    named: Iterable[tuple[str, Tensor]], recipe: Recipe, layers: Mapping[str, int] | None = None
) -> list[dict]:
    """Parameter groups with and without weight decay, by layer if their rates differ.

    Kernels and matrices decay (`is_matrix`); with ``decay_params="all"`` all parameters do, as
    in the paper. The learning rate of a group is multiplied by its ``lr_factor``.
    """
    layers = layers or {}
    last = max(layers.values(), default=0)
    groups: dict[tuple[bool, float], list[Tensor]] = {}
    for name, parameter in named:
        decays = is_matrix(parameter) or recipe.decay_params == "all"
        factor = recipe.layer_decay ** (last - layers.get(name, last))
        groups.setdefault((decays, factor), []).append(parameter)
    return [
        {
            "params": group,
            "weight_decay": recipe.weight_decay if decays else 0.0,
            "lr_factor": factor,
        }
        for (decays, factor), group in sorted(groups.items(), key=lambda item: not item[0][0])
    ]


def layers_of(names: Sequence[str]) -> dict[str, int]:
    """The layer of each parameter: its block's number from 1, in the order of the names.

    A block has a number in its name (``blocks.3``, ``layer1.0``, ``stages.0.blocks.1``).
    What comes before the first block has 0, and what comes after the last one a number more.

    Example:
        >>> layers_of(["conv1.weight", "layer1.0.conv1.weight", "layer1.1.bias", "fc.bias"])
        {'conv1.weight': 0, 'layer1.0.conv1.weight': 1, 'layer1.1.bias': 2, 'fc.bias': 3}
    """
    blocks = {name: found[1] for name in names if (found := _BLOCK.match(name))}
    numbers = {block: n for n, block in enumerate(dict.fromkeys(blocks.values()), start=1)}
    if not numbers:
        raise InputError(
            "layer_decay must be 1 for a model whose blocks have no numbers in their names"
        )
    end = max(i for i, name in enumerate(names) if name in blocks)
    layers, now = {}, 0
    for i, name in enumerate(names):
        now = numbers[blocks[name]] if name in blocks else now
        layers[name] = now if i <= end else len(numbers) + 1
    return layers


def freeze(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Take the gradient of parameters away; the modules whose own parameters are all frozen.

    A name is a parameter's, a module's, or ``body``: all but the last module with a matrix.
    """
    every = [name for name, _ in model.named_parameters()]
    matrices = [name for name, p in model.named_parameters() if p.ndim > 1]
    head = matrices[-1].rpartition(".")[0] if matrices else ""
    for name in names:
        chosen = [n for n in every if n == name or n.startswith(f"{name}.")]
        if name == "body":
            chosen = [n for n in every if n.rpartition(".")[0] != head]
        if not chosen:
            parts = ", ".join(dict.fromkeys(n.partition(".")[0] for n in every))
            raise InputError(f"freeze must name a part of the model ({parts}), got {name!r}")
        for parameter in chosen:
            model.get_parameter(parameter).requires_grad_(False)
    own = ((m, list(m.parameters(recurse=False))) for m in model.modules())
    return [m for m, ps in own if names and ps and not any(p.requires_grad for p in ps)]


def _single_optimizer(groups: list[dict], recipe: Recipe) -> Optimizer:
    if recipe.optimizer == "adamw":
        return _adamw(groups, recipe)
    if ".py:" in recipe.optimizer:
        with named_in_file(recipe.optimizer) as make:
            optimizer = make(groups, lr=recipe.lr)
        if not isinstance(optimizer, Optimizer):
            raise InputError(
                f"{recipe.optimizer} must return a torch.optim.Optimizer, got "
                f"{type(optimizer).__name__}"
            )
        return optimizer
    if recipe.optimizer == "sgd":
        # The fused step of SGD does not support sharded tensors; AdamW's does.
        fused = not any(isinstance(p, DTensor) for group in groups for p in group["params"])
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


def _adamw(groups: list[dict], recipe: Recipe) -> Optimizer:
    # Fused: one pass over each parameter instead of about ten.
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, recipe.beta2), fused=True)


def learning_rate(step: int, steps_per_epoch: int, recipe: Recipe) -> float:
    """Learning rate of a step, counted from 0.

    In the w steps of the warm-up it is f + (lr - f) k / w with f = `first_lr`. In the k-th step
    after it, of K, it is

    - ``"cosine"``: l + (lr - l) (1 + cos(pi k / K)) / 2 with l = `last_lr`;
    - ``"cosine by epoch"``: the same, k rounded down to full epochs, as in the paper's code;
    - ``"step"``: lr times `lr_decay` for each milestone that is past;
    - ``"constant"``: lr.

    Source: Loshchilov and Hutter (2017), SGDR, eq. 5.
    """
    steps = recipe.epochs * steps_per_epoch
    warm = warmup_steps(steps_per_epoch, recipe)
    if step < warm:
        return recipe.first_lr + (recipe.lr - recipe.first_lr) * step / warm
    past = step - warm
    if recipe.schedule == "constant":
        return recipe.lr
    if recipe.schedule == "step":
        passed = sum(past >= round(m * steps_per_epoch) for m in recipe.milestones)
        return recipe.lr * recipe.lr_decay**passed
    if recipe.schedule == "cosine by epoch":
        past -= past % steps_per_epoch
    part = 0.5 * (1 + math.cos(math.pi * past / (steps - warm)))
    return recipe.last_lr + (recipe.lr - recipe.last_lr) * part


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
