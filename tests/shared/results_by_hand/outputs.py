"""Results of predictions and of replacements, written by hand."""

import numpy as np

from results_by_hand.base import BLOCKS, PROVENANCE, complete
from visprism.estimates.estimated import Estimated, Number
from visprism.results import (
    Ablations,
    BandAccuracy,
    ClassAccuracy,
    Confusions,
    CorruptedMetrics,
    CorruptionErrors,
    CueDecisions,
    DifferingPictures,
    FlipRates,
    FrequencyErrors,
    ImagePictures,
    KindAblations,
    Reliability,
    ReplacementSearch,
    RiskCoverage,
    RobustAccuracy,
    ShiftedAccuracy,
)


def _around(values, margin):
    """An estimate with intervals of this half width."""
    values = np.array(values)
    return Estimated(values, values - margin, values + margin)


def differing_pictures():
    return complete(
        DifferingPictures,
        image=np.array([3, 5]),
        target=np.array(["disk", "star"]),
        first=np.array(["disk", "cross"]),
        second=np.array(["heart", "star"]),
        height=np.array([1, 1]),
        width=np.array([2, 2]),
        pixels=np.array(["ff0000" + "00ff00", "0000ff" + "ffffff"]),
        images=2,
    )


def image_pictures():
    return complete(
        ImagePictures,
        image=np.array([0, 4]),
        height=np.array([1, 1]),
        width=np.array([2, 1]),
        pixels=np.array(["ff0000" + "00ff00", "0000ff"]),
    )


def class_accuracy():
    return complete(
        ClassAccuracy,
        target=np.array(["heart", "disk", "star"]),
        images=np.array([10, 20, 10]),
        accuracy=_around([0.3, 0.55, 0.8], 0.15),
    )


def confusions():
    return complete(
        Confusions,
        target=np.array(["disk", "star", "disk", "heart"]),
        predicted=np.array(["disk", "star", "star", "disk"]),
        images=np.array([15, 8, 5, 2]),
        fraction=np.array([0.75, 0.8, 0.25, 1.0]),
    )


def reliability():
    upper = np.arange(1, 6) / 5
    return complete(
        Reliability,
        lower=upper - 0.2,
        upper=upper,
        count=np.array([0, 10, 20, 30, 40]),
        frequency=np.array([0, 0.1, 0.2, 0.3, 0.4]),
        confidence=np.array([np.nan, 0.3, 0.5, 0.7, 0.95]),
        accuracy=np.array([np.nan, 0.3, 0.4, 0.6, 0.8]),
        ece=0.11,
    )


def risk_coverage():
    coverage = np.arange(1, 11) / 10
    return complete(
        RiskCoverage,
        coverage=coverage,
        risk=0.3 * coverage**2,
        confidence=1 - coverage / 2,
        aurc=0.1,
    )


def robustness():
    corruption = np.array(["clean", "fog", "fog", "jpeg_compression", "jpeg_compression"])
    return complete(
        CorruptedMetrics,
        corruption=corruption,
        severity=np.array([0, 1, 5, 1, 5]),
        accuracy=Estimated([0.9, 0.8, 0.3, 0.85, 0.6], np.zeros(5), np.ones(5)),
        change=Estimated(np.full(5, np.nan)),
        debiased_ece=Estimated(np.full(5, 0.1), np.zeros(5), np.ones(5)),
    )


def corruption_errors():
    return complete(
        CorruptionErrors,
        corruption=np.array(["fog", "jpeg_compression"]),
        error=np.array([0.45, 0.275]),
        reference=np.array([0.82, np.nan]),
        relative=np.array([0.55, np.nan]),
        clean_error=0.1,
        mean_error=0.36,
    )


def distribution_shift():
    """A set of 200 classes and one of all."""
    return ShiftedAccuracy(
        shift=np.array(["imagenet_r:DIR", "imagenet_sketch:DIR"]),
        corruption=np.array(["", ""]),
        severity=np.array([0, 0]),
        classes=np.array([200, 1000]),
        images=np.array([400, 400]),
        accuracy=Estimated([0.40, 0.25], [0.353, 0.210], [0.449, 0.295]),
        reference_images=np.array([80, 400]),
        reference=np.array([0.90, 0.75]),
        drop=Estimated([0.50, 0.50], [0.41, 0.44], [0.57, 0.56]),
        provenance=PROVENANCE,
    )


def stability():
    return complete(
        FlipRates,
        perturbation=np.array(["gaussian_noise", "tilt"]),
        frames=np.array([31, 31]),
        flip_rate=Estimated([0.05, 0.02], [0.04, 0.01], [0.06, 0.03]),
        mean_flip_rate=0.035,
    )


def search_replacements():
    rows = [
        ("", 0, (0.90, 0.91, 0.92), True),
        ("layer3.2", 1, (0.93, 0.93, 0.94), True),
        ("layer3.0", 2, (0.92, 0.93, 0.93), False),
        ("layer2.2", 2, (0.94, 0.95, 0.95), True),
        ("", 0, (0.90, 0.90, 0.91), True),  # with new seeds
        ("layer2.2", 2, (0.93, 0.95, 0.94), True),
    ]
    placements = ["", "layer3.2", "layer3.0,layer3.2", "layer2.2,layer3.2"]
    placements += ["", "layer2.2,layer3.2"]
    return complete(
        ReplacementSearch,
        candidate=np.repeat([0, 1, 2, 3, 0, 3], 3),
        phase=np.repeat(["search", "confirmation"], [12, 6]),
        alpha=0.05,
        msas=np.repeat([row[1] for row in rows], 3),
        added=np.repeat([row[0] for row in rows], 3),
        placement=np.repeat(placements, 3),
        seed=np.concatenate([np.tile(np.arange(3), 4), np.tile(np.arange(3, 6), 2)]),
        accuracy=np.concatenate([row[2] for row in rows]),
        selected=np.repeat([row[3] for row in rows], 3),
    )


def ablations():
    columns = {name: np.append(column[1:], column[3:4]) for name, column in BLOCKS.items()}
    return complete(
        Ablations,
        **columns,
        ablated=np.array(["convolution", "block", "block", "block", "head 2"]),
        accuracy=np.array([0.5, 0.7, 0.4, 0.8, 0.75]),
        drop=Estimated(
            [0.3, 0.1, 0.4, 0.0, 0.05],
            [0.25, 0.06, 0.34, -0.02, 0.01],
            [0.34, 0.13, 0.45, 0.02, 0.08],
        ),
        nll_rise=_around([1.0, 0.5, 1.5, 0.0, 0.1], 0.2),
        partial=np.ones(5, dtype=bool),
        baseline_accuracy=0.8,
        baseline_nll=1.0,
    )


def kind_ablations():
    return KindAblations(
        ablated=np.full(3, "block"),
        comparison=np.array(["attention", "mlp", "attention minus mlp"]),
        num_blocks=np.array([2, 2, 4]),
        drop=Estimated([0.4, 0.1, 0.3], [0.35, 0.05, 0.2], [0.45, 0.15, 0.4]),
        provenance=PROVENANCE,
    )


def frequency_robustness():
    drop = np.array([0.1, 0.3, 0.6])
    return BandAccuracy(
        frequency=np.array([0.1, 0.5, 0.9]),
        rms=np.full(3, 0.1),
        accuracy=_around(0.8 - drop, 0.05),
        drop=Estimated(drop, drop - 0.04, drop + 0.05),
        high_drop=Number(0.6, 0.54, 0.65),
        low_drop=Number(0.1, 0.08, 0.12),
        clean_accuracy=0.8,
        provenance=PROVENANCE,
    )


def sensitivity():
    vertical, horizontal = (k.ravel() for k in np.mgrid[-2:3:2, -2:3:2])
    error = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2, 0.1])
    return FrequencyErrors(
        vertical=vertical,
        horizontal=horizontal,
        error=_around(error, 0.05),
        error_rise=_around(error - 0.1, 0.02),
        clean_error=0.1,
        mean_rise=Number(0.2, 0.15, 0.25),
        rms=0.1,
        provenance=PROVENANCE,
    )


def attacks():
    accuracy = np.array([0.7, 0.5, 0.6, 0.2])
    return RobustAccuracy(
        attack=np.array(["fgsm", "fgsm", "pgd", "pgd"]),
        loss=np.full(4, "cross-entropy"),
        norm=np.full(4, "linf"),
        epsilon=np.array([1, 4, 1, 4]) / 255,
        accuracy=Estimated(accuracy, accuracy - 0.1, accuracy + 0.05),
        drop=Estimated(0.8 - accuracy, 0.75 - accuracy, 0.83 - accuracy),
        zero_gradient=np.zeros(4),
        clean_accuracy=0.8,
        provenance=PROVENANCE,
    )


def cues():
    return complete(
        CueDecisions,
        category=np.array(["cat", "car", "all"]),
        images=np.array([10, 10, 20]),
        shape_decisions=np.array([6, 2, 8]),
        texture_decisions=np.array([2, 6, 8]),
        bias=Estimated([0.75, 0.25, 0.5], [0.41, 0.07, 0.28], [0.93, 0.59, 0.72]),
        accuracy=np.array([0.6, 0.2, 0.4]),
    )
