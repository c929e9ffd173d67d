"""One run of training that is killed at given steps, and goes on each time."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from visprism import Augmentation, Preprocessing, Recipe, Run, fit
from visprism.images import Feed

RECIPE = Recipe(
    epochs=4,
    batch_size=9,
    lr=0.05,
    augmentation=Augmentation(padding=1, flip=0.5, mixup=1.0, cutmix=0.8, smoothing=0.1),
    warmup=1.0,
    clip=0.5,
    ema=0.5,
    sam_rho=0.05,
    snapshot_every=2,
)
STEPS = 4 * 7


def trained(folder, progress=None, checkpoint_minutes=0.0):
    """After every step a training checkpoint is written, as ``checkpoint_minutes`` is 0."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (60, 3, 4, 4), generator=generator, dtype=torch.uint8)
    plain = Preprocessing((4, 4), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    feed = Feed(
        images,
        torch.arange(60) % 2,
        num_classes=2,
        batch_size=9,
        augmentation=RECIPE.augmentation,
        preprocessing=plain,
        seed=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(48, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.3),
            nn.ReLU(),
            nn.Linear(8, 2),
        )
    test = [(images / 255, torch.arange(60) % 2)]
    return fit(
        model,
        feed,
        RECIPE,
        test=test,
        folder=folder,
        checkpoint_minutes=checkpoint_minutes,
        run=Run(progress=progress),
    )


def killed_at(moment, folder, checkpoint_minutes):
    """Train in a process of its own, killed in the step after `moment`; whether it was."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:

        def reported(steps, _label):
            for step in steps:
                os.write(writing, f"{step}\n".encode())
                yield step

        trained(folder, reported, checkpoint_minutes)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as steps:
        for line in steps:
            if int(line) >= moment:
                os.kill(process, signal.SIGKILL)
                break
        _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


if __name__ == "__main__":
    # Kept small: one interpreter, from which every run is forked as it was at the beginning.
    folder, checkpoint_minutes, *moments = sys.argv[1:]
    killed = [
        killed_at(int(m), Path(folder), float(checkpoint_minutes)) for m in (*moments, STEPS)
    ]
    if killed[-1]:
        sys.exit("the last run was killed")
    sys.stdout.write(str(sum(killed)))
