"""Averages: weights and buffers that follow those of a model, slowly."""

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from visprism.training.sharding import local

Tensors = tuple[Tensor, ...] | list[Tensor]


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model; each update makes it decay * itself + (1 - decay) * the model.

    The first update makes it the model. Of sharded tensors each process moves its part.
    """
    rule = get_ema_multi_avg_fn(decay)

    def moved(average: Tensors, current: Tensors, count: Tensor | int) -> None:
        rule([local(t) for t in average], [local(t) for t in current], count)

    return AveragedModel(model, multi_avg_fn=moved, use_buffers=True)
