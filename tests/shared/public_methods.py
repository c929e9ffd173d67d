"""A valid call of every public method of studies, results, image sets and objectives."""

import inspect

import numpy as np
import torch
from torch import nn
from unusual_modules import CLASSES as NUM_CLASSES
from unusual_modules import SIDE, Network

import visprism as vp
from visprism.study import ModelStudy, Study

# Classes of which each public method with arguments is called.
CLASSES = (
    *(Study, ModelStudy, vp.Anatomy, vp.Compute, vp.Predictions, vp.Result),
    *(vp.results.Ablations, vp.results.Calibration, vp.results.HessianSpectrum),
    *(vp.results.Landscape, vp.results.PerImage, vp.results.Rings, vp.results.Robustness),
    vp.results.SpectralDensity,
)
EXEMPT = {"has_figure", "with_provenance"}  # options of a figure, fields of the provenance


def has_arguments(kind, name):
    """Whether an attribute of a class is a public method with arguments."""
    method = inspect.unwrap(getattr(kind, name))
    if name.startswith("_") or name in EXEMPT or not inspect.isroutine(method):
        return False
    return bool(set(inspect.signature(method).parameters) - {"self", "cls"})


def valid_method_calls(folder):
    """Bound methods with keyword arguments, by the names of class and method."""
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(8, 3, SIDE, SIDE, generator=generator)
    targets = torch.arange(8) % NUM_CLASSES
    batches = [(images[:4], targets[:4]), (images[4:], targets[4:])]
    model, other = Network().eval(), Network().eval()
    anatomy = vp.dissect(model, images[:2])
    study = vp.examine({"a": model, "b": other}, batches, analyses=["variance"], minutes=None)
    study.save(folder / "study")
    (variance,) = vp.observe(anatomy, batches, [vp.VarianceProbe()])
    variance.save(folder / "result.npz")
    predictions = vp.predict(model, batches)
    calibration = vp.calibration(predictions)
    robustness, per_image = vp.robustness(model, {("fog", 1): batches})
    spectrum = vp.hessian_spectrum(model, batches, k=1)
    surface = vp.landscape(model, batches, vp.random_planes(model, points=3))
    rings, _ = vp.rings(model, batches, radii=(0.5,), angles=4, pairs=1)
    ablations, *_ = vp.ablation(anatomy, batches, parts=("blocks",), draws=1)
    objective = vp.Objective(nn.Sequential(model).eval(), batches)
    density = vp.spectral_density(objective, runs=1, steps=3)
    data = vp.load_data(f"shapes?size={SIDE}", limit=20)
    theta = objective.theta
    calls = [
        (study.model, {"name": "a"}),
        (study.analysis, {"name": "variance"}),
        (study.between, {"first": "a", "second": "b"}),
        (study.save, {"folder": folder / "saved"}),
        (study.load, {"folder": folder / "study"}),
        (study.to_html, {"path": folder / "page.html"}),
        (study.write_files, {"folder": folder / "files", "formats": ()}),
        (study.model("a").results, {"analysis": "variance"}),
        (anatomy.nodes, {"block": anatomy.blocks[1]}),
        (vp.Run().named, {"model": "a", "data": "b"}),
        (vp.Compute().borrow, {"model": model}),
        (predictions.subset, {"positions": torch.arange(2)}),
        (data.subset, {"positions": np.arange(2)}),
        (variance.select, {"rows": np.arange(2)}),
        (variance.intervals_of, {"name": "variance"}),
        (variance.save, {"path": folder / "saved.npz"}),
        (variance.save_csv, {"path": folder / "saved.csv"}),
        (vp.Result.load, {"path": folder / "result.npz"}),
        (per_image.intervals_of, {"name": "value"}),
        (per_image.values_of, {"quantity": per_image.quantities[0]}),
        (ablations.experiment, {"name": "block"}),
        (calibration.of, {"metric": "nll"}),
        (calibration.interval, {"metric": "nll"}),
        (robustness.of, {"metric": "nll", "corruption": "fog", "severity": 1}),
        (robustness.corruption_errors, {"reference": {"fog": 0.5}}),
        (spectrum.first, {"batches": 1}),
        (spectrum.curves, {"points": 5}),
        (spectrum.concatenate, {"spectra": [spectrum]}),
        (surface.table, {"quantity": "nll", "pair": 0}),
        (rings.pair_means, {"batch_norm": "frozen", "radius": 0.5}),
        (density.moment, {"degree": 2}),
        (objective.at, {"theta": theta}),
        (objective.value, {"theta": theta}),
        (objective.gradient, {"theta": theta}),
        (objective.with_run, {"run": vp.Run()}),
        (objective.with_batches, {"batches": batches}),
    ]
    return {inspect.unwrap(method).__qualname__: (method, kwargs) for method, kwargs in calls}
