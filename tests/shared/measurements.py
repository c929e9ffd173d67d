"""Every analysis as a measurement of a model on 16x16 images, with its cheapest options."""

import warnings
from dataclasses import replace

import torch

from visprism import ANALYSES, DataOptions, InputError, Preprocessing
from visprism.core.run import DEFAULT_RUN
from visprism.kit.inputs import images_of, subject_of

SIDE = 16
DATA = f"shapes?size={SIDE}&cues=conflict"  # of ten classes
OPTIONS = {
    "adversarial": {"steps": 1, "epsilons": (1 / 255,)},
    "attribution": {"blocks": 1, "steps": 2},
    "corruptions": {"corruptions": ("fog",), "severities": (1,)},
    "density": {"k": 1, "runs": 1, "steps": 4, "probes": 3},
    "distribution-shift": {"sets": (DATA,)},
    "fourier-sensitivity": {"max_frequency": 2},
    "frequency-noise": {"frequencies": (0.3,)},
    "hessian": {"k": 1, "mini_batch": 8},
    "hessian-by-block": {"by": "kind", "probes": 3},
    "landscape": {"points": 3, "ring_planes": 1, "angles": 4},
    "out-of-distribution": {"neighbors": 5, "ood_data": DATA},
    "quantization": {"bits": (4,)},
    "readout": {"neighbors": 5, "folds": 2},
    "sharpness": {"mini_batch": 8, "directions": 1},
    "stability": {"perturbations": ("brightness",)},
}
CHECKPOINTS = {"mode-connectivity": 2, "trajectory": 3}
PREPROCESSING = Preprocessing((SIDE, SIDE), mean=(0.5,) * 3, std=(0.25,) * 3)


def measurement(name, model, folder, run=DEFAULT_RUN, batch_size=16, limit=None):
    """`measure(model)` of an analysis; checkpoints of the model are written to the folder."""
    options = dict(OPTIONS.get(name, {}))
    if "mini_batch" in options:
        options["mini_batch"] = min(batch_size, options["mini_batch"])
    if name in CHECKPOINTS:
        options["checkpoints"] = _checkpoints(model, folder, CHECKPOINTS[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    analysis = ANALYSES[name](**options).at_step(1, [optimizer])
    number = limit or max(16, analysis.images.fewest)
    images = images_of(DATA, DataOptions(limit=number), side=SIDE)

    def measure(model):
        with warnings.catch_warnings(action="ignore"):  # of libraries, about the odd networks
            subject = subject_of(model, images, preprocessing=PREPROCESSING, run=run)
            output_batch_size = batch_size if batch_size < 16 else None  # as of DataOptions
            subject = replace(
                subject,
                limit=number,
                batch_size=batch_size,
                output_batch_size=output_batch_size,
            )
            reason = analysis.inapplicable(subject)
            if reason is not None:
                raise InputError(f"{name} does not apply: {reason}")
            return analysis.measure(subject, subject.named(run))

    return measure


def _checkpoints(model, folder, number):
    """Files of the model's weights, moved a little further in each."""
    files = []
    for step in range(number):
        tensors = {
            key: value + 0.01 * (step + 1)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for key, value in model.state_dict().items()
        }
        files.append(folder / f"{step}.pt")
        torch.save(tensors, files[-1])
    return tuple(files)
