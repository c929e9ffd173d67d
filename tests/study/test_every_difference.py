"""Every number with an interval has a paired difference between two models, or a reason.

The table of a study matches both by the name of the quantity (src/visprism/report/rows.py).
"""

import numpy as np
import pytest
import torch

from visprism import examine, load_model

# Numbers without a paired difference, by the beginning of their names.
REASONS = {
    "largest accuracy drop": "a selected maximum, of other blocks in each model",
    "block structure": "over groups of batches, and a model of one stage has none",
    "shape bias": "fewer than 5 decisions for the texture in one model",
    "Loss increase": "distances of models with different parameters are not comparable",
    "Trace of the Hessian": "over random vectors, which are not pairs",
    "temperature": "a parameter that is fitted to each model on its own",
    "lowest accuracy of a class": "a selected minimum of each model",
    "debiased ECE after temperature scaling": "of each model at its own temperature",
}
OPTIONS = {
    "landscape": {"points": 3, "angles": 4},
    "sharpness": {"mini_batch": 4, "directions": 3},
    "adversarial": {"steps": 1, "epsilons": (1 / 255,)},
    "corruptions": {"corruptions": ("fog",), "severities": (3,)},
    "ablation": {"parts": ("blocks",)},
    "frequency-noise": {"frequencies": (0.3, 0.7)},
}


def studied():
    models = {name: load_model("vit_pico_patch4_32.shapes") for name in "ab"}
    for network in models.values():
        del network.model.blocks[1:]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in models["b"].model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.3 * parameter.std() * noise if parameter.numel() > 1 else 0)
    return examine(
        models,
        "shapes?cues=conflict",
        analyses=[*OPTIONS, "calibration", "shape-bias"],
        options=OPTIONS,
        limit=40,
        minutes=None,
        on_error="raise",
    )


def test_every_number_with_an_interval_has_a_paired_difference_of_the_two_beside_it():
    study = studied()
    rows = [r for r in study.table() if all(np.isfinite(a.low) for a in r.cells.values())]
    assert len(rows) > 15
    without = [r.quantity for r in rows if r.difference is None and len(r.cells) == 2]
    unexplained = [q for q in without if not q.startswith(tuple(REASONS))]
    assert not unexplained
    for row in study.table():
        if row.difference is not None and row.difference.form == "difference":
            expected = row.cells["b"].value - row.cells["a"].value
            assert row.difference.value == pytest.approx(expected, abs=1e-6), row.quantity
