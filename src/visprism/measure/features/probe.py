"""Probes: statistics of feature maps, gathered batch by batch in one pass over the data."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Block
from visprism.result import Result


class Probe(ABC):
    """A streaming statistic of feature maps.

    Its state is sums and counts: fixed in size, and blind to how the data was cut into batches
    or spread over processes. `visprism.testing.check_probe` checks it.
    """

    @abstractmethod
    def extract(self, x: Float[Tensor, "b c h w"]) -> Tensor:
        """What to keep of one block's feature map; pure, and called inside the forward pass."""

    @abstractmethod
    def update(self, batch: Mapping[Block, Tensor]) -> None:
        """Add one batch: block -> what `extract` kept of it, blocks in forward order."""

    @abstractmethod
    def result(self) -> Result:
        """The statistic over everything added so far.

        Raises:
            InputError: if nothing was.
        """
