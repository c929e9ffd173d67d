"""Laws of cache chunks (src/visprism/passes/blocks.py): no cut counts."""

import pytest
import torch
from einops import rearrange
from internals import channel_mean

from visprism import Fourier, FourierPlane, Variance
from visprism.passes import blocks as chunks


def tokens(x):
    """A view of tokens with a class token before them, as a layout makes it."""
    row = rearrange(x, "b c h w -> b (h w) c")
    row = torch.cat([row[:, :1], row], 1)
    return rearrange(row[:, 1:], "b (h w) c -> b c h w", h=x.shape[2])


ORDERS = [lambda x: x, lambda x: x.contiguous(memory_format=torch.channels_last), tokens]


@pytest.fixture
def small_cache(monkeypatch):
    """`small_cache(n)`: chunks of n images of 3x6x4 in float64."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    image = 3 * 6 * 4 * 8
    return lambda images: monkeypatch.setattr(chunks, "_PER_CORE", images * image)


@pytest.mark.parametrize("order", ORDERS, ids=["contiguous", "channels last", "tokens"])
def test_chunks_are_full_images_in_order_and_no_copies(noise, small_cache, order):
    x = order(noise(7, 3, 6, 4))
    small_cache(2)
    parts = list(chunks.cache_chunks(x))
    assert len(parts) == 4
    first_and_last = [parts[0].flatten()[0], parts[-1].flatten()[-1]]
    assert first_and_last == [x[0, 0, 0, 0], x[-1, -1, -1, -1]]
    storage = x.untyped_storage().data_ptr()
    assert {part.untyped_storage().data_ptr() for part in parts} == {storage}


@pytest.mark.parametrize("order", ORDERS, ids=["contiguous", "channels last", "tokens"])
def test_the_channel_mean_of_chunks_is_that_of_the_map(noise, small_cache, order):
    x = order(noise(7, 3, 6, 4))
    small_cache(2)
    means = [channel_mean(part.flatten(1, 2), x) for part in chunks.cache_chunks(x)]
    torch.testing.assert_close(torch.cat(means), x.flatten(2).mean(1))


@pytest.mark.parametrize("order", ORDERS, ids=["contiguous", "channels last", "tokens"])
@pytest.mark.parametrize("statistic", [Fourier(), FourierPlane(), Variance()])
def test_statistics_see_the_same_in_chunks(noise, small_cache, order, statistic):
    x = noise(7, 3, 6, 4)
    small_cache(7)
    at_once = statistic.extract(x)
    small_cache(2)
    torch.testing.assert_close(statistic.extract(order(x)), at_once, rtol=1e-9, atol=1e-12)
