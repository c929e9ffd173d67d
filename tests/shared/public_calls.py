"""A valid call of every public function, and of every class of settings, on small modules."""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from unusual_modules import CLASSES, SIDE, Network, built

import visprism as vp

# Functions without a call here, and why.
EXEMPT = {
    "option": "declares a field of an analysis",
    "column": "declares a field of a result",
    "scalar": "declares a field of a result",
    "result_type": "a decorator of a class",
    "result_shape": "a decorator of a class",
    "figure": "a decorator of a function that draws",
    "cross_entropy": "PyTorch's errors; its transforms and compiler run it",
    "forward": "PyTorch's errors; its transforms and compiler run it",
    "assert_results_equal": "an assertion",
    "search_by_recipe": "hours; its arguments are those of train and search_replacements",
}
# Classes without a call here: what functions return, and what analyses and results declare.
EXEMPT_CLASSES = {
    *("Analysis", "FeatureAnalysis", "Needs", "Cost", "Section", "Measured", "Subject"),
    *("Entry", "Failure", "ModelStudy", "Plan", "Step", "Study", "LoadedModel", "Provenance"),
    *("Finished", "Planned", "Started", "Stopped", "InputError", "TimeBudgetError"),
    *("Anatomy", "Attention", "Block", "Layout", "Weights", "Answer", "ColumnInfo", "Finding"),
    *("Result", "BlockMatrix", "Curve", "Differences", "PerImage", "Pictures"),
    *("QuantilesPerBlock", "ScalarPerBlock", "SeriesPerBlock", "Surface"),
    *("Feed", "Probe", "Progress"),
}
SETTINGS = ("Attack", "Augmentation", "Compute", "DataOptions", "MSAConfig", "Run")


def snapshots(model, number):
    """State dictionaries near the weights of a model."""
    generator = torch.Generator().manual_seed(2)
    return [
        {
            name: value + 0.1 * torch.randn(value.shape, generator=generator)
            if value.is_floating_point()
            else value
            for name, value in model.state_dict().items()
        }
        for _ in range(number)
    ]


def valid_calls(folder):
    """Keyword arguments by the name of a function or class."""
    preprocessing = vp.Preprocessing((SIDE, SIDE))
    generator = torch.Generator().manual_seed(1)
    pixels = torch.rand(8, 3, SIDE, SIDE, generator=generator)
    mean, std = torch.tensor([preprocessing.mean, preprocessing.std])[..., None, None]
    images, targets = (pixels - mean) / std, torch.arange(8) % CLASSES
    batches = [(images[:4], targets[:4]), (images[4:], targets[4:])]
    model, attentive = Network().eval(), built("attention")
    anatomy, other = vp.dissect(model, images[:2]), vp.dissect(attentive, images[:2])
    objective = vp.Objective(model, batches)
    data = vp.load_data(f"shapes?size={SIDE}", limit=20)
    logits = torch.nn.functional.one_hot(targets, CLASSES) * 0.7
    logits += torch.randn(8, CLASSES, generator=generator)
    predictions = vp.Predictions(logits, targets)
    (plane,) = vp.random_planes(model, points=3)
    (variance,) = vp.observe(anatomy, batches, [vp.VarianceProbe()])
    recipe = vp.load_recipe("quick").replace(epochs=1, batch_size=4, limit=8)
    job = vp.Job("resnet20", "shapes?size=32", folder / "train", test_limit=4, logs=())
    file, cifar = folder / "model.safetensors", torch.zeros(2, 3, 32, 32)
    vp.save_checkpoint(model, file)
    cnn = vp.load_model("resnet20").model
    vit = vp.load_model("vit_pico_patch4_32.shapes").model
    block = anatomy.blocks[1]
    measured = {"model": model, "batches": batches}
    read = {"image_set": data, "preprocessing": preprocessing, "batch_size": 4}
    perturbed = measured | {"mean": preprocessing.mean, "std": preprocessing.std}
    analyses = [a.__name__ for a in vp.ANALYSES.values() if a is getattr(vp, a.__name__, None)]
    return {
        **{name: {} for name in (*SETTINGS, *analyses)},
        **{n: {} for n in ("CKAProbe", "FourierProbe", "FourierPlaneProbe", "processes")},
        **{n: {} for n in ("BranchTransferProbe", "TokenNormProbe")},
        **{n: {} for n in ("AttentionProbe", "BandEnergyProbe", "SingularValueProbe")},
        **{n: {} for n in ("TokenSimilarityProbe", "VarianceProbe")},
        "Preprocessing": {"size": (SIDE, SIDE)},
        "Batches": read | {"numbers": range(5)},
        "CurvatureMonitor": measured | {"optimizer": torch.optim.SGD(model.parameters(), 0.1)},
        "ImageSet": {
            "source": "memory",
            "split": "",
            "class_names": data.class_names,
            "targets": data.targets,
            "read": data.read,
        },
        "Plane": {
            "first": plane.first,
            "second": plane.second,
            "a": plane.a,
            "b": plane.b,
            "kind": "given",
        },
        "Job": {"model": "resnet20", "data": "shapes?size=32", "folder": folder / "job"},
        "Recipe": {"epochs": 1, "batch_size": 4, "lr": 0.1},
        "Objective": measured,
        "Predictions": {"logits": logits, "targets": targets},
        "ablate": {"anatomy": anatomy, "block": block},
        "ablation": {"anatomy": anatomy, "batches": batches},
        "adversarial": perturbed | {"attacks": (vp.Attack(steps=1),)},
        "attend": {"anatomy": other, "keep": lambda weights: weights},
        "attention_from_convolution": {"conv": nn.Conv2d(4, 4, 3, padding=1)},
        "attention_maps": {"anatomy": other, "images": images[:1]},
        "attentions": {"anatomy": other},
        "batches": read,
        "by_category": {
            "predictions": vp.Predictions(logits, targets % 2),
            "classes": [[0, 1], [2, 3, 4]],
        },
        "block_columns": {"blocks": list(anatomy)},
        "calibration": {"predictions": predictions},
        "check_probe": {"make": vp.VarianceProbe, "folder": folder},
        "check_unchanged": {"measure": lambda network: None, "model": model},  # noqa: ARG005
        "classes_of": {"categories": ["dog", "cat"], "num_classes": 2},
        "compare": {"anatomy_a": anatomy, "anatomy_b": anatomy, "batches": batches},
        "conv_blocks": {"model": cnn, "images": cifar},
        "corrupt": {"images": (255 * pixels[:2]).byte(), "corruption": "fog", "severity": 1},
        "costs": {"anatomy": anatomy},
        "curvature_at_origin": {"landscape": vp.landscape(model, batches, [plane])},
        "dissect": {"model": model, "images": images[:2]},
        "examine": {
            "models": {"a": model},
            "data": f"shapes?size={SIDE}",
            "analyses": ["variance"],
            "images": vp.DataOptions(limit=4, size=(SIDE, SIDE)),
            "minutes": None,
        },
        "fit": {"model": Network(), "train": vp.memory_feed(**read), "recipe": recipe},
        "fixed_augmentation": read | {"num_classes": CLASSES},
        "fourier_sensitivity": perturbed | {"max_frequency": 2},
        "frequency_noise": perturbed | {"frequencies": (0.3,)},
        "harmonize_model": {"model": cnn, "images": cifar, "head_dim": 16},
        "hessian_by_block": {"anatomy": anatomy, "batches": batches, "by": "kind", "probes": 3},
        "hessian_spectrum": measured | {"k": 1},
        "landscape": measured | {"planes": [plane]},
        "layers": {"anatomy": anatomy},
        "load_checkpoint": {"model": Network(), "path": file},
        "load_data": {"spec": f"shapes?size={SIDE}", "limit": 4},
        "load_model": {"text": "resnet20"},
        "load_recipe": {"text": "quick"},
        "loader_feed": read | {"workers": 0},
        "memory_feed": read,
        "mini_batch_sharpness": {"objective": objective},
        "observe": {"anatomy": anatomy, "batches": batches, "probes": [vp.VarianceProbe()]},
        "outcomes": {"predictions": predictions},
        "panel": {"results": {"a": variance}},
        "patch_filters": {"anatomy": other, "components": 2},
        "plane_along": {"model": model, "first": plane.first},
        "plane_through": {"model": model, "checkpoints": snapshots(model, 2), "points": 3},
        "plot": {"result": variance},
        "positional_similarity": {"anatomy": vp.dissect(vit, cifar)},
        "predict": measured,
        "principal_plane": {"model": model, "snapshots": snapshots(model, 4), "points": 3},
        "product_cost": {"objective": objective},
        "project": {"model": model, "plane": plane, "snapshots": snapshots(model, 2)},
        "random_planes": {"model": model, "points": 3},
        "read_metadata": {"path": file},
        "receptive_field": {"anatomy": anatomy, "batches": batches},
        "relative_scores": {"table": torch.randn(2, 7, 7, generator=generator)},
        "reliability": {"predictions": predictions},
        "replace": {"anatomy": anatomy, "block": block, "function": lambda x: x},
        "rings": measured | {"pairs": 1, "angles": 4, "radii": (0.1,)},
        "risk_coverage": {"predictions": predictions},
        "robustness": {"model": model, "corrupted": {("fog", 1): batches}},
        "rollout": {
            "anatomy": vp.dissect(vit, cifar),
            "images": torch.randn(1, 3, 32, 32, generator=generator),
        },
        "save_checkpoint": {"model": model, "path": folder / "other.safetensors"},
        "save_figure": {"figure": plt.figure(), "stem": folder / "figure", "formats": ("png",)},
        "search_replacements": {
            "model": cnn,
            "images": cifar,
            "train": lambda candidate, seed: 0.5,  # noqa: ARG005
            "head_dim": 16,
            "repeats": 2,
        },
        "shape_bias": {
            "predictions": predictions,
            "textures": np.arange(8) % 3,
            "categories": list("abcdefghij"),
        },
        "sharpness": {"objective": objective, "directions": 2},
        "smoothed_cross_entropy": {"smoothing": 0.1},
        "spectral_density": {"objective": objective, "runs": 1, "steps": 4},
        "stability": {
            "model": model,
            "sequences": {"brightness": [images[:, None].repeat(1, 3, 1, 1, 1)]},
        },
        "statistics": {"image_set": data},
        "stratified": {"image_set": data, "fraction": 0.5},
        "temperature": {"predictions": predictions},
        "top_eigenpairs": {"objective": objective, "k": 1},
        "top_eigenvalues": {"objective": objective, "k": 1},
        "trace": {"objective": objective, "probes": 3},
        "train": {"job": job, "recipe": recipe},
        "trajectory": {"model": model, "snapshots": snapshots(model, 4)},
        "watch": {"anatomy": anatomy},
    }
