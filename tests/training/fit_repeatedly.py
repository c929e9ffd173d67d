"""Several runs of training, one after the other, by processes that stay joined."""

import os
import sys
from pathlib import Path

import torch
from small_runs import feed_of, images_of_noise
from torch import nn

from visprism import InputError, Recipe, fit, processes
from visprism.core.processes import gather, rank, world_size
from visprism.training.checkpoint_files import write_checkpoint


class Spare(nn.Module):
    """A model of which the loss does not reach everything."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.LayerNorm(8), nn.ReLU())
        self.head, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


def trained(folder=None, *, sharded=False, spare=True):
    torch.set_num_threads(1)
    recipe = Recipe(
        epochs=1, batch_size=10, lr=0.05, optimizer="sgd", ema=0.5, grad_accum_steps=1
    )
    feed = feed_of(recipe, *images_of_noise(30))
    with torch.random.fork_rng():
        torch.manual_seed(rank())
        model = Spare()
    if not spare:
        model.spare = nn.Identity()
    fit(model, feed, recipe, sharded=sharded, folder=folder, checkpoint_minutes=0.0)
    assert world_size() == 1  # outside of `processes` each is alone
    return model.state_dict()


def refusal(folder):
    """What is said where only the first process sees the training checkpoint."""
    if os.environ["RANK"] == "0":
        folder.mkdir()
        write_checkpoint(folder, {"step": 7})
    try:
        trained(folder)
    except InputError as error:
        return str(error)


def everything(folder):
    """Runs of each kind, with a measurement and an error between them."""
    runs = [trained(), trained(sharded=True), trained(spare=False)]
    try:
        with processes():
            raise KeyError
    except KeyError:
        pass
    with processes():
        assert gather(rank()) == [0, 1]
    return [*runs, trained(), trained(sharded=True)], refusal(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    torch.save(everything(target.parent / "1"), target)
