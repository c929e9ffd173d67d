"""The engine: one update of a model, its optimizers and its moving average, on a device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from visprism.anatomy.trace.forward import forward
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import add_up, gather, rank, world_size
from visprism.core.run import stream
from visprism.training.losses import LabelLoss, distillation_loss
from visprism.training.optimizers import freeze, make_optimizers, sam_displaced
from visprism.training.recipe import Recipe
from visprism.training.sharding import (
    broadcast_tensors,
    check_shardable,
    full_state,
    load_module,
    load_optimizer,
    local,
    shard,
    whole,
)

Batch = tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]


class Engine:
    """Makes updates; `state` is all that a run must store besides the number of its step.

    The model is trained in place, or with `sharded` a copy, which is sharded over the
    processes. The teacher of distillation sees the images that the model sees.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        compute: Compute,
        teacher: nn.Module | None,
        label_loss: LabelLoss,
        *,
        sharded: bool = False,
    ) -> None:
        self.label_loss = label_loss
        self.given, self.recipe, self.compute, self.teacher = model, recipe, compute, teacher
        self.sharded, self.is_mixed = sharded, compute.precision == "bf16"
        if sharded:
            check_shardable(model, recipe)
            model = deepcopy(model)
        self.frozen = freeze(model, recipe.freeze)
        if recipe.channels_last and not sharded:
            model.to(memory_format=torch.channels_last)  # pyrefly: ignore
        self.device = compute.torch_device
        self.model = model
        # With DDP None until the first batch, which shows whether all parameters are used.
        self.wrapped: Any = None
        if sharded or world_size() == 1:
            self.wrapped = self._wrap()
        else:
            model.to(self.device)
            broadcast_tensors((*model.parameters(), *model.buffers()), self.device)
        optimizers = make_optimizers(model, recipe)
        self.optimizers = [optimizer for optimizer, _ in optimizers]
        self._lr_factors = [factor for _, factor in optimizers]
        self.average = None
        if recipe.ema:
            # Average of the given model, whose weights are still the same and which is not
            # sharded.
            self.average = moving_average(self.given, recipe.ema)
            if sharded:
                shard(self.average.module, self.device)
        if teacher is not None:
            teacher.to(self.device).eval()

    def _wrap(self, *, unused: bool = False) -> nn.Module:
        """The model as it is called; with `unused` DDP searches the graph in every step."""
        model: Any = self.model.to(self.device) if not self.sharded else self.model
        if self.recipe.compile:
            # Code for dynamic sizes would depend on the first batch that it sees, and a resumed
            # run would not end with the same weights.
            model = torch.compile(model, dynamic=False)
        if self.sharded:
            return shard(model, self.device)
        if world_size() == 1:
            return model
        devices = None if self.device.type == "cpu" else [self.device]
        return DistributedDataParallel(model, devices, find_unused_parameters=unused)

    def update(self, step: int, lr: float, batch: Batch, batch_images: int) -> Tensor:
        """One update by a batch of `batch_images` images, of which `batch` is the local share.

        Returns the sum of the losses of all images of the batch, at the weights before it.
        """
        recipe = self.recipe
        self.wrapped = self.wrapped or self._wrap_ddp(batch)
        for optimizer, factor in zip(self.optimizers, self._lr_factors, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = factor * lr * group.get("lr_factor", 1.0)
        total = self._gradient(step, batch, batch_images)
        if recipe.sam_rho:
            with sam_displaced(self.model, recipe.sam_rho, adaptive=recipe.adaptive):
                self._gradient(step, batch, batch_images)
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.sharded:
            # Running statistics of the first process, as with DDP.
            floats = (b for b in self.model.buffers() if b.is_floating_point())
            broadcast_tensors(floats, self.device)
        if self.average is not None:
            self.average.update_parameters(self.model)
        return total

    def state(self) -> dict[str, Any]:
        """All tensors that an update changes, and the optimizers' numbers.

        If the model is sharded, every process must call it; the first one gets full tensors.
        """
        average = {} if self.average is None else self.average.state_dict()
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        state = {"model": self.model.state_dict(), "optimizers": optimizers, "average": average}
        return full_state(state) if self.sharded else state

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        load_module(self.model, state["model"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            load_optimizer(optimizer, stored)
        if self.average is not None:
            load_module(self.average, state["average"])

    def full(self, model: nn.Module) -> nn.Module:
        """The model or its average; if it is sharded, the given model with its full weights.

        If the model is sharded, every process must call it.
        """
        if not self.sharded:
            return model
        state = self.given.state_dict()
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                state[name].copy_(whole(tensor))
        return self.given

    def nonfinite_weight(self) -> str | None:
        """The name of a parameter or running statistic that is not finite, or None.

        If the model is sharded, every process must call it.
        """
        tensors = self.model.state_dict(keep_vars=True).items()
        checked = (
            (name, local(tensor.detach()))
            for name, tensor in tensors
            if tensor.requires_grad or name.endswith(("running_mean", "running_var"))
        )
        name = next((name for name, t in checked if not bool(t.isfinite().all())), None)
        return next(filter(None, gather(name)), None) if self.sharded else name

    @contextmanager
    def training(self) -> Iterator[None]:
        """Inside, the model is in training mode; on exit the global generator is restored."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            self.model.train()
            for module in self.frozen:  # whose BatchNorm keeps its running statistics
                module.eval()
            try:
                yield
            finally:
                self.model.eval()
                self.given.eval()

    def _gradient(self, step: int, batch: Batch, batch_images: int) -> Tensor:
        """Write the gradient of the mean loss to the parameters; returns the sum of losses.

        Losses are summed and divided once by the number of images, so that every image has the
        same weight in any split over processes and passes. (DDP divides by the processes.)
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        # Dropout depends only on the step, so that no generator state must be stored.
        torch.manual_seed(stream(self.recipe.seed, "step", step, rank()).initial_seed())
        # The same number in every process: passes of a sharded model wait for each other.
        count = min(self.recipe.grad_accum_steps, -(-batch_images // world_size()))
        passes = list(zip(*(tensor.tensor_split(count) for tensor in batch), strict=True))
        total = torch.zeros((), device=self.device)
        for number, (images, targets) in enumerate(passes, start=1):
            # Gradients of a sharded model are reduced in every pass.
            postponed = number < len(passes) and not self.sharded
            apart = postponed and isinstance(self.wrapped, DistributedDataParallel)
            with self.wrapped.no_sync() if apart else nullcontext():
                loss = self._losses(self.wrapped, images, targets).sum()
                (loss * (world_size() / batch_images)).backward()
            total += loss.detach()
        return add_up(total)

    def _wrap_ddp(self, batch: Batch) -> nn.Module:
        """The model in DDP, which must know whether the loss depends on every parameter."""
        model, count = self.model, self.recipe.grad_accum_steps
        images, targets = (tensor.tensor_split(count)[0] for tensor in batch)
        unused = has_unused_parameters(model, lambda: self._losses(model, images, targets))
        return self._wrap(unused=any(gather(unused)))

    def _losses(self, model: nn.Module, images: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        images = images.to(self.device, non_blocking=True)
        targets = targets.to(self.device, non_blocking=True)
        if self.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed):
                outputs = model(images)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise InputError(
                f"each forward pass must have at least 2 images for BatchNorm: {error}. Change "
                "batch_size or grad_accum_steps; the last batch counts too."
            ) from error
        losses = self.label_loss(outputs, targets)
        if self.teacher is None:
            return losses
        with torch.no_grad(), self.compute.autocast():
            teacher_logits = forward(self.teacher, images)
        return distillation_loss(losses, outputs, teacher_logits, self.recipe)


def moving_average(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model that each update makes decay * average + (1 - decay) * model.

    The first update copies the model; each one copies integers, such as indices. With sharded
    tensors each process updates its shard.
    """
    rule = get_ema_multi_avg_fn(decay)
    tensors = tuple[Tensor, ...] | list[Tensor]

    def update(average: tensors, current: tensors, count: Tensor | int) -> None:
        if average[0].is_floating_point() or average[0].is_complex():
            rule([local(t) for t in average], [local(t) for t in current], count)
        else:
            for mine, given in zip(average, current, strict=True):
                local(mine).copy_(local(given))

    return AveragedModel(model, multi_avg_fn=update, use_buffers=True)


def has_unused_parameters(model: nn.Module, losses: Callable[[], Tensor]) -> bool:
    """Whether there is a trainable parameter that the losses do not depend on.

    Costs a forward and a backward pass; running statistics and gradients are left as they are.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    before = [buffer.clone() for buffer in model.buffers()]
    gradients = torch.autograd.grad(losses().sum(), parameters, allow_unused=True)
    with torch.no_grad():
        for buffer, stored in zip(model.buffers(), before, strict=True):
            buffer.copy_(stored)
    return any(gradient is None for gradient in gradients)
