"""Laws of the block structure (src/visprism/analyses/features/block_structure.py)."""

import numpy as np
import pytest
import torch
from maps import results_of
from results_by_hand.base import complete

from visprism import CKA
from visprism.analyses.features.block_structure import block_structure
from visprism.estimates.estimated import Number
from visprism.results import BlockStructure

STAGES = [1, 1, 1, 2, 2, 2]


def structured(cka, stages=STAGES, place=range(6)):
    """The block structure of blocks in these stages; `cka` by their places in the row."""
    values = np.array([[float(cka(i, j)) for j in place] for i in place])
    return block_structure(values, np.array(place), np.array(stages))


def test_stages_that_are_all_or_nothing_score_1():
    result = structured(lambda i, j: STAGES[i] == STAGES[j])
    assert result.score == 1
    assert result.stage.tolist() == [1, 1, 2]
    assert result.other_stage.tolist() == [1, 2, 2]
    assert result.pairs.tolist() == [3, 9, 3]
    assert result.cka.tolist() == [1, 0, 1]
    # One block apart are five pairs, four of them within; two apart, two of four.
    at_distance = (2 * 4 / 5 + 2 / 4) / 3
    assert result.excess[0] == pytest.approx(result.cka[0] - at_distance)


@pytest.mark.parametrize("place", [[0, 1, 2, 3, 4, 5], [0, 2, 3, 4, 5]])
def test_similarity_that_falls_with_distance_alone_scores_0(place):
    result = structured(lambda i, j: 0.8 ** abs(i - j), [STAGES[i] for i in place], place)
    assert result.score == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(result.excess, 0, atol=1e-15)


def test_neither_the_stem_nor_undefined_blocks_count(noise):
    maps = [noise(9, 3, 2, 2) for _ in range(6)]
    maps[2] = torch.ones_like(maps[2])  # the same for all images
    kinds, stages, place = ["stem", *["conv"] * 5], [0, 1, 1, 1, 2, 2], [1, 3, 4, 5]
    similarity, result = results_of(CKA(), *maps, kinds=kinds, stages=stages)
    cka = similarity.matrix()
    expected = structured(lambda i, j: cka[i, j], [stages[i] for i in place], place)
    assert result.pairs.tolist() == expected.pairs.tolist() == [1, 4, 1]
    assert result.score == pytest.approx(expected.score)


def test_stages_of_one_block_each_cannot_be_told():
    result = structured(lambda *_: 0.5, [1, 2, 3], range(3))
    assert np.isnan(result.score)
    assert np.isnan(result.cka[0])
    assert "block structure is not available" in result.findings()[0].text
    assert result.answers() == ()


MARGIN = 2.262157  # the 97.5% point of t with 9 degrees of freedom


def structure(score, groups):
    margin = MARGIN * 0.01 if groups >= 5 else np.nan
    return complete(
        BlockStructure,
        stage=np.array([1, 1, 2]),
        other_stage=np.array([1, 2, 2]),
        pairs=np.array([1, 1, 2]),
        excess=np.array([0.3, 0.0, -0.1]),
        score=Number(score, score - margin, score + margin),
        groups=groups,
    )


_WHERE = "within stages than between in 1 of 2 stages"


@pytest.mark.parametrize(
    ("score", "reading"), [(0.02, ""), (0.05, f"higher {_WHERE}"), (-0.05, f"lower {_WHERE}")]
)
def test_a_score_within_its_interval_of_0_is_not_significant(score, reading):
    result = structure(score, 10)
    (answer,), (finding,) = result.answers(), result.findings()
    assert ("not significant" in finding.text) == (not reading)
    assert (answer.reading, answer.over) == (reading, "batches")
    assert not structure(score, 4).answers()[0].reading  # no interval


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("batches", [8, 40])  # fewer and more than there are groups
def test_the_interval_covers_the_population_score(batches):
    generator = np.random.default_rng(0)
    stages, repeats = [1, 1, 1, 2, 2, 2], 300
    shared = [generator.normal(size=(6, 8)) for _ in range(2)]
    maps = [shared[s - 1] + 0.7 * generator.normal(size=(6, 8)) for s in stages]
    # Linear CKA of features A_i z of white noise z is |A_i A_j'|² / (|A_i A_i'| |A_j A_j'|).
    norm, covered = np.linalg.norm, 0
    gram = [[norm(a @ b.T) ** 2 / (norm(a @ a.T) * norm(b @ b.T)) for b in maps] for a in maps]
    truth = structured(lambda i, j: gram[i][j], stages).score
    for seed in range(repeats):
        z = np.random.default_rng(seed + 1).normal(size=(16 * batches, 8))
        features = [torch.from_numpy(z @ a.T)[:, :, None, None] for a in maps]
        _, result = results_of(CKA(), *features, cut=16, stages=stages)
        covered += result.score.low <= truth <= result.score.high
    assert 0.92 <= covered / repeats <= 0.975
