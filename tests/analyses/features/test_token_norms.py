"""Laws of token norms (src/visprism/analyses/features/token_norms.py)."""

import numpy as np
import pytest
import torch
from maps import blocks_of, error_of, gathered, small_vit, tokens_by_hand

from visprism import TokenNorms, dissect
from visprism.core.statistics import mean_interval
from visprism.passes.features import observations
from visprism.passes.tokens import Tokens
from visprism.results import (
    AttentionSinks,
    MassiveActivations,
    OutlierPlaces,
    OutlierTokens,
    TokenNormMedians,
)


def found(grid, off=None, roles=(), **options):
    """All results of one batch of one block."""
    off = grid.new_zeros(len(grid), 0, grid.shape[1]) if off is None else off
    (block,) = blocks_of(grid)
    return gathered(TokenNorms(**options), [{block: Tokens(block, grid, off, roles)}])


def one(results, kind):
    return next(result for result in results if isinstance(result, kind))


@pytest.mark.parametrize(("size", "count"), [(3.9, 0), (4.1, 1)])
def test_an_outlier_exceeds_the_median_by_the_threshold(size, count):
    grid = torch.ones(2, 1, 4, 4).double()
    grid[0, 0, 1, 2] = size
    results = found(grid, outlier_threshold=4.0)
    outliers = one(results, OutlierTokens)
    assert outliers.share.item() == count / 32
    assert outliers.largest.item() == pytest.approx((size + 1) / 2)
    assert outliers.mean_share == count / 32
    places = [r for r in results if isinstance(r, OutlierPlaces)]
    assert len(places) == count
    if count:
        expected = np.zeros((4, 4))
        expected[1, 2] = 0.5  # in one of two images
        np.testing.assert_array_equal(places[0].pictures()["block0"], expected)


def test_the_largest_activation_has_its_channel_and_token():
    grid, off = torch.ones(1, 5, 3, 3).double(), torch.ones(1, 2, 5).double()
    off[0, 0, 3] = -5000
    massive = one(found(grid, off, ("class", "register")), MassiveActivations)
    assert massive.log_ratio.item() == pytest.approx(np.log10(5000))
    assert massive.channel.item() == 3
    assert massive.channel_share == massive.massive == massive.on_prefix == 1
    for size, median in ((500, 1), (50, 0.01)):  # not 1,000 times the median, not above 100
        less = median * off
        less[0, 0, 3] = size
        results = found(median * grid, less, ("class", "register"))
        assert one(results, MassiveActivations).massive == 0


def test_activations_of_zero_do_not_count_in_the_median():
    grid = torch.zeros(1, 3, 2, 2).double()
    grid[0, 0, 0] = torch.tensor([2.0, 8.0])
    massive = one(found(grid), MassiveActivations)
    assert massive.log_ratio.item() == pytest.approx(np.log10(4))  # the lower of two
    assert massive.channel == massive.on_prefix == 0


@torch.no_grad()
def test_agrees_with_tokens_and_attention_by_hand():
    model = small_vit(embed_dim=16, reg_tokens=2).double()
    for parameter in model.parameters():
        parameter.data *= 4  # attention that is not uniform
    images = torch.randn(5, 3, 32, 32).double()
    tokens, attention = ([x.numpy() for x in part] for part in tokens_by_hand(model, images))
    analysis = TokenNorms(outlier_threshold=1.3, sink_threshold=0.1)
    results = observations(dissect(model, images), [images[:2], images[2:]], [analysis])[0]
    result, outliers, massive, sinks = (
        one(results, kind)
        for kind in (TokenNormMedians, OutlierTokens, MassiveActivations, AttentionSinks)
    )
    names = outliers.block.tolist()
    assert len(names) == len(tokens) == 5
    for i, (name, x) in enumerate(zip(names, tokens, strict=True)):
        norms = np.linalg.norm(x, axis=2)
        groups = {"class token": norms[:, 0], "registers": norms[:, 1:3], "grid": norms[:, 3:]}
        for group, values in groups.items():
            row = result.select((result.block == name) & (result.tokens == group))
            medians = np.median(values.reshape(5, -1), axis=1)
            assert row.norm.item() == pytest.approx(medians.mean(), rel=1e-12)
            assert error_of(row.norm, 5).item() == pytest.approx(medians.std(ddof=1) / 5**0.5)
        grid = norms[:, 3:]
        share = (grid > 1.3 * np.median(grid, axis=1, keepdims=True)).mean(1)
        assert outliers.share[i] == pytest.approx(share.mean())
        largest = (grid / np.median(grid, axis=1, keepdims=True)).max(1)
        error = largest.std(ddof=1) / 5**0.5
        assert error_of(outliers.largest, 5)[i] == pytest.approx(error)
        sizes = np.sort(abs(x).reshape(5, -1), axis=1)
        lower = sizes[:, (sizes.shape[1] - 1) // 2]
        counts = np.bincount(abs(x).max(1).argmax(1))
        assert massive.channel[i] == counts.argmax()
        assert massive.channel_share[i] == counts.max() / 5
        assert massive.on_prefix[i] == (abs(x).max(2).argmax(1) < 3).mean()
        assert massive.log_ratio[i] == pytest.approx(np.log10(sizes[:, -1] / lower).mean())
    for i, weights in enumerate(attention):
        received = weights.mean(2)
        assert sinks.largest[i] == pytest.approx(received.max(-1).mean())
        assert sinks.sink_heads[i] == pytest.approx((received.max(-1) > 0.1).mean())
    shares = [(w.mean(2).max(-1) > 0.1).mean() for w in attention]
    assert sinks.mean_sink_heads == pytest.approx(np.mean(shares))
    assert sinks.mean_sink_heads.low < np.mean(shares) < sinks.mean_sink_heads.high
    assert 0 < sinks.sink_heads.mean() < 1
    assert 0 < outliers.mean_share < 1


def test_the_interval_of_the_mean_share_is_that_of_the_shares_of_the_images():
    grid = torch.ones(60, 1, 4, 4).double()
    (none,) = one(found(grid), OutlierTokens).answers()
    assert np.isnan([none.low, none.high]).all()
    grid[:8, 0, 0, 0] = 100
    outliers = one(found(grid), OutlierTokens)
    shares = np.where(np.arange(60) < 8, 1 / 16, 0.0)
    low, high = mean_interval(shares)
    (answer,) = outliers.answers()
    assert (answer.low, answer.high) == pytest.approx((low, high))
    assert 0 < answer.low < outliers.mean_share < answer.high
