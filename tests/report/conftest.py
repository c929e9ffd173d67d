"""Two small networks, examined."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from visprism.anatomy import costs, dissect
from visprism.core.provenance import Provenance
from visprism.harmonize import ReplacementSearch
from visprism.measure.features import (
    AttentionStatistics,
    CKAProbe,
    FourierProbe,
    SingularValueProbe,
    VarianceProbe,
    block_structure,
    effective_ranks,
    high_frequency,
    observe,
    receptive_field,
    tally,
)
from visprism.measure.loss import Objective, sharpness
from visprism.measure.loss.curvature import (
    hessian_curves,
    hessian_spectrum,
    hessian_tally,
    spectral_density,
    top_eigenvalues,
    trace,
)
from visprism.measure.loss.landscape import landscape, random_planes, trajectory
from visprism.measure.outputs import (
    CLEAN,
    Attack,
    ablation,
    adversarial,
    corruption_errors,
    fourier_sensitivity,
    frequency_noise,
    joint_ablations,
    outcomes,
    predict,
    reliability,
    risk_coverage,
    robustness,
    shape_bias,
    stability,
    temperature,
    uncertainty,
)
from visprism.measure.weights import patch_filters, positional_similarity
from visprism.report import Examination


class Residual(nn.Module):
    """A convolution on a residual stream."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()


class Stem(nn.Module):
    """A convolution, and a table of positions."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.positions = nn.Parameter(torch.randn(1, width, 16, 16))

    def forward(self, x):
        return self.conv(x) + self.positions


class Network(nn.Sequential):
    """Stem, `depth` residual blocks, a smaller grid, as many again, head."""

    def __init__(self, depth):
        super().__init__(
            Stem(8),
            *(Residual(8) for _ in range(depth)),
            nn.Conv2d(8, 12, 2, stride=2),
            *(Residual(12) for _ in range(depth)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, 5),
        )


def attention_statistics(about):
    quantities = ("distance", "entropy", "nmi", "prefix_share", "redundancy")
    return AttentionStatistics(
        block=np.array(["1", "1"]),
        stage=np.array([1, 1]),
        depth=np.array([0.2, 0.2]),
        head=np.array([1, 2]),
        keys=np.array([16, 16]),
        **dict.fromkeys(quantities, np.array([0.25, 0.5])),
        **dict.fromkeys([f"{name}_error" for name in quantities], np.array([0.1, 0.1])),
        provenance=about,
    )


def of_curvature(network, batches, about):
    spectrum = hessian_spectrum(network, batches, k=2, weight_decay=0.1, provenance=about)
    objective = Objective(network, batches)
    return (
        hessian_curves(spectrum),
        hessian_tally(spectrum, resamples=5),
        spectrum,
        top_eigenvalues(objective, k=2, provenance=about),
        spectral_density(objective, runs=2, steps=5, provenance=about),
        trace(objective, probes=3, provenance=about),
    )


def of_outputs(network, images, about):
    targets = network(images).argmax(1)
    targets[::2] = (targets[::2] + 1) % 5  # half of them wrong
    given = [(images, targets)]
    predictions = predict(network, given, provenance=about)
    seen = outcomes(predictions)
    corrupted = robustness(
        network, {CLEAN: given, ("fog", 1): given}, resamples=5, provenance=about
    )
    frames = images[:, None].repeat(1, 3, 1, 1, 1)
    return (
        uncertainty(seen, resamples=5),
        reliability(seen),
        risk_coverage(seen),
        temperature(predictions)[0],
        corrupted,
        corruption_errors(corrupted),
        stability(network, {"tilt": [frames]}, resamples=5, provenance=about),
    )


def of_trials(network, anatomy, images, about):
    targets = torch.arange(8) % 5
    given = [(images, targets)]
    scale = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "provenance": about}
    categories = ["disk", "cross", "star", "arrow", "ring"]
    predictions = predict(network, given, provenance=about)
    lesions = ablation(anatomy, given, together=[2], draws=2, provenance=about)
    return (
        lesions,
        joint_ablations(lesions),
        frequency_noise(network, given, frequencies=(0.2, 0.8), **scale),
        fourier_sensitivity(network, given, reach=1, **scale),
        adversarial(network, given, [Attack("fgsm", 0.1)], **scale),
        shape_bias(predictions, network(images).argmax(1).numpy(), categories),
    )


def searched(about):
    return ReplacementSearch(
        candidate=np.array([0, 0, 1, 1]),
        msas=np.array([0, 0, 1, 1]),
        added=np.array(["", "", "layer3.2", "layer3.2"]),
        placement=np.array(["", "", "layer3.2", "layer3.2"]),
        stage=np.array([0, 0, 3, 3]),
        parameters=np.array([20, 20, 30, 30]),
        seed=np.array([0, 1, 0, 1]),
        accuracy=np.array([0.5, 0.6, 0.7, 0.7]),
        kept=np.ones(4, dtype=bool),
        provenance=about,
    )


def examined(name, depth):
    with torch.random.fork_rng():
        torch.manual_seed(depth)
        network, images = Network(depth).eval(), torch.rand(8, 3, 16, 16)
    anatomy = dissect(network, images[:2])
    about = Provenance(model=name, data="folder:cats/val", created="2025-01-31")
    spectrum, variances, singular, similarity = observe(
        anatomy,
        images.split(4),
        [FourierProbe(), VarianceProbe(), SingularValueProbe(), CKAProbe()],
        provenance=about,
    )
    ends = high_frequency(spectrum)
    fields = receptive_field(anatomy, [images[:3]], provenance=about)
    batches = [(images, torch.arange(8) % 5)]
    surface = landscape(
        network,
        batches,
        random_planes(network, points=3, pairs=2, reach=0.5),
        provenance=about,
    )
    states = [{n: (1 + k**2) * t for n, t in network.state_dict().items()} for k in (3, 1, 0)]
    states[1]["0.conv.bias"] = states[1]["0.conv.bias"] + 1
    return Examination(
        name,
        replace(costs(anatomy), provenance=spectrum.provenance),
        (
            spectrum,
            ends,
            tally(ends),
            variances,
            tally(variances),
            attention_statistics(about),
            similarity,
            block_structure(similarity),
            *fields,
            singular,
            effective_ranks(singular),
            surface,
            sharpness(Objective(network, batches), provenance=about),
            trajectory(network, states, provenance=about),
            patch_filters(anatomy, provenance=about),
            positional_similarity(anatomy, provenance=about),
            *of_curvature(network, batches, about),
            *of_outputs(network, images, about),
            *of_trials(network, anatomy, images, about),
            searched(about),
        ),
    )


@pytest.fixture(scope="session")
def examinations():
    return (examined("shallow", 2), examined("deep", 3))
