"""Laws of token similarity (src/visprism/analyses/features/token_similarity.py)."""

import numpy as np
import pytest
import torch
from maps import blocks_of, error_of, gathered, small_vit, tokens_by_hand

from visprism import TokenSimilarity, dissect
from visprism.analyses.features.token_similarity import SERIES
from visprism.passes.features import observations
from visprism.passes.tokens import Tokens


def cosines(tokens, off=None):
    """The cosine of each choice of tokens (b, n, c) on a grid of one row."""
    grid = tokens.mT[:, :, None].contiguous()
    off = tokens[:, :0] if off is None else off
    (block,) = blocks_of(grid)
    seen = Tokens(block, grid, off, ("register",) * off.shape[1])
    (result,) = gathered(TokenSimilarity(), [{block: seen}])
    return dict(zip(result.tokens.tolist(), result.cosine.tolist(), strict=True))


def mean_over_pairs(tokens):
    """The definition: every pair of two different tokens."""
    values = []
    for image in tokens:
        pairs = [(a, b) for i, a in enumerate(image) for j, b in enumerate(image) if i != j]
        values.append(np.mean([a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs]))
    return np.array(values)


@pytest.mark.parametrize(
    ("tokens", "off", "expected"),
    [
        ([[3.0, 0.1, 7.0]] * 5, None, {"grid": 1, "grid, mean removed": np.nan}),
        # 72 pairs of +1 and 18 of -1 without the mean
        ([[5, 0]] + [[0, 1]] * 9, None, {"grid": 0.8, "grid, mean removed": 0.6}),
        ([[1, 0], [1, 0]], [[0, 1]], {"grid": 1, "all tokens": 1 / 3}),
        ([[1, 0], [0, 0], [1, 1]], None, {"grid": 0.5**0.5}),
    ],
    ids=["equal", "one against all", "off the grid", "no direction"],
)
def test_cosines_by_hand(tokens, off, expected):
    off = None if off is None else torch.tensor([off]).double()
    values = cosines(torch.tensor([tokens]).double(), off)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, abs=1e-12, nan_ok=True)


@torch.no_grad()
def test_agrees_with_all_pairs_of_the_tokens_of_a_vision_transformer():
    model, images = (
        small_vit(depth=1, reg_tokens=2).double(),
        torch.randn(4, 3, 32, 32).double(),
    )
    (x, *_, last), _ = tokens_by_hand(model, images)
    grid, every = x[:, 3:].numpy(), x.numpy()
    choices = [grid, grid - grid.mean(1, keepdims=True), every]
    choices.append(every - every.mean(1, keepdims=True))
    anatomy = dissect(model, images)
    ((result,),) = observations(anatomy, [images[:3], images[3:]], [TokenSimilarity()])
    stem = result.select(result.block == "stem")
    assert stem.tokens.tolist() == list(SERIES)
    for row, choice in enumerate(choices):
        expected = mean_over_pairs(choice)
        assert stem.cosine[row] == pytest.approx(expected.mean())
        assert error_of(stem.cosine, 4)[row] == pytest.approx(expected.std(ddof=1) / 2)
    (answer,) = result.answers()
    np.testing.assert_allclose(answer.by_unit, mean_over_pairs(last[:, 3:].numpy()))
