"""Laws of sentences: intervals name their units, and maxima that they are selected."""

import re
from dataclasses import MISSING, fields, replace

import numpy as np
import pytest
import torch
from results_by_hand.base import complete, within

from visprism import Predictions, Provenance, Result, calibration, outcomes, temperature
from visprism.analyses.features.attribution import AttributionMaps, AttributionScores
from visprism.analyses.features.band_energy import BandEnergies
from visprism.analyses.features.branch_transfer import HighFrequencyGain
from visprism.analyses.features.class_separability import FeatureRanks, NeuralCollapse
from visprism.analyses.features.feature_similarity import BlockSimilarities
from visprism.analyses.features.fourier_plane import FrequencyPlanes
from visprism.analyses.features.intrinsic_dimension import IntrinsicDimensions
from visprism.analyses.features.patch_pca import PatchComponents
from visprism.analyses.features.readout import Readouts
from visprism.analyses.features.token_norms import (
    AttentionSinks,
    MassiveActivations,
    OutlierPlaces,
    OutlierTokens,
    TokenNormQuantiles,
)
from visprism.analyses.features.token_similarity import TokenCosines
from visprism.analyses.loss.density import Trace
from visprism.analyses.loss.hessian_by_block import BlockHessians
from visprism.analyses.loss.mode_connectivity import LinearPaths, Soup
from visprism.analyses.predictions.error_consistency import error_consistency
from visprism.analyses.predictions.frequency_noise import FrequencyContrasts
from visprism.analyses.predictions.out_of_distribution import MSP, Detection
from visprism.analyses.predictions.quantization import QuantizationSensitivity
from visprism.analyses.predictions.stability import RelativeFlipRates
from visprism.estimates.estimated import Estimated, Number
from visprism.loss.landscape import OriginCurvature
from visprism.table.result import result_types

NUMBER = r"[-+]?[\d.,]*\d%?(?:e[-+]?\d+)?"
INTERVAL = re.compile(rf"\[{NUMBER}, {NUMBER}\]")
UNITS = re.compile(
    r"\b[\d,]+ (?:test |training |trained |new |random |start |direction |groups of )?"
    r"(?:images|mini-batches|seeds|vectors|directions|pairs|batches|decisions)\b|"
    r"images of both data sets \(at least [\d,]+ of each\)"
)
EXTREME = re.compile(r"\b(?:largest|smallest|highest|lowest)\b")
# Extremes that are no selection: quantities of every block, head or matrix.
DEFINED = re.compile(
    r"relative to the lowest frequency|RMS of the highest over the lowest band|"
    r"largest in magnitude|smallest eigenvalue at most|largest Hessian eigenvalue|"
    r"largest attention weight of a head|"
    r"at the lowest and .* at the highest frequency|at the highest frequency in both directions"
)
SELECTED = re.compile(r"\bof (?:\d+|them|the leading)\b|selected on the test images")

PROVENANCE = Provenance(model="hand:net", images=60, split="test")


def predictions(seed: int) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(60, 4, generator=generator)
    targets = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
    return Predictions(logits, targets, PROVENANCE)


def consistency() -> Result:
    """Error consistency of two models on the same images."""
    first, other = predictions(0), predictions(1)
    second = Predictions(other.logits, first.targets, PROVENANCE)
    return error_consistency(outcomes(first), outcomes(second))


def by_block(kind: type[Result], **columns: object) -> Result:
    """A result with a row for each of three blocks, whose other columns are 0.2."""
    located = {
        "block": np.array(["stem", "conv1", "attn"]),
        "kind": np.array(["stem", "conv", "attention"]),
        "stage": np.array([0, 1, 1]),
        "depth": np.array([0.0, 0.5, 1.0]),
        "subsampling": np.zeros(3, bool),
        "previous": np.array(["", "stem", "conv1"]),
        "between": np.full(3, ""),
    }
    values = {}
    for f in fields(kind):
        if f.type in (np.ndarray, Estimated):
            values[f.name] = located.get(f.name, np.array([0.3, 0.2, 0.1]))
        elif f.name in kind.estimates() and f.default is MISSING:
            values[f.name] = Number(0.2, 0.15, 0.25)
    values |= {
        n: within(v, 0.02)
        for n, v in values.items()
        if n in kind.estimates() and isinstance(v, np.ndarray)
    }
    return complete(kind, **values | columns, provenance=PROVENANCE)


OTHERS = {
    "attribution_scores": lambda: by_block(
        AttributionScores, method=np.full(3, "Grad-CAM"), steps=10,
        scored=np.full(3, 60), without_gradient="",
    ),
    "quantization": lambda: by_block(
        QuantizationSensitivity, bits=np.full(3, "4 bits"), baseline_accuracy=0.9,
        baseline_nll=0.3, probes=5, without_traces="",
    ),
    "intrinsic_dimension": lambda: by_block(IntrinsicDimensions, pooling="mean"),
    "attribution_maps": lambda: AttributionMaps(
        picture=np.full(4, "image 0, attn"), row=np.array([0, 0, 1, 1]),
        column=np.array([0, 1, 0, 1]), relevance=np.array([0.0, 1.0, 0.0, 0.2]),
        provenance=PROVENANCE,
    ),
    "linear_paths": lambda: LinearPaths(
        checkpoint=np.full(3, "b.pt"), position=np.array([0, 0.5, 1]),
        nll=Estimated([0.2, 0.9, 0.3], [0.1, 0.8, 0.2], [0.3, 1.0, 0.4]),
        accuracy=np.array([0.9, 0.4, 0.8]),
        barrier=Estimated([0, 0.65, 0], [0, 0.4, 0], [0, 0.9, 0]),
        batch_norm="reestimated", provenance=PROVENANCE,
    ),
    "soup": lambda: Soup(
        member=np.array(["model", "b.pt", "soup"]), accuracy=np.array([0.9, 0.8, 0.85]),
        nll=np.array([0.3, 0.4, 0.3]),
        gain=Estimated([-0.05, 0.05, 0.0], [-0.1, 0.0, 0.0], [0.0, 0.1, 0.0]),
        provenance=PROVENANCE,
    ),
    "calibration": lambda: calibration(predictions(0)),
    "temperature": lambda: temperature(predictions(0))[0],
    "error_consistency": consistency,
    "band_energies": lambda: by_block(BandEnergies),
    "high_frequency_gain": lambda: by_block(HighFrequencyGain),
    "frequency_contrasts": lambda: FrequencyContrasts(
        noise=np.array(["equal energy", "paper"]),
        contrast=Estimated([0.2, 0.3], [-0.1, 0.2], [0.5, 0.4]), rms_ratio=np.array([1.0, 4.0]),
        provenance=PROVENANCE,
    ),
    "readouts": lambda: by_block(
        Readouts, readout=np.full(3, "ridge"), dimension=np.full(3, 8), pooling="mean",
        evaluation="5 folds", lens_note="", chance=0.25,
    ),
    "outlier_tokens": lambda: by_block(
        OutlierTokens, threshold=4.0, mean_share=Number(0.2, 0.16, 0.24),
    ),
    "massive_activations": lambda: by_block(MassiveActivations, channel=np.array([1, 2, 1])),
    "attention_sinks": lambda: by_block(AttentionSinks, threshold=0.3),
    "token_norms": lambda: by_block(
        TokenNormQuantiles, tokens=np.full(3, "grid"), probability=np.array([0.05, 0.5, 0.95])
    ),
    "outlier_places": lambda: OutlierPlaces(
        picture=np.full(4, "attn"), row=np.array([0, 0, 1, 1]), column=np.array([0, 1, 0, 1]),
        share=np.array([0.0, 0.1, 0.0, 0.2]), provenance=PROVENANCE,
    ),
    "token_similarity": lambda: by_block(TokenCosines, tokens=np.full(3, "grid")),
    "class_separability": lambda: by_block(
        NeuralCollapse, self_duality=Number(0.3), pooling="mean", classes=4
    ),
    "feature_ranks": lambda: by_block(FeatureRanks, pooling="mean"),
    "feature_similarity": lambda: by_block(
        BlockSimilarities, other=np.array(["conv1", "attn", "stem"]),
        other_kind=np.array(["conv", "attention", "stem"]), other_stage=np.array([1, 1, 0]),
        neighbors=10, permutations=5, pooling="mean", other_model="",
    ),
    "out_of_distribution": lambda: by_block(
        Detection, score=np.full(3, MSP), other_data="noise", other_images=40,
        fitted_on="50 training images", pooling="mean",
    ),
    "patch_components": lambda: by_block(
        PatchComponents, image=np.zeros(3, int), row=np.zeros(3, int),
        column=np.zeros(3, int), background_threshold=np.nan,
    ),
    "trace": lambda: Trace(
        estimate=np.array([3.0, 4.0, 5.0, 4.5]), trace=Number(4.1, 3.0, 5.2), parameters=10,
        nll=1.0, l2=0.0, weight_decay=0.0, provenance=PROVENANCE,
    ),
    "fourier_plane": lambda: FrequencyPlanes(
        picture=np.full(4, "attn"), row=np.array([0, 0, 1, 1]), column=np.array([0, 1, 0, 1]),
        vertical=np.array([-1.0, -1, 0, 0]), horizontal=np.array([-1.0, 0, -1, 0]),
        log_amplitude=np.arange(4.0), relative=within(np.arange(4.0) - 3, 0.1),
        parts="blocks", provenance=PROVENANCE,
    ),
    "hessian_by_block": lambda: by_block(
        BlockHessians, fraction=np.full(3, "64 images"),
        converged=np.array([True, True, False]), probes=8, by="block",
    ),
    "relative_flip_rates": lambda: RelativeFlipRates(
        perturbation=np.array(["tilt", "gaussian_noise"]), ratio=np.array([0.5, 0.8]),
        flip_rate=np.array([0.1, 0.4]), reference_rate=np.array([0.2, 0.5]), mean_ratio=0.65,
        model="a", reference="b", provenance=PROVENANCE,
    ),
    "origin_curvature": lambda: OriginCurvature(
        pair=np.zeros(2, int), direction=np.array(["a", "b"]), slope=np.zeros(2),
        fitted=np.ones(2), hessian=np.ones(2), step=np.full(2, 0.1), provenance=PROVENANCE,
    ),
}  # fmt: skip


@pytest.fixture
def sentences(made):
    """The findings of every type of result, by its name."""
    results = [*made.values(), *(make() for make in OTHERS.values())]
    with_split = [
        replace(result, provenance=replace(result.provenance, split="test"))
        for result in results
    ]
    return {
        type(result).__name__: [finding.text for finding in result.findings()]
        for result in with_split
    }


def test_every_type_with_findings_is_tried_here(sentences):
    with_findings = {
        t.__name__
        for t in result_types().values()
        if t.__module__.startswith("visprism.") and t.findings is not Result.findings
    }
    assert with_findings <= set(sentences)


def test_findings_with_intervals_say_once_what_they_are_over(sentences):
    printed = [" ".join(texts) for texts in sentences.values()]
    with_intervals = [text for text in printed if INTERVAL.search(text)]
    assert len(with_intervals) > 20
    assert [text for text in with_intervals if not UNITS.search(text)] == []


def test_every_selected_extreme_says_of_how_many_it_was_selected(sentences):
    texts = [DEFINED.sub("", text) for texts in sentences.values() for text in texts]
    selected = [text for text in texts if EXTREME.search(text)]
    assert len(selected) > 10
    assert [text for text in selected if not SELECTED.search(text)] == []


def test_numbers_of_images_stand_with_their_split(sentences):
    images = re.compile(r"\b[\d,]+ (\w+ )?images\b")
    without = [
        text
        for texts in sentences.values()
        for text in texts
        if (match := images.search(text))
        and match[1] is None
        and not re.search(
            "NLL of test images|with conflicting cues|fewer than [0-9]+ images", text
        )
    ]
    assert without == []
