"""A small study, run by a process that is killed."""

import torch

from visprism import examine, load_model

ANALYSES = ["variance", "cka", "calibration", "sharpness"]
NETWORK = "vit_pico_patch4_32?img_size=8&depth=1"
MODELS = {name: load_model(NETWORK, seed=seed) for seed, name in enumerate("ab")}


def study_in(folder):
    """The study of two networks on 24 images, without a limit of time."""
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(24, 3, 8, 8, generator=generator)
    targets = torch.randint(5, (24,), generator=generator)
    return examine(
        MODELS,
        list(zip(images.split(8), targets.split(8), strict=True)),
        analyses=ANALYSES,
        minutes=None,
        out=folder,
    )


def begin(begun, folder):
    torch.set_num_threads(1)
    begun.set()
    study_in(folder)
