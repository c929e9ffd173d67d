"""The objective: the mean loss over a data set, as a function of the parameters."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from visprism.anatomy import Anatomy, Images, check_repeatable, dissect
from visprism.anatomy.trace.forward import as_written
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import add_up, share
from visprism.measure.loss.batch_graph import Graph, Logits, first_images, flat, moved
from visprism.measure.loss.batch_norm_folding import Pair, foldable, folded
from visprism.measure.loss.double_backward import BatchNorm, differentiable
from visprism.measure.loss.losses import Loss, cross_entropy, losses_of
from visprism.measure.loss.parameter_selection import Selection, selected
from visprism.measure.loss.pointwise import CachedDerivatives

if TYPE_CHECKING:
    from visprism.measure.loss.products import Matrix


@dataclass(frozen=True, eq=False)
class Objective:
    """L(theta) = 1/N sum_n l(f(x_n; theta), y_n) + wd/2 |theta_decayed|^2, and its derivatives.

    `theta` is one vector of the chosen parameters, in the order of the model's own; the others
    stay as they are. The two terms, NLL and L2, are also to be had apart. The model itself is
    never touched: everything is computed with copies of its tensors.

    Args:
        model: a classifier in evaluation mode, so that dropout and stochastic depth are off.
        batches: (images, targets), read once per derivative, so it must be re-iterable. Images
            as `forward` takes them.
        loss: ``(logits, targets) -> losses`` of shape (B,), one per example. Sums are taken
            here, so a smaller last batch carries its own weight and no more.
        weight_decay: wd.
        decayed: which of the chosen parameters decay; see `Selection`.
        parameters: which parameters theta is made of; see `Selection`.
        batch_norm: "frozen" normalises by the statistics of training, and the loss is a mean
            over examples; "batch" by those of each batch, so that it depends on the cut.
        compute: device. Derivatives are taken in the precision of the parameters.
        shared: whether several processes share the batches; if not, each has its own.

    Raises:
        InputError: if the model is in training mode, there is no batch, a selection matches
            nothing, the weight decay is negative, or the model gives other logits each time.
    """

    model: nn.Module
    batches: Iterable  # of (images, targets)
    loss: Loss = cross_entropy
    weight_decay: float = 0.0
    decayed: Selection = "all"
    parameters: Selection = "all"
    batch_norm: BatchNorm = "frozen"
    compute: Compute = CPU
    shared: bool = True
    tensors: dict[str, Tensor] = field(init=False, repr=False)  # all of the model's, copied
    names: tuple[str, ...] = field(init=False, repr=False)  # of the chosen parameters
    decay: Float[Tensor, " p"] = field(init=False, repr=False)  # wd where theta decays, or 0
    folds: tuple[Pair, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(m.training for m in self.model.modules()):
            raise InputError("the model is in training mode; call model.eval() first")
        if not 0 <= self.weight_decay < inf:
            raise InputError(f"weight_decay is {self.weight_decay}; wants 0 or more")
        if self.batch_norm not in {"frozen", "batch"}:
            raise InputError(f"batch_norm is {self.batch_norm!r}; wants 'frozen' or 'batch'")
        if isinstance(self.batches, Iterator):
            raise InputError(
                "the batches can be gone through only once; give a list of them, or a loader"
            )
        first = next(iter(self.batches), None)
        if not isinstance(first, tuple | list) or len(first) != 2:
            raise InputError(
                "an objective needs batches of (images, targets), got "
                f"{'none' if first is None else type(first).__name__}"
            )
        some = first_images(first[0])
        with as_written():
            check_repeatable(self.model, some)

        def anatomy() -> Anatomy:
            return dissect(self.model, some)

        names = selected(self.model, self.parameters, anatomy)
        decayed = set(selected(self.model, self.decayed, anatomy))
        device = self.compute.torch_device
        tensors = {
            n: t.detach().to(device, copy=True)
            for n, t in (*self.model.named_parameters(), *self.model.named_buffers())
        }
        decay = [
            torch.full(
                (tensors[n].numel(),), self.weight_decay * (n in decayed), dtype=torch.float64
            )
            for n in names
        ]
        broken = [name for name in names if not torch.isfinite(tensors[name]).all()]
        if broken:
            raise InputError(
                f"{len(broken)} parameters are not finite (such as {broken[0]}); give a model "
                "with finite weights"
            )
        frozen = self.batch_norm == "frozen"
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "tensors", tensors)
        object.__setattr__(self, "decay", torch.cat(decay).to(tensors[names[0]]))
        object.__setattr__(self, "folds", foldable(self.model, some) if frozen else ())

    def __len__(self) -> int:
        """Number of parameters P."""
        return len(self.decay)

    @property
    def theta(self) -> Float[Tensor, " p"]:
        """The chosen parameters as they are in the model."""
        return torch.cat([self.tensors[name].flatten() for name in self.names])

    def unflatten(self, theta: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """Views of `theta` in the shapes of the parameters, by name.

        Raises:
            InputError: if `theta` does not have one entry per parameter.
        """
        if theta.shape != (len(self),):
            raise InputError(
                f"a vector of shape {tuple(theta.shape)} for {len(self)} parameters; wants one "
                "entry for each"
            )
        chunks = theta.split([self.tensors[name].numel() for name in self.names])
        return {n: c.view_as(self.tensors[n]) for n, c in zip(self.names, chunks, strict=True)}

    def logits(self, leaves: Mapping[str, Tensor], images: Images) -> Tensor:
        """What the model gives for the images, with `leaves` in the place of parameters."""
        with CachedDerivatives():
            return self.plain_logits(leaves, images)

    def plain_logits(self, leaves: Mapping[str, Tensor], images: Images) -> Tensor:
        """`logits` through torch's own operations alone, as its transformations need them."""
        whole = {f"model.{name}": t for name, t in (self.tensors | dict(leaves)).items()}
        with differentiable(self.model, self.batch_norm), folded(self.model, self.folds):
            on_device = moved(images, self.compute.torch_device)
            return functional_call(Logits(self.model), whole, (on_device,))

    def losses(self, logits: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """The loss of each example of a batch."""
        if not isinstance(targets, Tensor) or len(targets) != len(logits):
            got = len(targets) if isinstance(targets, Tensor) else type(targets).__name__
            raise InputError(
                f"a batch has {len(logits)} images and {got} targets; wants a tensor with one "
                "target for each image"
            )
        return losses_of(self.loss, logits, targets.to(self.compute.torch_device))

    def nll(self, theta: Float[Tensor, " p"] | None = None) -> float:
        """Mean of the loss over the examples, at the model's own theta by default."""
        leaves = self.unflatten(self.theta if theta is None else theta)
        total = torch.zeros(2, dtype=torch.float64)
        for images, targets in self._own_batches():
            losses = self.losses(self.logits(leaves, images), targets).double()
            total += torch.tensor([float(losses.sum()), len(losses)], dtype=total.dtype)
        loss, examples = self.add_up(total).tolist()
        return loss / examples

    def l2(self, theta: Float[Tensor, " p"] | None = None) -> float:
        """wd/2 |theta|^2 over the parameters that decay."""
        theta = self.theta if theta is None else theta
        return float((self.decay.double() * theta.double() ** 2).sum() / 2)

    def value(self, theta: Float[Tensor, " p"] | None = None) -> float:
        """NLL + L2."""
        return self.nll(theta) + self.l2(theta)

    def gradient(self, theta: Float[Tensor, " p"] | None = None) -> Float[Tensor, " p"]:
        """Gradient of NLL + L2; one pass forward and one backward."""
        theta = self.theta if theta is None else theta
        total, examples = torch.zeros_like(theta), 0
        for graph in self.graphs(theta):
            found = torch.autograd.grad(graph.loss, graph.leaves, materialize_grads=True)
            total += flat(found)
            examples += graph.examples
        return self.mean_of(total, examples) + self.decay * theta

    def hvp(self, v: Float[Tensor, "*s p"]) -> Float[Tensor, "*s p"]:
        """Hessian times v, or times each row of v.

        For one product after the other make `Products` once, which keeps its graphs.

        Raises:
            InputError: if v does not fit, or an operation cannot be differentiated twice.

        Source: Pearlmutter (1994), Fast exact multiplication by the Hessian.
        """
        return self._times("hessian", v)

    def gauss_newton_product(self, v: Float[Tensor, "*s p"]) -> Float[Tensor, "*s p"]:
        """Gauss-Newton matrix times v, or times each row of v; see `Products`.

        Raises:
            InputError: as `hvp`.

        Source: Schraudolph (2002), Fast curvature matrix-vector products.
        """
        return self._times("gauss-newton", v)

    def _times(self, matrix: "Matrix", v: Tensor) -> Tensor:
        from visprism.measure.loss.products import Products  # which is made of objectives

        rows = v.reshape(1, -1, v.shape[-1])
        return Products(self, matrix)(rows).reshape(v.shape)

    def graphs(
        self, theta: Float[Tensor, " p"] | None = None, *, skip: int = 0
    ) -> Iterator[Graph]:
        """For each batch of this process, the first `skip` left out, the way to the loss.

        Raises:
            InputError: if a loss is not finite.
        """
        parts = self.unflatten(self.theta if theta is None else theta)
        for number, (images, targets) in enumerate(islice(self._own_batches(), skip, None)):
            leaves = {name: part.clone().requires_grad_() for name, part in parts.items()}
            logits = self.logits(leaves, images)
            with torch.enable_grad():
                losses = self.losses(logits, targets)
                loss = losses.sum()
            if not torch.isfinite(losses).all():
                bad = int((~torch.isfinite(losses)).sum())
                raise InputError(
                    f"the loss of {bad} of {len(losses)} examples of batch {skip + number} is "
                    "not finite; a curvature is defined where the loss is, so look at the "
                    "weights and the images"
                )
            yield Graph(list(leaves.values()), logits, loss, len(losses))

    def add_up(self, value: Tensor) -> Tensor:
        """The sum of what the processes that share the batches have."""
        return add_up(value) if self.shared else value

    def mean_of(self, total: Tensor, examples: int) -> Tensor:
        """A sum over the examples of this process, as the mean over those of all; in place."""
        count = float(self.add_up(torch.tensor(float(examples))))
        return self.add_up(total).div_(count)

    def _own_batches(self) -> Iterable:
        return share(self.batches) if self.shared else self.batches
