"""Files of version 0.1 of ablations, noise, attacks and costs are read with today's columns."""

import json

import numpy as np
import pytest

from visprism import Result
from visprism.table.result import renaming


def written(path, name, **values):
    """A file as version 0.1 wrote it: with the class name, and without a schema."""
    np.savez(path, **values, __type__=name, __provenance__=json.dumps({"images": 9}))
    return Result.load(path)


def test_lesions_have_heads_from_1_and_intervals(tmp_path):
    n = 3
    result = written(
        tmp_path / "a.npz",
        "Lesions",
        block=np.array(["b1", "b2", "b2"]),
        kind=np.full(n, "attention"),
        stage=np.ones(n, int),
        depth=np.zeros(n),
        subsampling=np.zeros(n, bool),
        removed=np.array(["block", "head 0", "head 2 of #2"]),
        number=np.ones(n, int),
        accuracy=np.full(n, 0.5),
        drop=np.full(n, 0.2),
        drop_error=np.full(n, 0.1),
        nll=np.ones(n),
        nll_rise=np.ones(n),
        nll_rise_error=np.ones(n),
        resumed=np.array([True, False, True]),
        whole_accuracy=0.7,
        whole_nll=1.0,
        left_out="stem",
    )
    assert result.ablated.tolist() == ["block", "head 1", "head 3 of #2"]
    assert result.drop_low == pytest.approx(0.2 - 0.196, abs=1e-4)
    assert result.partial.tolist() == [True, False, True]
    assert (result.baseline_accuracy, result.not_ablated) == (0.7, "stem")


def test_lesions_together_are_joint_ablations(tmp_path):
    names = ("number", "draws", "accuracy", "drop", "drop_least", "drop_most", "drop_apart",
             "nll_rise")  # fmt: skip
    columns = {name: np.array([i + 1.0]) for i, name in enumerate(names)}
    result = written(tmp_path / "a.npz", "LesionsTogether", **columns, whole_accuracy=0.7)
    assert (result.num_blocks[0], result.drop_min[0], result.sum_of_drops[0]) == (1, 5, 7)


def test_attacks_were_made_with_the_cross_entropy(tmp_path):
    names = ("epsilon", "frequency", "steps", "restarts", "accuracy", "low", "high", "drop",
             "drop_error", "nll", "nll_rise", "nll_rise_error")  # fmt: skip
    result = written(
        tmp_path / "a.npz",
        "Adversarial",
        attack=np.array(["random", "pgd"]),
        norm=np.full(2, "linf"),
        **{name: np.full(2, 0.1) for name in names},
        clean_accuracy=0.7,
        clean_nll=1.0,
    )
    assert result.loss.tolist() == ["", "cross-entropy"]
    assert np.isnan(result.zero_gradient).all()
    assert result.findings()


def test_noise_has_intervals_and_no_contrast(tmp_path):
    names = ("frequency", "rms", "accuracy", "drop", "drop_error", "nll", "nll_rise",
             "nll_rise_error")  # fmt: skip
    result = written(
        tmp_path / "a.npz",
        "FrequencyRobustness",
        **{name: np.full(2, 0.1) for name in names},
        clean_accuracy=0.7,
        clean_nll=1.0,
        width=0.1,
        ring="round",
        left_out="",
    )
    assert result.band_shape == "round"
    assert result.drop_high == pytest.approx(0.1 + 0.196, abs=1e-4)
    assert len(result.findings()) == 1


def test_costs_have_channels_height_and_width(tmp_path):
    result = written(
        tmp_path / "a.npz",
        "Costs",
        block=np.array(["stem", "head"]),
        kind=np.array(["stem", "head"]),
        stage=np.zeros(2, int),
        depth=np.zeros(2),
        subsampling=np.zeros(2, bool),
        shape=np.array(["64x8x16", "10"]),
        parameters=np.array([1, 2]),
        macs=np.array([3, 4]),
        distinct_parameters=3,
    )
    sizes = (result.channels.tolist(), result.height.tolist(), result.width.tolist())
    assert sizes == ([64, 10], [8, 1], [16, 1])


def test_sharpness_was_of_one_gradient_step_and_named_its_rule(tmp_path):
    names = ("rho", "sharpness", "first_order", "loss", "gradient_norm")
    result = written(
        tmp_path / "a.npz",
        "Sharpness",
        rule=np.array(["sam", "gaussian"]),
        draws=4,
        **{name: np.full(2, 0.1) for name in names},
    )
    assert result.measure.tolist() == ["sam", "gaussian"]
    assert (result.directions, result.steps.tolist()) == (4, [1, 1])


def test_a_renamed_field_keeps_its_value():
    upgrade = renaming(foreground="background_threshold")
    assert upgrade({"foreground": 0.5, "first": 1}) == {"background_threshold": 0.5, "first": 1}
