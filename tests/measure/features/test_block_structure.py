"""Laws of the block structure (src/visprism/measure/features/block_structure.py)."""

from dataclasses import replace

import numpy as np
import pytest

from visprism.core.errors import InputError
from visprism.measure.features import block_structure
from visprism.results.similarity import Similarity


def similar(stages, cka, defined=None):
    """A similarity of a stem and blocks in these stages; `cka` by their places in the row."""
    stages = np.array([0, *stages])
    n = len(stages)
    first, other = (axis.ravel() for axis in np.indices((n, n)))
    names = np.array(["stem", *(f"block{i}" for i in range(1, n))])
    kinds = np.array(["stem"] + ["conv"] * (n - 1))
    values = np.array([float(cka(i, j)) for i, j in zip(first, other, strict=True)])
    return Similarity(
        block=names[first],
        kind=kinds[first],
        stage=stages[first],
        depth=first / (n - 1),
        subsampling=np.zeros(n * n, dtype=bool),
        other=names[other],
        other_kind=kinds[other],
        other_stage=stages[other],
        other_depth=other / (n - 1),
        cka=values,
        cka_error=np.zeros(n * n),
        biased=values,
        biased_error=np.zeros(n * n),
        defined=np.ones(n * n, dtype=bool) if defined is None else defined,
    )


STAGES = [1, 1, 1, 2, 2, 2]


def test_stages_that_are_all_or_nothing_score_1():
    stages = [0, *STAGES]
    result = block_structure(similar(STAGES, lambda i, j: stages[i] == stages[j]))
    assert result.score == 1
    assert result.stage.tolist() == [1, 1, 2]
    assert result.other_stage.tolist() == [1, 2, 2]
    assert result.pairs.tolist() == [3, 9, 3]
    assert result.cka.tolist() == [1, 0, 1]
    # One block apart are five pairs, four of them within; two apart, two of four.
    assert result.expected[0] == pytest.approx((2 * 4 / 5 + 2 / 4) / 3)
    np.testing.assert_allclose(result.excess, result.cka - result.expected)
    (said,) = result.sentences()
    assert "are more alike than blocks as far apart in two (mean CKA 1.00 in one of 2" in said


def test_similarity_that_falls_with_distance_alone_scores_0():
    result = block_structure(similar(STAGES, lambda i, j: 0.8 ** abs(i - j)))
    assert result.score == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(result.excess, 0, atol=1e-15)


def test_neither_the_stem_nor_undefined_blocks_count():
    stages = [0, *STAGES]
    whole = similar(STAGES, lambda i, j: (stages[i] == stages[j]) * 0.9 - 0.5 * (i * j == 0))
    assert block_structure(whole).score == pytest.approx(0.9)
    dead = (whole.block == "block2") | (whole.other == "block2")
    marked = replace(whole, defined=~dead, cka=np.where(dead, 0.0, whole.cka))
    assert block_structure(marked).score == pytest.approx(0.9)
    assert block_structure(marked).pairs.tolist() == [1, 6, 3]


def test_one_stage_has_no_structure_to_speak_of():
    result = block_structure(similar([1, 1, 1], lambda *_: 0.5))
    assert np.isnan(result.score)
    assert result.sentences() == ["there is one stage, so no block structure"]


def test_stages_of_one_block_each_cannot_be_told():
    result = block_structure(similar([1, 2, 3], lambda *_: 0.5))
    assert np.isnan(result.score)
    assert np.isnan(result.cka[0])
    assert "cannot be told" in result.sentences()[0]


def test_a_comparison_of_two_models_is_refused():
    comparison = replace(similar(STAGES, lambda *_: 0.5), other_model="another")
    with pytest.raises(InputError, match="is a property of one model"):
        block_structure(comparison)
