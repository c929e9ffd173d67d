"""Runs of training by two processes that share the weights out; prints what each has."""

import os
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree

import torch
from small_runs import feed_of, images_of_noise
from torch import nn
from torch.distributed.tensor import DTensor

from visprism import Augmentation, Feed, InputError, Recipe, fit, processes
from visprism.core.devices import CPU
from visprism.core.processes import gather, rank, world_size
from visprism.training.checkpointer import write_checkpoint
from visprism.training.engine import Engine


class Spare(nn.ReLU):
    """A layer with parameters that the loss does not reach."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


WITHOUT_SNAPSHOTS = Recipe(
    epochs=2,
    batch_size=9,  # unequal parts: 5 and 4 images, and 2 and 1 of the last batch
    lr=0.05,
    augmentation=Augmentation(padding=1, flip=0.5, mixup=1.0, cutmix=0.8, smoothing=0.1),
    clip=0.5,
    ema=0.5,
    grad_accum_steps=2,
    sam_rho=0.05,
    adaptive=True,
    decay_params="all",
)
SGD = replace(
    WITHOUT_SNAPSHOTS, optimizer="sgd", sam_rho=0.0, adaptive=False, decay_params="matrices"
)
RECIPE = replace(WITHOUT_SNAPSHOTS, snapshot_every=1)
OTHERS = {
    "sgd": (replace(SGD, ema=0.0), ()),
    # By SGD, as Adam takes steps of one size along gradients that are nothing but rounding.
    "bf16": (replace(SGD, precision="bf16", channels_last=True), ()),
    "spare": (replace(SGD, grad_accum_steps=1), (Spare,)),
    "norm": (
        replace(SGD, batch_size=10, grad_accum_steps=1),
        (partial(nn.BatchNorm1d, 10), partial(nn.Dropout, 0.3)),
    ),
}


class StopError(Exception):
    """As good as a kill, without a process."""


class StoppingFeed(Feed):
    """Raises in every process instead of the batch of a step of the first epoch."""

    at = -1

    def epoch(self, number, *, start=0, part=(0, 1)):
        for step, batch in enumerate(super().epoch(number, start=start, part=part), start):
            if step + number * self.steps == self.at:
                raise StopError
            yield batch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(10), nn.Linear(10, 10)
        self.scale = nn.Parameter(torch.ones(1))  # the second process has nothing of it

    def forward(self, x):
        return x + self.scale * torch.relu(self.linear(self.norm(x)))


def made(*inner):
    """Every process begins with weights of its own; those of the first count, as with DDP."""
    with torch.random.fork_rng():
        torch.manual_seed(rank())
        model = nn.Sequential(
            nn.Conv2d(3, 3, 1, bias=False),
            nn.Flatten(),
            nn.Linear(48, 10),
            *(make() for make in inner),
            nn.Sequential(*(Block() for _ in range(3))),
            nn.Linear(10, 2),
        )
    model[0].weight.requires_grad = False  # a frozen one
    return model.eval()


def trained(recipe, folder=None, *, inner=(), sharded=False, at=-1):
    """The model and history of a run; None of one that was stopped."""
    torch.set_num_threads(1)
    images, targets = images_of_noise(30)
    feed = feed_of(recipe, images, targets, kind=StoppingFeed)
    object.__setattr__(feed, "at", at)
    test = list(zip((images / 255).split(11), targets.split(11), strict=True))  # 3 batches
    with processes(CPU):
        model = made(*inner)
        try:
            options = {"test": test, "folder": folder, "checkpoint_minutes": 0.0}
            history = fit(model, feed, recipe, sharded=sharded, **options)
        except StopError:
            return None
    assert not model.training
    return model.state_dict(), {n: getattr(history, n) for n in ("train_loss", "test_nll")}


def shares():
    """Numbers that this process has of parameters, of their average and of moments."""
    engine = Engine(made(), RECIPE, CPU, None, sharded=True)
    with engine.training():
        engine.update(0, 0.05, (torch.rand(4, 3, 4, 4), torch.full((4, 2), 0.5)), 8)
    tensors = {
        "parameters": list(engine.model.parameters()),
        "average": list(engine.average.parameters()),
        "moments": [
            t
            for optimizer in engine.optimizers
            for values in optimizer.state.values()
            for t in values.values()
            if t.ndim
        ],
        "gradients": [p.grad for p in engine.model.parameters() if p.grad is not None],
    }
    assert all(isinstance(t, DTensor) for group in tensors.values() for t in group)
    return {
        name: (sum(t.to_local().numel() for t in group), sum(t.numel() for t in group))
        for name, group in tensors.items()
    }


def everything(folder):
    """All runs of two processes; in `half` is a run of one process that was stopped."""
    with processes(CPU):
        runs = {"shares": shares(), "whole": trained(RECIPE, folder / "whole", sharded=True)}
        trained(RECIPE, folder / "stopped", sharded=True, at=5)
        if rank() == 0:
            copytree(folder / "stopped", folder / "alone")
        runs["resumed"] = trained(RECIPE, folder / "stopped", sharded=True)
        runs["from one"] = trained(RECIPE, folder / "half", sharded=True)
        for name, (recipe, inner) in OTHERS.items():
            runs[name] = trained(recipe, inner=inner, sharded=True)
        recipe, inner = OTHERS["norm"]
        runs["norm, not sharded"] = trained(recipe, inner=inner)
        runs["whole, not sharded"] = trained(WITHOUT_SNAPSHOTS)
    with suppress(KeyError), processes(CPU):
        raise KeyError
    with processes(CPU):
        assert gather(rank()) == [0, 1]  # after an error too
    assert world_size() == 1  # outside of `processes` each is alone
    recipe, inner = OTHERS["spare"]
    runs["spare, not sharded"] = trained(recipe, inner=inner)
    return runs | {"refusal": refusal(folder / os.environ["RANK"])}


def refusal(folder):
    """What is said where only the first process sees the training checkpoint."""
    if os.environ["RANK"] == "0":
        folder.mkdir()
        write_checkpoint(folder, {"step": 7})
    try:
        trained(RECIPE, folder)
    except InputError as error:
        return str(error)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    torch.save(everything(folder), folder / "other.pt")
