"""Randomness of corruptions: a generator per image, independent of the batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from visprism.core.run import stream


@dataclass(frozen=True)
class Randomness:
    """A generator for each image of a batch, which depends on the seed and the image's index.

    Numbers are drawn on the CPU, so that they are the same for every device.
    """

    seed: int
    use: str
    numbers: Sequence[int]  # of the images
    device: torch.device

    @cached_property
    def generators(self) -> list[Generator]:
        """One for each image."""
        return [stream(self.seed, self.use, number) for number in self.numbers]

    def of(self, part: slice) -> "Randomness":
        """The randomness of some of the images, from the start."""
        return replace(self, numbers=self.numbers[part])

    def normal(self, *shape: int) -> Float[Tensor, "b ..."]:
        """Standard normal numbers."""
        return self._each(lambda generator: torch.randn(shape, generator=generator))

    def uniform(self, *shape: int) -> Float[Tensor, "b ..."]:
        """Uniform numbers in [0, 1)."""
        return self._each(lambda generator: torch.rand(shape, generator=generator))

    def integers(self, low: int, high: int, *shape: int) -> Int64[Tensor, "b ..."]:
        """Integers in [low, high)."""
        return self._each(
            lambda generator: torch.randint(low, high, shape, generator=generator)
        )

    def poisson(self, rates: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Poisson counts with these means."""
        pairs = zip(rates.cpu(), self.generators, strict=True)
        counts = [torch.poisson(rate, generator=generator) for rate, generator in pairs]
        return torch.stack(counts).to(self.device)

    def _each(self, draw: Callable[[Generator], Tensor]) -> Tensor:
        return torch.stack([draw(generator) for generator in self.generators]).to(self.device)
