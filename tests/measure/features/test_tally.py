"""Laws of the tally (src/visprism/measure/features/tally.py)."""

import numpy as np
import pytest

from visprism.core.provenance import Provenance
from visprism.measure.features import tally
from visprism.results.fourier import HighFrequency, Spectrum
from visprism.results.variance import Variances


def high_frequency(kinds, changes, subsampling=None):
    n = len(changes)
    return HighFrequency(
        block=np.array([f"block{i}" for i in range(n)]),
        kind=np.array(kinds),
        stage=np.zeros(n, dtype=int),
        depth=np.linspace(0, 1, n),
        subsampling=np.array(subsampling or [False] * n),
        frequency=np.ones(n),
        relative=np.zeros(n),
        relative_error=np.zeros(n),
        change=np.array(changes, dtype=float),
        change_error=np.zeros(n),
    )


def variances(kinds, changes):
    columns = vars(high_frequency(kinds, changes))
    shared = ("block", "kind", "stage", "depth", "subsampling", "change", "change_error")
    zeros = np.zeros(len(changes))
    return Variances(
        **{name: columns[name] for name in shared},
        variance=zeros,
        variance_error=zeros,
        relative=zeros,
        relative_error=zeros,
    )


# What it measures: closed forms.


def test_counts_falls_and_averages_by_kind():
    result = tally(high_frequency(["attention", "mlp"] * 3, [-1, 2, -3, 4, 1, 6]))
    assert result.kind.tolist() == ["attention", "mlp"]
    assert result.blocks.tolist() == [3, 3]
    assert result.falls.tolist() == [2, 0]
    np.testing.assert_allclose(result.mean, [-1, 4])


def test_the_sign_test_is_that_of_a_fair_coin():
    # All of n alike: 2 / 2^n. 9 of 12: twice the chance of 9 or more heads.
    result = tally(high_frequency(["mlp"] * 5 + ["conv"] * 12, [1] * 5 + [-1] * 9 + [1] * 3))
    np.testing.assert_allclose(result.p, [2 / 2**5, 2 * (220 + 66 + 12 + 1) / 2**12])


def test_the_interval_is_students():
    result = tally(high_frequency(["conv"] * 4, [1, 2, 3, 4]))
    margin = 3.182446 * np.sqrt(5 / 3 / 4)  # the 97.5 % point of t with 3 degrees of freedom
    np.testing.assert_allclose(
        [result.low[0], result.high[0]], [2.5 - margin, 2.5 + margin], rtol=1e-6
    )


# What leaves it unchanged: invariances.


def test_blocks_without_a_change_of_their_own_do_not_count():
    counted = high_frequency(["conv"] * 3, [-1, -2, 3])
    more = high_frequency(
        ["stem", "conv", "conv", "conv", "conv", "conv"],
        [np.nan, -1, -2, 0, 7, 3],
        [False, False, False, False, True, False],
    )
    for name, column in tally(counted).columns().items():
        np.testing.assert_array_equal(tally(more).columns()[name], column)


def test_nothing_to_count_is_an_empty_table():
    result = tally(high_frequency(["stem"], [np.nan]))
    assert len(result) == 0
    assert result.sentences() == [
        "no block keeps its grid and changes the high-frequency log amplitude"
    ]


# Contracts and errors.


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            high_frequency(["attention"] * 12, [-0.8] * 9 + [0.3, 0.3, 0.3]),
            "9 of 12 attention blocks are low-pass (mean change -0.53, 95 % interval -0.84 to "
            "-0.21, sign test p = 0.15, which may be chance)",
        ),
        (
            high_frequency(["mlp"] * 14, [20.0] * 7 + [30.0] * 7),
            "14 of 14 mlp blocks are high-pass (mean change +25, 95 % interval +22 to +28, "
            "sign test p < 0.001)",
        ),
        (
            high_frequency(["token-mixing"], [-0.004]),
            "the only token-mixing block counted is low-pass (change -0.004)",
        ),
        (
            variances(["attention"] * 2, [-0.5, -0.25]),
            "2 of 2 attention blocks reduce the variance of the feature maps (mean change "
            "-38 %, 95 % interval -196 % to +121 %, sign test p = 0.5, which may be chance)",
        ),
        (
            variances(["conv"] * 2, [-0.5, 0.25]),
            "1 of 2 conv blocks reduces the variance of the feature maps (mean change -12 %, "
            "95 % interval -489 % to +464 %, sign test p = 1, which may be chance)",
        ),
        (
            variances(["mlp"], [0.031]),
            "the only mlp block counted raises the variance of the feature maps (change "
            "+3.1 %)",
        ),
    ],
    ids=["low", "high", "one", "reduce", "tie", "raise"],
)
def test_sentences_carry_the_numbers(result, sentence):
    assert tally(result).sentences() == [sentence]


def test_provenance_is_handed_on():
    result = high_frequency(["conv"], [1]).with_provenance(model="resnet", images=7)
    assert tally(result).provenance == Provenance(model="resnet", images=7)


def test_survives_being_written_and_read(tmp_path):
    result = tally(high_frequency(["conv", "mlp"], [-1, 1]))
    result.save(tmp_path / "tally.npz")
    assert type(result).load(tmp_path / "tally.npz").sentences() == result.sentences()


def test_a_whole_spectrum_is_refused():
    spectrum = Spectrum(**dict.fromkeys(Spectrum.__match_args__[:11], np.zeros(1)))
    with pytest.raises(
        ValueError, match=r"made of HighFrequency or Variances, not of Spectrum"
    ):
        tally(spectrum)
