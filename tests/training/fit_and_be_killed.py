"""One run of training that is killed at given steps, and goes on each time."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
from small_runs import feed_of, images_of_noise, network
from torch import nn

from visprism import Augmentation, Recipe, Run, fit

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
    pixels, targets = images_of_noise(60)
    return fit(
        network(partial(nn.BatchNorm1d, 8), partial(nn.Dropout, 0.3), nn.ReLU),
        feed_of(RECIPE, pixels, targets),
        RECIPE,
        test=[(pixels / 255, targets)],
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
