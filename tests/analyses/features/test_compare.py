"""Laws of CKA between two models (`compare` in src/visprism/analyses/features/cka.py)."""

import pytest
import torch
from maps import results_of
from small_models import OneBlock
from torch import nn

from visprism import CKA, InputError, compare, dissect


def network(seed, *, width=4, side=8):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = OneBlock(width, patch=1).eval().double()
    return dissect(model, torch.zeros(2, 3, side, side, dtype=torch.float64))


@pytest.fixture
def images(noise):
    return noise(12, 3, 8, 8)


def test_two_models_by_what_their_blocks_give(images):
    a, b = network(0), network(1, width=6)
    result = compare(a, b, images.split(6), other_model="wide")
    maps = []
    for anatomy in (a, b):
        maps.append(anatomy.model.stem(images).detach())
    (expected, _) = results_of(CKA(), *maps, cut=6)
    assert (result.block[0], result.other[0]) == ("stem", "stem")
    assert result.cka[0] == pytest.approx(expected.cka[1], rel=1e-12)
    assert 0 < result.cka[0] < 1
    assert result.other_model == "wide"
    assert result.provenance.images == 12


def test_each_model_may_have_batches_of_its_own(images):
    a, b = network(0), network(1, side=16)
    large = nn.functional.interpolate(images, scale_factor=2)
    result = compare(a, b, images.split(6), large.split(6))
    assert result.defined.all()
    with pytest.raises(InputError, match=r"images of one size, got 3x8x8 and 3x16x16\. "):
        compare(a, b, images.split(6))


def test_the_mean_over_pairs_answers_how_similar_two_models_are(noise):
    result = compare(network(0), network(1), noise(40, 3, 8, 8).split(5), other_model="wide")
    (answer,) = result.answers()
    assert answer.value == pytest.approx(result.cka.mean())
    assert answer.low < answer.value < answer.high
    assert answer.reading.startswith(f"largest of {len(result)} pairs {result.cka.max():.3g} (")
