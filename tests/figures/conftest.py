"""Results of a small network, made by hand: stem, conv, downsample, attention, mlp, head."""

from collections.abc import Mapping
from dataclasses import MISSING, fields

import numpy as np
import pytest

from visprism.core.provenance import Provenance
from visprism.results.ablation import Ablations, JointAblations, KindAblations
from visprism.results.anatomy import Costs
from visprism.results.attention import AttentionMaps, AttentionStatistics, Rollout
from visprism.results.branch_transfer import BranchTransfer
from visprism.results.calibration import Reliability, RiskCoverage
from visprism.results.fourier import HighFrequency, Spectrum, SpectrumColumns
from visprism.results.harmonize import ReplacementSearch
from visprism.results.hessian import HessianCurves
from visprism.results.hessian_summary import HessianSummary
from visprism.results.kind_replication import KindReplication
from visprism.results.kind_summary import SCALE_FREE, TO_LOWEST, TO_MEAN, VARIANCE, KindSummary
from visprism.results.landscape import Landscape, Rings
from visprism.results.loss import Eigenvalues, Sharpness, SpectralDensity
from visprism.results.patch_pca import PatchComponents
from visprism.results.perturbations import Adversarial, FourierSensitivity, FrequencyRobustness
from visprism.results.receptive_field import ReceptiveField, ReceptiveMaps
from visprism.results.robustness import CorruptionErrors, Robustness
from visprism.results.shape_bias import ShapeBias
from visprism.results.similarity import Similarity
from visprism.results.singular_values import EffectiveRanks, SingularValues
from visprism.results.stability import Stability
from visprism.results.training import History
from visprism.results.trajectory import Trajectory
from visprism.results.variance import Variances
from visprism.results.weights import PatchFilters, PositionalSimilarity, RelativeScores

PROVENANCE = Provenance(
    model="hand:net",
    data="folder:cats/val",
    images=8,
    image_shape=(3, 32, 32),
    preprocessing="32x32 bicubic",
    visprism="0.1",
    torch="2.6",
)

BLOCKS = {
    "block": np.array(["stem", "conv1", "down", "attn", "mlp"]),
    "kind": np.array(["stem", "conv", "downsample", "attention", "mlp"]),
    "stage": np.array([0, 0, 1, 1, 1]),
    "depth": np.array([0.0, 0.25, 0.5, 0.75, 1.0]),
    "subsampling": np.array([False, False, True, False, False]),
}
CHANGES = {
    "change": np.array([np.nan, 0.5, np.nan, -0.7, 0.2]),
    "change_error": np.array([np.nan, 0.1, np.nan, 0.1, 0.1]),
}
VARIANCE_LOGS = (
    "log_ratio", "relative_log_ratio", "kind_log_ratio", "kind_relative_log_ratio"
)  # fmt: skip
FREQUENCIES = 3  # of each block
NEIGHBORS = {"previous": np.array(["", "stem", "", "down", "attn"]), "between": np.full(5, "")}


def unused_columns(rows, **columns):
    """NaN in the numeric columns of a spectrum that are not given."""
    named = {*BLOCKS, *NEIGHBORS, "profile", *columns}
    return {n: np.full(rows, np.nan) for n in SpectrumColumns.infos() if n not in named}


def complete(cls, **columns):
    """A result whose columns that are not given hold NaN, those of text nothing."""
    rows = len(next(v for v in columns.values() if isinstance(v, np.ndarray)))
    missing = [
        f for f in fields(cls) if f.name not in columns and f.default is MISSING
        and f.default_factory is MISSING
    ]  # fmt: skip
    empty = {
        f.name: np.full(rows, np.nan) if f.type is np.ndarray else f.type(0) for f in missing
    }
    return cls(**columns, **empty)


def history():
    return History(
        epoch=np.array([1, 2, 3]),
        step=np.array([10, 20, 30]),
        seconds=np.array([1.0, 2.0, 3.0]),
        lr=np.array([0.1, 0.05, 0.0]),
        train_loss=np.array([2.0, 1.2, 0.9]),
        images_per_second=np.array([100.0, 110.0, 105.0]),
        test_accuracy=np.array([0.3, np.nan, 0.6]),
        test_nll=np.array([1.9, np.nan, 1.1]),
        test_ece=np.array([0.1, np.nan, 0.05]),
        ema_accuracy=np.array([0.2, np.nan, 0.65]),
        ema_nll=np.array([2.1, np.nan, 1.0]),
        provenance=PROVENANCE,
    )


def spectrum():
    rows = np.repeat(np.arange(5), FREQUENCIES)
    relative = np.tile([0.0, -1.0, -2.0], 5) * (1 + rows)
    columns = {
        "frequency": np.tile([0.0, 0.5, 1.0], 5),
        "log_amplitude": relative + 3,
        "relative": relative,
        "relative_error": np.tile([0.0, 0.1, 0.2], 5),
    }
    return Spectrum(
        **{name: column[rows] for name, column in (BLOCKS | NEIGHBORS).items()},
        **columns,
        **unused_columns(15, **columns),
        provenance=PROVENANCE,
    )


def high_frequency():
    columns = CHANGES | {
        "frequency": np.ones(5),
        "relative": np.array([-2.0, -1.5, -1.0, -1.7, -1.5]),
        "relative_error": np.array([0.1, 0.1, 0.1, 0.2, 0.2]),
        "relative_lowest": np.array([-1.0, -0.5, -0.6, -0.7, -0.5]),
        "relative_lowest_error": np.full(5, 0.1),
    }
    return HighFrequency(
        **BLOCKS,
        **NEIGHBORS,
        **columns,
        **unused_columns(5, **columns),
        provenance=PROVENANCE,
    )


def branch_transfer():
    rows = np.repeat(np.arange(5), FREQUENCIES)
    columns = {
        "frequency": np.tile([0.0, 0.5, 1.0], 5),
        "gain": np.tile([0.0, -0.5, -1.0], 5) * (1 + rows),
        "gain_error": np.full(15, 0.1),
    }
    unknown = {
        name: np.full(15, np.nan)
        for name in BranchTransfer.infos()
        if name not in {*BLOCKS, *columns, "profile"}
    }
    blocks = {name: column[rows] for name, column in BLOCKS.items()}
    return BranchTransfer(**blocks, **columns, **unknown, provenance=PROVENANCE)


def variances():
    return Variances(
        **BLOCKS,
        **CHANGES,
        variance=np.array([1.0, 2.0, 0.5, 0.25, 40.0]),
        variance_error=np.array([0.1, 0.1, 0.05, 0.02, 1.0]),
        relative=np.array([0.5, 0.6, 0.3, 0.2, 0.9]),
        relative_error=np.full(5, 0.01),
        **NEIGHBORS,
        **{name: CHANGES["change"] for name in ("log_ratio", "relative_log_ratio")},
        **{f"{name}_error": CHANGES["change_error"] for name in VARIANCE_LOGS},
        feature_change=np.array([np.nan, 0.5, np.nan, 0.3, 0.2]),
        dead_channels=np.zeros(5),
        provenance=PROVENANCE,
    )


def receptive_field():
    sides = np.array([3.0, 5.0, 9.0, 20.0, 24.0])
    areas = {f"area_{t}": sides**2 / 1024 for t in (20, 30, 50, 99)}
    return complete(
        ReceptiveField,
        **BLOCKS,
        **areas,
        sigma=np.array([1.0, 2.0, 4.0, 8.0, 7.5]),
        sigma_error=np.array([0.0, 0.1, 0.1, 0.5, 0.5]),
        side_50=sides,
        side_95=2 * sides,
        row=np.full(5, 15.5),
        column=np.full(5, 15.5),
        uniform_sigma=9.2,
        provenance=PROVENANCE,
    )


def receptive_maps():
    relative = np.tile([0.01, 0.1, 0.5, 0.05, 1.0, 0.0], 3) ** np.repeat([1, 2, 3], 6)
    return complete(
        ReceptiveMaps,
        block=np.repeat(["stem", "conv1", "stages.2.blocks.17.attn"], 6),
        depth=np.repeat([0.0, 0.25, 1.0], 6),
        row=np.tile([0, 0, 0, 1, 1, 1], 3),
        column=np.tile([0, 1, 2], 6),
        share=relative / 2,
        relative=relative,
        provenance=PROVENANCE,
    )


def singular_values():
    rows = np.repeat(np.arange(5), 6)
    relative = np.tile([1.0, 0.5, 0.1, 1.0, 0.2, 0.0], 5)
    return complete(
        SingularValues,
        **{name: column[rows] for name, column in BLOCKS.items()},
        level=np.tile(np.repeat(["tokens", "images"], 3), 5),
        rank=np.tile([1, 2, 3], 10),
        relative=relative,
        share=relative**2 / 1.3,
        provenance=PROVENANCE,
    )


def effective_ranks():
    return complete(
        EffectiveRanks,
        **BLOCKS,
        channels=np.array([8, 8, 16, 16, 16]),
        token_rank=np.array([6.0, 5.0, 9.0, 8.0, 7.0]),
        token_participation=np.array([4.0, 3.0, 5.0, 5.0, 4.0]),
        image_rank=np.array([3.0, 4.0, 5.0, 6.0, 5.5]),
        image_participation=np.array([2.0, 3.0, 4.0, 4.5, 4.0]),
        provenance=PROVENANCE,
    )


def patch_filters():
    channel, row, column = np.indices((3, 2, 4)).reshape(3, -1)
    return PatchFilters(
        component=np.repeat(np.arange(1, 10), 24),
        share=np.repeat(np.arange(9, 0, -1) / 45, 24),
        channel=np.tile(channel, 9),
        row=np.tile(row, 9),
        column=np.tile(column, 9),
        value=np.tile(np.linspace(-1, 1, 24), 9) / np.repeat(np.arange(1, 10), 24),
        parameter="stem.weight",
        kernels=16,
        provenance=PROVENANCE,
    )


def relative_scores():
    head, dy, dx = np.indices((5, 3, 5)).reshape(3, -1)
    weight = np.where(dy * 5 + dx == 3 * head, 0.79, 0.015)
    return RelativeScores(
        head=head + 1,
        dy=dy - 1,
        dx=dx - 2,
        score=np.log(weight),
        weight=weight,
        provenance=PROVENANCE,
    )


def patch_components():
    block, image, row, column = np.indices((2, 2, 3, 4)).reshape(4, -1)
    rows = {name: values[[0, 4]][block] for name, values in BLOCKS.items()}
    return PatchComponents(
        **rows,
        image=image,
        row=row,
        column=column,
        first=row / 2,
        second=column / 3,
        third=np.where(image == 0, 0.2, np.nan),
        explained=np.where(block == 0, 0.9, 0.6),
        background_threshold=0.5,
        provenance=PROVENANCE,
    )


def positional_similarity():
    row, column, other_row, other_column = np.indices((8, 3, 8, 3)).reshape(4, -1)
    distance = abs(row - other_row) + 2 * abs(column - other_column)
    return PositionalSimilarity(
        row=row,
        column=column,
        other_row=other_row,
        other_column=other_column,
        cosine=1 - distance / 8,
        parameter="positions",
        provenance=PROVENANCE,
    )


def kind_summary():
    return KindSummary(
        kind=np.array(["attention", "attention", "mlp", "mlp"]),
        quantity=np.array([TO_MEAN, TO_LOWEST, TO_MEAN, TO_LOWEST]),
        blocks=np.array([3, 3, 1, 1]),
        falls=np.array([2, 1, 0, 0]),
        rises=np.array([0, 2, 1, 0]),
        undecided=np.array([1, 0, 0, 1]),
        mean=np.array([-0.4, 0.1, 0.2, 0.0]),
        low=np.array([-0.9, 0.05, np.nan, -0.1]),
        high=np.array([0.1, 0.15, np.nan, 0.1]),
        provenance=PROVENANCE,
    )


def kind_replication():
    return complete(
        KindReplication,
        kind=np.array(["attention", "attention"]),
        quantity=np.array([VARIANCE, SCALE_FREE]),
        seeds=np.array([3, 3]),
        negative=np.array([3, 1]),
        positive=np.array([0, 0]),
        mean=np.array([-0.5, -0.1]),
        low=np.array([-0.7, -0.4]),
        high=np.array([-0.3, 0.2]),
        provenance=PROVENANCE,
    )


def attention_statistics():
    statistics = {
        name: np.array([40.0, 90.0, 60.0, 70.0]) / scale
        for name, scale in (
            ("distance", 1), ("entropy", 20), ("nmi", 100), ("prefix_share", 1000),
            ("redundancy", 100),
        )
    }  # fmt: skip
    return complete(
        AttentionStatistics,
        block=np.array(["attn", "attn", "attn#2", "attn#2"]),
        stage=np.ones(4, dtype=int),
        depth=np.array([0.75, 0.75, 1.0, 1.0]),
        head=np.array([1, 2, 1, 2]),
        keys=np.full(4, 17),
        **statistics,
        **{f"{name}_error": values / 10 for name, values in statistics.items()},
        provenance=PROVENANCE,
    )


def attention_map():
    head, row, column = np.indices((2, 3, 4)).reshape(3, -1)
    return AttentionMaps(
        block=np.repeat(["attn", "attn#2"], 24),
        head=np.tile(head + 1, 2),
        row=np.tile(row, 2),
        column=np.tile(column, 2),
        weight=np.tile(np.linspace(0, 1, 24), 2),
        query="mean",
        provenance=PROVENANCE,
    )


def rollout():
    row, column = np.indices((3, 4)).reshape(2, -1)
    return Rollout(
        row=row, column=column, weight=np.linspace(0, 1, 12), method="gradient",
        readout="class token", provenance=PROVENANCE,
    )  # fmt: skip


def similarity():
    first, other = (axis.ravel() for axis in np.indices((5, 5)))
    cka = 0.8 ** abs(first - other)
    others = {f"other_{name}": BLOCKS[name][other] for name in ("kind", "stage", "depth")}
    return complete(
        Similarity,
        **{name: column[first] for name, column in BLOCKS.items()},
        other=BLOCKS["block"][other],
        **others,
        cka=cka,
        cka_error=np.full(25, 0.1),
        biased=cka**0.5,
        biased_error=np.full(25, 0.1),
        null=np.linspace(-0.05, 0.05, 25),
        defined=np.ones(25, dtype=bool),
        batches=2,
        batch_size=4.0,
        provenance=PROVENANCE,
    )


def landscape():
    """Two planes of 5 x 5 points; beyond a corner of the first the loss is infinite."""
    b, a = (axis.ravel() for axis in np.meshgrid(*[np.linspace(-1, 1, 5)] * 2, indexing="ij"))
    pair = np.repeat([0, 1], 25)
    a, b = np.tile(a, 2), np.tile(b, 2)
    nll = 0.5 + (a**2 + 4 * b**2) * (1 + pair) * 2
    error = np.full(50, 0.05)
    return complete(
        Landscape,
        pair=pair,
        a=a,
        b=b,
        nll=np.where((pair == 0) & (a + b > 1.9), np.inf, nll),
        nll_error=error,
        rise=nll - 0.5,
        rise_error=error,
        l2=1 + a**2 + b**2,
        accuracy=np.exp(-nll),
        accuracy_error=error,
        classes=10,
        weight_decay=0.05,
        provenance=PROVENANCE,
    )


def trajectory():
    return complete(
        Trajectory,
        snapshot=np.arange(4),
        radius=np.array([1.0, 0.8, 0.3, 0.0]),
        angle=np.array([0.0, 0.4, 0.9, np.nan]),
        first=np.array([-3.0, -1.0, 1.5, 2.5]),
        second=np.array([-1.0, 1.0, 0.5, -0.5]),
        step=np.array([np.nan, 2.8, 2.5, 1.4]),
        first_share=0.7,
        second_share=0.2,
        distance=5.6,
        provenance=PROVENANCE,
    )


def structure():
    return similarity().block_structure()


def costs():
    return Costs(
        block=np.append(BLOCKS["block"], "head"),
        kind=np.append(BLOCKS["kind"], "head"),
        stage=np.append(BLOCKS["stage"], 1),
        depth=np.append(BLOCKS["depth"], 1.0),
        subsampling=np.append(BLOCKS["subsampling"], values=False),
        channels=np.array([8, 8, 16, 16, 16, 10]),
        height=np.array([16, 16, 4, 4, 4, 1]),
        width=np.array([16, 16, 4, 4, 4, 1]),
        parameters=np.array([100, 200, 300, 400, 500, 0]),
        macs=np.array([1000, 4000, 2000, 500, 500, 0]),
        distinct_parameters=1500,
        provenance=PROVENANCE,
    )


def hessian_curves():
    return HessianCurves(
        phase=np.repeat(["init", "end"], 6),
        data=np.full(12, ""),
        weight_decay=np.zeros(12),
        sign=np.tile([-1, -1, -1, 1, 1, 1], 2),
        value=np.tile([-1.0, -2.0, -4.0, 5.0, 10.0, 20.0], 2),
        density=np.tile([0.0, 0.05, 0.0, 0.0, 0.08, 0.0], 2),
        provenance=PROVENANCE,
    )


def hessian_summary():
    two = np.ones(2)
    return complete(
        HessianSummary,
        phase=np.array(["init", "end"]),
        data=np.full(2, ""),
        weight_decay=np.zeros(2),
        batches=np.array([16, 16]),
        nep=0.3 * two,
        nep_low=0.2 * two,
        nep_high=0.4 * two,
        ape=np.array([50.0, 20.0]),
        ape_low=np.array([40.0, 15.0]),
        ape_high=np.array([60.0, 25.0]),
        largest=100 * two,
        smallest=-30 * two,
        nll=2.3 * two,
        converged=two,
        provenance=PROVENANCE,
    )


def eigenvalues():
    return complete(
        Eigenvalues,
        rank=np.arange(1, 4),
        value=np.array([10.0, -8.0, 5.0]),
        residual=np.array([0.01, 0.1, 1.0]),
        converged=np.array([True, True, False]),
        which="LM",
        tol=1e-3,
        products=12,
        parameters=1000,
        nll=1.5,
        l2=0.0,
        weight_decay=0.0,
        provenance=PROVENANCE,
    )


def spectral_density():
    return complete(
        SpectralDensity,
        run=np.repeat([0, 1], 3),
        node=np.array([-2.0, 0.0, 50.0, -1.5, 0.1, 49.0]),
        weight=np.array([1e-3, 0.998, 1e-3, 2e-3, 0.997, 1e-3]),
        residual=np.zeros(6),
        parameters=1000,
        nll=1.5,
        l2=0.0,
        weight_decay=0.0,
        provenance=PROVENANCE,
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
        provenance=PROVENANCE,
    )


def risk_coverage():
    coverage = np.arange(1, 11) / 10
    return complete(
        RiskCoverage,
        coverage=coverage,
        risk=0.3 * coverage**2,
        confidence=1 - coverage / 2,
        aurc=0.1,
        provenance=PROVENANCE,
    )


def robustness():
    corruption = np.array(["clean", "fog", "fog", "jpeg_compression", "jpeg_compression"])
    return complete(
        Robustness,
        corruption=np.tile(corruption, 2),
        severity=np.tile([0, 1, 5, 1, 5], 2),
        metric=np.repeat(["accuracy", "ece"], 5),
        cutoff=np.full(10, np.nan),
        value=np.array([0.9, 0.8, 0.3, 0.85, 0.6, 0.1, 0.1, 0.1, 0.1, 0.1]),
        low=np.zeros(10),
        high=np.ones(10),
        provenance=PROVENANCE,
    )


def corruption_errors():
    return complete(
        CorruptionErrors,
        corruption=np.array(["fog", "jpeg_compression"]),
        error=np.array([0.45, 0.275]),
        ece=np.array([0.1, 0.1]),
        reference=np.array([0.82, np.nan]),
        relative=np.array([0.55, np.nan]),
        clean_error=0.1,
        mean_error=0.36,
        provenance=PROVENANCE,
    )


def stability():
    return complete(
        Stability,
        perturbation=np.array(["gaussian_noise", "tilt"]),
        frames=np.array([31, 31]),
        flip_rate=np.array([0.05, 0.02]),
        flip_low=np.array([0.04, 0.01]),
        flip_high=np.array([0.06, 0.03]),
        consistency=np.array([0.9, 0.98]),
        mean_flip_rate=0.035,
        provenance=PROVENANCE,
    )


def search_replacements():
    rows = [
        ("", 0, 0, (0.90, 0.91, 0.92), True),
        ("layer3.2", 1, 3, (0.93, 0.93, 0.94), True),
        ("layer3.0", 2, 3, (0.92, 0.93, 0.93), False),
        ("layer2.2", 2, 2, (0.94, 0.95, 0.95), True),
        ("", 0, 0, (0.90, 0.90, 0.91), True),  # with new seeds
        ("layer2.2", 2, 2, (0.93, 0.95, 0.94), True),
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
        stage=np.repeat([row[2] for row in rows], 3),
        parameters=np.repeat([272_474, 250_000, 230_000, 240_000, 272_474, 240_000], 3),
        seed=np.concatenate([np.tile(np.arange(3), 4), np.tile(np.arange(3, 6), 2)]),
        accuracy=np.concatenate([row[3] for row in rows]),
        selected=np.repeat([row[4] for row in rows], 3),
        provenance=PROVENANCE,
    )


def ablations():
    columns = {name: np.append(column[1:], column[3:4]) for name, column in BLOCKS.items()}
    return Ablations(
        **columns,
        ablated=np.array(["convolution", "block", "block", "block", "head 2"]),
        num_blocks=np.ones(5, dtype=int),
        accuracy=np.array([0.5, 0.7, 0.4, 0.8, 0.75]),
        drop=np.array([0.3, 0.1, 0.4, 0.0, 0.05]),
        drop_low=np.array([0.25, 0.06, 0.34, -0.02, 0.01]),
        drop_high=np.array([0.34, 0.13, 0.45, 0.02, 0.08]),
        nll=np.array([2.0, 1.5, 2.5, 1.0, 1.1]),
        nll_rise=np.array([1.0, 0.5, 1.5, 0.0, 0.1]),
        nll_rise_error=np.full(5, 0.1),
        partial=np.ones(5, dtype=bool),
        baseline_accuracy=0.8,
        baseline_nll=1.0,
        provenance=PROVENANCE,
    )


def kind_ablations():
    return KindAblations(
        ablated=np.full(3, "block"),
        comparison=np.array(["attention", "mlp", "attention minus mlp"]),
        num_blocks=np.array([2, 2, 4]),
        drop=np.array([0.4, 0.1, 0.3]),
        drop_low=np.array([0.35, 0.05, 0.2]),
        drop_high=np.array([0.45, 0.15, 0.4]),
        provenance=PROVENANCE,
    )


def joint_ablations():
    return JointAblations(
        num_blocks=np.array([2, 4]),
        draws=np.array([3, 3]),
        accuracy=np.array([0.6, 0.2]),
        drop=np.array([0.2, 0.6]),
        drop_min=np.array([0.1, 0.5]),
        drop_max=np.array([0.4, 0.7]),
        sum_of_drops=np.array([0.15, 0.3]),
        nll_rise=np.array([1.0, 3.0]),
        baseline_accuracy=0.8,
        provenance=PROVENANCE,
    )


def frequency_robustness():
    drop = np.array([0.1, 0.3, 0.6])
    return FrequencyRobustness(
        frequency=np.array([0.1, 0.5, 0.9]),
        rms=np.full(3, 0.1),
        accuracy=0.8 - drop,
        drop=drop,
        drop_low=drop - np.array([0.02, 0.05, 0.06]),
        drop_high=drop + np.array([0.02, 0.04, 0.05]),
        nll=drop + 1,
        nll_rise=drop,
        nll_rise_error=np.full(3, 0.1),
        clean_accuracy=0.8,
        clean_nll=1.0,
        provenance=PROVENANCE,
    )


def sensitivity():
    vertical, horizontal = (k.ravel() for k in np.mgrid[-2:3:2, -2:3:2])
    error = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2, 0.1])
    return FourierSensitivity(
        vertical=vertical,
        horizontal=horizontal,
        error=error,
        error_rise=error - 0.1,
        error_rise_error=np.full(9, 0.01),
        clean_error=0.1,
        mean_rise=0.2,
        mean_rise_low=0.15,
        mean_rise_high=0.25,
        rms=0.1,
        nyquist=16.0,
        provenance=PROVENANCE,
    )


def attacks():
    accuracy = np.array([0.7, 0.5, 0.6, 0.2, 0.4])
    return Adversarial(
        attack=np.array(["fgsm", "fgsm", "pgd", "pgd", "fgsm"]),
        loss=np.full(5, "cross-entropy"),
        norm=np.full(5, "linf"),
        epsilon=np.array([1, 4, 1, 4, 4]) / 255,
        frequency=np.array([np.nan] * 4 + [0.5]),
        steps=np.array([1, 1, 10, 10, 1]),
        restarts=np.ones(5, dtype=int),
        accuracy=accuracy,
        low=accuracy - 0.1,
        high=accuracy + 0.05,
        drop=0.8 - accuracy,
        drop_low=0.75 - accuracy,
        drop_high=0.83 - accuracy,
        nll=1.8 - accuracy,
        nll_rise=0.8 - accuracy,
        nll_rise_error=np.full(5, 0.05),
        zero_gradient=np.zeros(5),
        clean_accuracy=0.8,
        clean_nll=1.0,
        provenance=PROVENANCE,
    )


def cues():
    return complete(
        ShapeBias,
        category=np.array(["cat", "car", "all"]),
        images=np.array([10, 10, 20]),
        shape_decisions=np.array([6, 2, 8]),
        texture_decisions=np.array([2, 6, 8]),
        bias=np.array([0.75, 0.25, 0.5]),
        low=np.array([0.41, 0.07, 0.28]),
        high=np.array([0.93, 0.59, 0.72]),
        accuracy=np.array([0.6, 0.2, 0.4]),
        provenance=PROVENANCE,
    )


def rings():
    radii = np.repeat([0.1, 0.5, 1.0], 4)
    return complete(
        Rings,
        batch_norm=np.full(12, "frozen"),
        radius=radii,
        pair=np.tile([0, 0, 1, 1], 3),
        angle=np.tile([0.0, 3.0], 6),
        nll=2.0 + radii**2,
        rise=radii**2,
        rise_error=np.full(12, 0.01),
        accuracy=np.full(12, 0.5),
        classes=10,
        provenance=PROVENANCE,
    )


def sharpness():
    return complete(
        Sharpness,
        measure=np.repeat(["sam", "gaussian"], 12),
        batch=np.tile(np.arange(12), 2),
        rho=np.repeat([0.05, 1.0], 12),
        steps=np.repeat([1, 0], 12),
        sharpness=np.linspace(0.1, 0.4, 24),
        provenance=PROVENANCE,
    )


MAKERS = {
    maker.__name__: maker
    for maker in (
        spectrum,
        high_frequency,
        branch_transfer,
        variances,
        attention_statistics,
        attention_map,
        rollout,
        receptive_field,
        receptive_maps,
        singular_values,
        effective_ranks,
        similarity,
        structure,
        landscape,
        trajectory,
        patch_filters,
        patch_components,
        positional_similarity,
        relative_scores,
        kind_summary,
        kind_replication,
        costs,
        hessian_curves,
        hessian_summary,
        rings,
        sharpness,
        eigenvalues,
        spectral_density,
        reliability,
        risk_coverage,
        robustness,
        corruption_errors,
        stability,
        search_replacements,
        ablations,
        kind_ablations,
        joint_ablations,
        frequency_robustness,
        sensitivity,
        attacks,
        cues,
        history,
    )
}


@pytest.fixture(params=MAKERS)
def result(request):
    """Each type of result in turn."""
    return MAKERS[request.param]()


class Made(Mapping):
    """Every type of result, by name; made when it is first used."""

    def __getitem__(self, name):
        return MAKERS[name]()

    def __iter__(self):
        return iter(MAKERS)

    def __len__(self):
        return len(MAKERS)


@pytest.fixture
def made():
    """Every type of result, by name."""
    return Made()


@pytest.fixture
def ax():
    """Axes that no global figure knows."""
    from matplotlib.figure import Figure

    return Figure().subplots()
