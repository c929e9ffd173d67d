"""Laws of random streams (src/visprism/core/run.py)."""

import torch

from visprism.core.run import stream


def draw(*use):
    return torch.randn(4, generator=stream(*use))


def test_a_stream_begins_alike_every_time_and_other_seeds_and_uses_have_others():
    assert torch.equal(draw(3, "lanczos", 1), draw(3, "lanczos", 1))
    uses = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", "1"), (0, "a1")]
    draws = [draw(*use) for use in uses]
    assert not any(torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
