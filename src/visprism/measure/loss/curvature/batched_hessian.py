"""The Hessians of several mini-batches of one shape, multiplied at once.

Each mini-batch is a separate problem. The model runs on all of them in one pass, each with its
own copy of the parameters, so that one backward pass gives the products of all problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import grad

from visprism.core.errors import InputError
from visprism.measure.loss.double_backward import check_twice
from visprism.measure.loss.objective import Objective


@dataclass
class BatchedHessian:
    """V -> A V, where row b is multiplied by the Hessian of the mean NLL of mini-batch b."""

    objective: Objective
    batches: Sequence[tuple[Tensor, Tensor]]  # of one shape
    nll: Float[Tensor, " b"] = field(init=False)  # of each mini-batch

    def __post_init__(self) -> None:
        objective, count = self.objective, len(self.batches)
        images = torch.stack([images for images, _ in self.batches])
        targets = torch.cat([targets for _, targets in self.batches])
        self._leaves = {
            name: part.expand(count, *part.shape).clone().requires_grad_()
            for name, part in objective.unflatten(objective.theta).items()
        }
        try:
            logits = torch.vmap(objective.plain_logits)(self._leaves, images)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise InputError(f"parallel_batches must be 1 for this model ({reason})") from error
        with torch.enable_grad():
            losses = objective.losses(logits.flatten(0, 1), targets).unflatten(0, (count, -1))
            means = losses.mean(1)
            if not torch.isfinite(means).all():
                bad = int((~torch.isfinite(means)).sum())
                raise InputError(
                    f"losses must be finite, got {bad} of {count} mini-batches where they are "
                    "not. Check the weights and the images."
                )
            inputs = list(self._leaves.values())
            self._gradient = grad(
                means.sum(), inputs, create_graph=True, materialize_grads=True
            )
        check_twice(self._gradient, means.sum())
        self.nll = means.detach()

    def __call__(self, vectors: Float[Tensor, "b 1 p"]) -> Float[Tensor, "b 1 p"]:
        """The Hessian of each mini-batch times its vector."""
        inputs = list(self._leaves.values())
        parts = vectors[:, 0].split([leaf[0].numel() for leaf in inputs], dim=1)
        chosen = [i for i, g in enumerate(self._gradient) if g.requires_grad]
        products = grad(
            [self._gradient[i] for i in chosen],
            inputs,
            [parts[i].view_as(inputs[i]) for i in chosen],
            retain_graph=True,
            materialize_grads=True,
        )
        return torch.cat([part.flatten(1) for part in products], 1)[:, None]
