"""Every figure shows the numbers of its result: values, ends of intervals, and places."""

import numpy as np
import pytest

from visprism import plot

SHOWN = {
    "spectrum": "frequency relative relative_low relative_high",
    "high_frequency": "depth relative relative_low relative_high",
    "branch_transfer": "frequency gain gain_low gain_high",
    "variances": "depth variance variance_low variance_high",
    "attention_statistics": "depth distance distance_low distance_high",
    "rollout": "weight",
    "receptive_field": "depth sigma sigma_low sigma_high uniform_sigma",
    "receptive_maps": "relative",
    "evolution": "step value value_low value_high",
    "training_curvature": "step eigenvalue threshold",
    "trajectory": "first second",
    "patch_components": "first second third",
    "positional_similarity": "cosine",
    "relative_scores": "weight",
    "kind_summary": "mean mean_low mean_high",
    "hessian_curves": "value density",
    "loss_by_distance": "radius rise rise_low rise_high",
    "sharpness": "sharpness",
    "eigenvalues": "rank value",
    "reliability": "lower upper confidence accuracy",
    "class_accuracy": "accuracy accuracy_low accuracy_high",
    "confusions": "fraction",
    "risk_coverage": "coverage risk",
    "corruption_errors": "error reference clean_error",
    "stability": "flip_rate flip_rate_low flip_rate_high",
    "search_replacements": "accuracy",
    "kind_ablations": "drop drop_low drop_high",
    "frequency_robustness": "frequency drop drop_low drop_high",
    "sensitivity": "error",
    "attacks": "epsilon accuracy",
    "cues": "bias bias_low bias_high",
    "distribution_shift": "accuracy accuracy_low accuracy_high reference",
    "history": "epoch train_loss test_nll ema_nll",
}


def drawn(ax):
    """Every number that an artist of the axes is drawn at, or colored by."""
    parts = [line.get_xydata() for line in ax.lines]
    parts += [image.get_array() for image in ax.images]
    for patch in ax.patches:
        if hasattr(patch, "get_width"):
            (x, y), width, height = patch.get_xy(), patch.get_width(), patch.get_height()
            parts.append([x, y, width, height, x + width, y + height])
    for collection in ax.collections:
        parts += [collection.get_offsets(), *(p.vertices for p in collection.get_paths())]
        parts += [collection.get_array()] if collection.get_array() is not None else []
    parts += [drawn(child) for child in ax.child_axes]
    return np.concatenate(
        [np.ma.filled(np.ma.asarray(p, float), np.nan).ravel() for p in parts]
    )


@pytest.mark.parametrize("name", SHOWN)
def test_a_figure_shows_the_numbers_of_its_result(made, ax, name):
    result = made[name]
    numbers = drawn(plot(result, ax))
    for column in SHOWN[name].split():
        values = result.columns()[column]
        missing = [v for v in values[np.isfinite(values)] if not np.isclose(numbers, v).any()]
        assert not missing, f"{column}: {missing}"


def test_attention_maps_show_the_mean_over_heads_from_0_on(made, ax):
    result = made["attention_map"]
    plot(result, ax)
    for name, image in zip(("attn", "attn#2"), ax.images, strict=True):
        rows = result.select(result.block == name)
        mean = rows.weight.reshape(2, 3, 4).mean(0)  # heads, rows, columns
        assert np.asarray(image.get_array()) == pytest.approx(mean)
        assert image.get_clim() == (0, mean.max())
