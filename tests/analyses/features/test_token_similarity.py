"""Laws of token similarity (src/visprism/analyses/features/token_similarity.py)."""

import numpy as np
import pytest
import torch
from internals import SERIES, Tokens, observations
from maps import blocks_of, error_of, gathered
from timm.models.vision_transformer import VisionTransformer

from visprism import TokenSimilarity, dissect


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


def test_equal_tokens_have_cosine_one_and_nothing_is_left_of_them():
    values = cosines(torch.tensor([3.0, 0.1, 7.0]).expand(2, 5, 3))
    assert values["grid"] == pytest.approx(1)
    assert np.isnan(values["grid, mean removed"])


def test_orthogonal_tokens_have_cosine_zero_and_minus_one_over_their_number_less_one():
    values = cosines(2 * torch.eye(5).double()[None])
    assert values["grid"] == pytest.approx(0, abs=1e-12)
    assert values["grid, mean removed"] == pytest.approx(-1 / 4)


def test_opposite_tokens_have_cosine_minus_one():
    assert cosines(torch.tensor([[[1.0, 2.0], [-1.0, -2.0]]]))["grid"] == pytest.approx(-1)


def test_one_token_against_all_others_that_are_equal():
    values = cosines(torch.tensor([[[5.0, 0.0]] + [[0.0, 1.0]] * 9]).double())
    assert values["grid"] == pytest.approx(8 / 10)
    assert values["grid, mean removed"] == pytest.approx(0.6)  # 72 pairs of +1, 18 of -1


def test_a_common_direction_is_what_the_mean_takes_away(noise):
    values = cosines(noise(4, 64, 32) + 10)
    assert values["grid"] > 0.95
    assert abs(values["grid, mean removed"] + 1 / 63) < 1e-3


def test_tokens_off_the_grid_count_only_among_all_tokens():
    tokens = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    values = cosines(tokens, torch.tensor([[[0.0, 1.0]]]))
    assert values["grid"] == pytest.approx(1)
    assert values["all tokens"] == pytest.approx(1 / 3)


def test_a_token_without_a_direction_is_in_no_pair():
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]])
    assert cosines(tokens)["grid"] == pytest.approx(0.5**0.5)


def test_rotation_scale_and_the_order_of_tokens_change_nothing(noise):
    tokens = noise(3, 9, 6) + 0.5
    turn = torch.linalg.qr(noise(6, 6))[0]
    moved = 4 * (tokens @ turn)[:, torch.randperm(9)]
    assert cosines(moved) == pytest.approx(cosines(tokens))


@torch.no_grad()
def test_agrees_with_all_pairs_of_the_tokens_of_a_vision_transformer():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        options = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "num_heads": 2}
        model = VisionTransformer(**options, depth=1, reg_tokens=2).eval().double()
        images = torch.randn(4, 3, 32, 32).double()
    x = model._pos_embed(model.patch_embed(images))
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
    last = model.norm_pre(x)
    last = model.blocks(last)[:, 3:].numpy()
    (answer,) = result.answers()
    np.testing.assert_allclose(answer.by_unit, mean_over_pairs(last))
