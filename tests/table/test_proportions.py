"""Intervals of proportions (src/visprism/estimates/estimated.py) in sentences and figures."""

from dataclasses import replace

import numpy as np

from visprism import Provenance, plot
from visprism.analyses.features.readout import RIDGE, Readouts
from visprism.analyses.features.token_norms import OutlierTokens
from visprism.core.statistics import mean_fraction_interval, wilson
from visprism.estimates.estimated import Estimated, Number, fraction, mean, proportion

BLOCKS = {
    "block": np.array(["a", "b"]),
    "kind": np.array(["conv", "mlp"]),
    "stage": np.array([0, 0]),
    "depth": np.array([0.0, 1.0]),
    "subsampling": np.array([False, False]),
}
IMAGES = 20


def readouts() -> Readouts:
    correct = np.ones((IMAGES, 2))
    correct[0, 0] = 0
    return Readouts(
        **BLOCKS,
        readout=np.full(2, RIDGE),
        accuracy=mean(correct, proportion),
        dimension=np.full(2, 8),
        pooling="mean",
        evaluation="5 folds",
        chance=0.1,
        lens_note="",
        provenance=replace(Provenance(), images=IMAGES),
    )


def bars(result: Readouts) -> np.ndarray:
    """Ends of the bars of a figure: (rows, 2)."""
    (container,) = plot(result).containers
    return np.array([segment[:, 1] for segment in container.lines[2][0].get_segments()])


def test_sentence_answer_and_figure_of_readouts_have_wilsons_interval():
    result = readouts()
    low, high = wilson(np.array([19, 20]), np.full(2, IMAGES))
    np.testing.assert_allclose(bars(result), np.stack([low, high], axis=1))
    (answer,) = result.answers()
    assert (answer.low, answer.high) == (low[1], high[1])
    text = str(result.findings()[0])
    assert f"0.95 [{low[0]:.3g}, {high[0]:.3g}] at a" in text
    assert f"1 [{low[1]:.3g}, 1] at b" in text


def test_the_figure_of_shares_of_outliers_has_their_interval_within_0_and_1():
    shares = np.zeros((IMAGES, 2))
    shares[0, 1] = 0.02
    result = OutlierTokens(
        **BLOCKS,
        share=mean(shares, fraction),
        largest=Estimated(np.ones(2)),
        threshold=4.0,
        mean_share=Number(0.0005),
        provenance=replace(Provenance(), images=IMAGES),
    )
    error = shares.std(0, ddof=1) / IMAGES**0.5
    low, high = mean_fraction_interval(shares.mean(0), error, IMAGES)
    segments = np.array(
        [c.lines[2][0].get_segments()[0][:, 1] for c in plot(result).containers]
    )
    np.testing.assert_allclose(segments, np.stack([low, high], axis=1))
    assert (segments >= 0).all()
