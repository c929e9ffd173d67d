"""The engine: a model, its optimisers, and what else one update changes, on a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import torch
from jaxtyping import Float
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from visprism.anatomy import forward
from visprism.core.devices import Compute
from visprism.core.processes import add_up, gather, rank, world_size
from visprism.core.rng import stream
from visprism.training.averages import averaged
from visprism.training.batch_checks import all_parameters_used, explain_batchnorm_error
from visprism.training.compiling import compiled
from visprism.training.distillation import distillation_loss, task_loss
from visprism.training.fabric_setup import fabric_for
from visprism.training.optimizers import make_optimizers
from visprism.training.recipe import Recipe
from visprism.training.sam import ascended
from visprism.training.sharding import (
    check_shardable,
    gather_into,
    load_module,
    load_optimizer,
    same_buffers,
    same_tensors,
    whole_state,
)

Batch = tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]


class Engine:
    """Makes updates; its state is all that a run must keep besides the number of its step.

    Args:
        model: is trained in place.
        recipe: how.
        compute: on which device, in which precision.
        teacher: of distillation; it is given the images that the model is given.
        sharded: share a copy of the model out among the processes; see `sharding`.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        compute: Compute,
        teacher: nn.Module | None,
        *,
        sharded: bool = False,
    ) -> None:
        self.given, self.recipe, self.compute, self.teacher = model, recipe, compute, teacher
        self.sharded = sharded
        if sharded:
            check_shardable(model, recipe)
            model = deepcopy(model)
        elif recipe.channels_last:
            model.to(memory_format=torch.channels_last)  # pyrefly: ignore
        self.fabric: Fabric = fabric_for(compute, sharded=sharded)
        self.model = model
        self.wrapped: Any = None  # until a batch tells DDP whether the loss reaches everything
        if sharded or world_size() == 1:
            self.wrapped = self._wrapped()
        else:
            self.fabric.to_device(model)
            same_tensors(model, self.fabric.device)
        made = make_optimizers(model, recipe)
        self._own = [optimizer for optimizer, _ in made]
        self._factors = [factor for _, factor in made]
        self._wrapped_optimizers = [
            cast(Optimizer, self.fabric.setup_optimizers(own)) for own in self._own
        ]
        self.average = None
        if recipe.ema:
            # Of the model that was given, which has the same weights yet, and is not sharded.
            self.average = averaged(self.given, recipe.ema)
            if sharded:
                self.fabric.setup_module(self.average.module)
        if teacher is not None:
            teacher.to(self.fabric.device).eval()

    def _wrapped(self) -> nn.Module:
        made = compiled(self.model, self.fabric.device) if self.recipe.compile else self.model
        return self.fabric.setup_module(made)

    def update(self, step: int, lr: float, batch: Batch, whole: int) -> Tensor:
        """One update by a batch of `whole` images, of which this process has its part.

        Returns the sum of the losses of all images of the batch, at the weights before it.
        """
        recipe = self.recipe
        self.wrapped = self.wrapped or self._wrapped_by(batch, whole)
        for optimizer, factor in zip(self._own, self._factors, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = factor * lr
        total = self._gradient(step, batch, whole)
        if recipe.sam:
            with ascended(self.model, recipe.sam, adaptive=recipe.adaptive):
                self._gradient(step, batch, whole)
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        for optimizer in self._wrapped_optimizers:
            optimizer.step()
        if self.sharded:
            same_buffers(self.model)
        if self.average is not None:
            self.average.update_parameters(self.model)
        return total

    def state(self) -> dict[str, Any]:
        """All tensors that an update changes, and what goes with them.

        Of a sharded model every process must ask, and the first is given them whole.
        """
        average = {} if self.average is None else self.average.state_dict()
        optimizers = [optimizer.state_dict() for optimizer in self._own]
        state = {"model": self.model.state_dict(), "optimizers": optimizers, "average": average}
        return whole_state(state) if self.sharded else state

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        load_module(self.model, state["model"])
        for optimizer, own in zip(self._own, state["optimizers"], strict=True):
            load_optimizer(optimizer, own)
        if self.average is not None:
            load_module(self.average, state["average"])

    def whole(self, model: nn.Module) -> nn.Module:
        """The model or its average; of a sharded one, the given model with its weights.

        Of a sharded model every process must ask.
        """
        if not self.sharded:
            return model
        gather_into(self.given, model)
        return self.given

    @contextmanager
    def training(self) -> Iterator[None]:
        """Inside, the model is in training mode; a global generator is lent to dropout."""
        devices = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            self.model.train()
            try:
                yield
            finally:
                self.model.eval()
                self.given.eval()

    def _gradient(self, step: int, batch: Batch, whole: int) -> Tensor:
        """Leave the gradient of the mean loss in the parameters; the sum of the losses.

        Every image counts alike, however it came to its part and process: losses are summed,
        and divided by the number of images of all. (DDP divides by that of processes.)
        """
        for optimizer in self._own:
            optimizer.zero_grad()
        # What a model draws depends on the step alone, so that no state of a generator is kept.
        torch.manual_seed(stream(self.recipe.seed, "step", step, rank()).initial_seed())
        # As many parts in every process: those of a sharded model wait for each other.
        count = min(self.recipe.parts, -(-whole // world_size()))
        parts = list(zip(*(tensor.tensor_split(count) for tensor in batch), strict=True))
        total = torch.zeros((), device=self.fabric.device)
        for number, (images, targets) in enumerate(parts, start=1):
            # Gradients of a sharded model are never whole, so that each part is added up.
            held = number < len(parts) and not self.sharded
            with self.fabric.no_backward_sync(self.wrapped, enabled=held):
                with explain_batchnorm_error(self.model, len(images), whole, len(parts)):
                    loss = self._losses(self.wrapped, images, targets).sum()
                self.fabric.backward(loss * (world_size() / whole))
            total += loss.detach()
        return add_up(total)

    def _wrapped_by(self, batch: Batch, whole: int) -> nn.Module:
        """Wrapped by DDP, which is told whether the loss reaches every parameter."""
        model, parts = self.model, self.recipe.parts
        images, targets = (tensor.tensor_split(parts)[0] for tensor in batch)
        told = explain_batchnorm_error(model, len(images), whole, parts)
        with told, self.fabric.autocast():
            reaches = all_parameters_used(model, lambda: self._losses(model, images, targets))
        self.fabric = fabric_for(self.compute, unreached=not all(gather(reaches)))
        return self._wrapped()

    def _losses(self, model: nn.Module, images: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        images = images.to(self.fabric.device, non_blocking=True)
        targets = targets.to(self.fabric.device, non_blocking=True)
        if self.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        outputs = model(images)
        if self.teacher is None:
            return task_loss(outputs, targets)
        with torch.no_grad(), self.compute.autocast():
            taught = forward(self.teacher, images)
        return distillation_loss(outputs, targets, taught, self.recipe)
