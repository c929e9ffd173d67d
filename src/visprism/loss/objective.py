"""The objective: the mean loss over a data set, as a function of the parameters."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, islice

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.trace.forward import (
    Images,
    as_written,
    check_repeatable,
    forward,
    pixels,
    placed,
)
from visprism.core.devices import require_one_device
from visprism.core.errors import InputError
from visprism.core.processes import add_up, share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.double_backward import (
    BatchNorm,
    check_batch_norm,
    check_gradients,
    differentiable,
)
from visprism.passes.batches import (
    check_evaluation_mode,
    first_images,
    on_device,
    with_targets,
)
from visprism.passes.predictions import check_logits

# "trained" (with requires_grad, or all where none has it); "all"; "matrices" (trained ones,
# without biases, norms, tokens and position embeddings);
# a name or a pattern of names, such as "blocks.*.attn.*"; "block:NAME", "stage:NUMBER" or
# "kind:KIND" of the model's anatomy; a block; or several of these.
Selection = str | Block | Iterable[str | Block]


def selected(
    model: nn.Module, selection: Selection, anatomy: Callable[[], Anatomy]
) -> tuple[str, ...]:
    """Names of the chosen floating-point parameters, in the order of the model."""
    parameters = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
    if not parameters:
        raise InputError(f"model must have parameters, and {type(model).__name__} has none")
    anatomy = cache(anatomy)
    parts = [selection] if isinstance(selection, str | Block) else list(selection)
    chosen = {name for part in parts for name in _matching(parameters, part, anatomy)}
    if not chosen:
        raise InputError(
            "the selection of parameters must not be empty; 'all' selects every one"
        )
    return tuple(name for name in parameters if name in chosen)


def is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter is a kernel or matrix, to which recipes apply weight decay.

    It has at least two axes longer than 1 (a bias, a norm and a class token have fewer), and
    isn't a position embedding (1, N, C).
    """
    table = parameter.ndim == 3 and len(parameter) == 1
    return sum(length > 1 for length in parameter.shape) >= 2 and not table


def _matching(
    parameters: Mapping[str, Tensor], part: str | Block, anatomy: Callable[[], Anatomy]
) -> list[str]:
    """Names of the parameters that one part of a selection stands for."""
    trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
    if part == "trained":
        return trained or list(parameters)
    if part == "all":
        return list(parameters)
    if part == "matrices":
        return [n for n in trained or parameters if is_matrix(parameters[n])]
    if isinstance(part, Block):
        part, names, available = f"block {part.name!r}", part.parameters, "the block has none"
    elif part.startswith(("block:", "stage:", "kind:")):
        what, _, which = part.partition(":")
        if what == "block":
            blocks, available = [anatomy()[which]], "the block has none"
        else:
            blocks = [block for block in anatomy() if str(getattr(block, what)) == which]
            values = dict.fromkeys(str(getattr(block, what)) for block in anatomy())
            available = f"the model has the {what}s {', '.join(values)}"
        names = {name for block in blocks for name in block.parameters}
    else:
        names = [name for name in parameters if fnmatchcase(name, part)]
        close = get_close_matches(part, parameters, cutoff=0.0)
        available = f"the model has {', '.join(close)} and others"
    matches = [name for name in parameters if name in names]
    if not matches:
        raise InputError(f"no parameter matches {part}: {available}")
    return matches


Loss = Callable[[Tensor, Tensor], Tensor]  # (logits, targets) -> (b,), one for each example


def cross_entropy(logits: Float[Tensor, "b k"], targets: Tensor) -> Float[Tensor, " b"]:
    """-sum_k t_k log softmax(logits)_k of each example, in nats.

    `targets` are classes (b,), or the probabilities of all classes (b, k), as mixup, cutmix and
    label smoothing give them.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()
        [1.3862943649291992, 1.3862943649291992]
    """
    if targets.ndim == 1 and not targets.is_floating_point():
        low, high = (int(bound) for bound in torch.aminmax(targets))
        if low < 0 or high >= logits.shape[1]:
            raise InputError(
                f"targets must be class indices from 0 to {logits.shape[1] - 1}, got "
                f"{low if low < 0 else high}. Use labeled images with the model's classes."
            )
        return functional.cross_entropy(logits, targets.long(), reduction="none")
    if targets.shape != logits.shape:
        raise InputError(
            f"targets must be classes (B,) or probabilities (B, K) for logits of shape "
            f"{tuple(logits.shape)}, got shape {tuple(targets.shape)}"
        )
    return -(targets * functional.log_softmax(logits, dim=1)).sum(1)


def loss_of(loss: Loss, run: Run) -> Loss:
    """The loss of the run's task, where the default is not replaced by another loss."""
    return loss if loss is not cross_entropy or run.task.single_class else run.task.loss


def losses_of(loss: Loss, logits: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
    """The loss of each example."""
    losses = loss(logits, targets)
    if not isinstance(losses, Tensor) or losses.shape != (len(logits),):
        result = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else repr(losses)
        raise InputError(
            f"loss must return one number per example, got {result} for {len(logits)} "
            "examples. Use reduction='none'."
        )
    return losses


@dataclass(frozen=True)
class BatchGraph:
    """The computation of one batch's loss from the parameters, as autograd holds it."""

    leaves: list[Tensor]  # the chosen parameters
    loss: Float[Tensor, ""]  # sum over the examples
    examples: int


class LogitsModule(nn.Module):
    """A model as a module whose `forward` returns logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Images) -> Tensor:
        """The logits."""
        return forward(self.model, images)


def flatten(tensors: Sequence[Tensor]) -> Float[Tensor, " p"]:
    """Tensors as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors])


@dataclass(frozen=True, eq=False)
class Objective:
    """L(theta) = 1/N sum_n l(f(x_n; theta), y_n) + wd/2 |theta_decayed|^2, and its gradient.

    `theta` is one vector of the chosen parameters, in the order of the model; the others stay
    as they are. The two terms, NLL and L2, are also available separately. With wd > 0 the
    objective is "NLL + L2" as Park and Kim (2022) define it; with decoupled weight decay, as in
    AdamW, it is not what the optimizer minimizes.

    All computations use copies of the parameters and buffers. While the model runs, some of its
    modules are patched (attention, BatchNorm); afterwards they are restored.

    Args:
        model: a classifier in evaluation mode, so that dropout and stochastic depth are off.
        batches: (images, targets), read once per derivative, so it must be re-iterable. Images
            as `forward` takes them.
        loss: ``(logits, targets) -> losses`` of shape (B,), one per example, such as
            ``nn.CrossEntropyLoss(label_smoothing=0.1, reduction="none")``. Sums are taken
            inside, so a smaller last batch has the weight of its examples.
        weight_decay: wd.
        decayed: which of the chosen parameters decay; see `Selection`.
        parameters: which parameters theta consists of; see `Selection`.
        batch_norm: "frozen" normalizes by the running statistics, and the loss is a mean over
            examples; "batch" by the statistics of each batch, so that it depends on the batch
            size.
        run: device, progress and deadline; derivatives are taken in the precision of the
            parameters.
        shared: whether several processes share the batches; if not, each has its own.
    """

    model: nn.Module
    batches: Iterable  # of (images, targets)
    _: KW_ONLY
    loss: Loss = cross_entropy
    weight_decay: float = 0.0
    decayed: Selection = "all"
    parameters: Selection = "trained"
    batch_norm: BatchNorm = "frozen"
    run: Run = DEFAULT_RUN
    shared: bool = True
    tensors: dict[str, Tensor] = field(init=False, repr=False)  # copies of the model's
    names: tuple[str, ...] = field(init=False, repr=False)  # of the chosen parameters
    decay: Float[Tensor, " p"] = field(init=False, repr=False)  # wd where theta decays, or 0
    image_shape: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_evaluation_mode(self.model)
        check_weight_decay(self.weight_decay)
        check_batch_norm(self.batch_norm, ("frozen", "batch"), "derivatives of the loss")
        self.run.require_full_precision("derivatives of the loss")
        require_one_device(self.model, "derivatives of the loss")
        object.__setattr__(self, "run", self.run.on(self.model))
        object.__setattr__(self, "loss", loss_of(self.loss, self.run))
        images = _first_images(self.batches)
        own = next(chain(self.model.parameters(), self.model.buffers()), None)
        trial = placed(first_images(images), None if own is None else own.device)
        with as_written(), self.run.compute.arithmetic():
            logits = check_repeatable(self.model, trial)
        names = selected(self.model, self.parameters, lambda: dissect(self.model, trial))
        decayed = set(selected(self.model, self.decayed, lambda: dissect(self.model, trial)))
        device = self.run.compute.torch_device
        tensors = {
            name: tensor.detach().to(device, copy=True)
            for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers())
        }
        not_finite = [name for name in names if not torch.isfinite(tensors[name]).all()]
        if not_finite:
            raise InputError(
                f"parameters must be finite, got {len(not_finite)} that are not "
                f"({not_finite[0]}, ...)"
            )
        if self.loss is cross_entropy and logits.ndim == 2:
            check_logits(logits.float())
        decay = [torch.full_like(tensors[n], self.weight_decay * (n in decayed)) for n in names]
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "tensors", tensors)
        object.__setattr__(self, "decay", flatten(decay))
        object.__setattr__(self, "image_shape", tuple(pixels(images).shape[1:]))
        frozen = self._with(batch_norm="frozen")  # two images may be too few for statistics
        chosen = {name: tensors[name] for name in names}
        check_gradients(lambda leaves: frozen.logits(leaves, trial), chosen)

    def __len__(self) -> int:
        """Number of parameters P."""
        return len(self.decay)

    @property
    def theta(self) -> Float[Tensor, " p"]:
        """The chosen parameters of the model."""
        return torch.cat([self.tensors[name].flatten() for name in self.names])

    def _with(self, **changes: object) -> "Objective":
        """A copy with other fields, without another trial run."""
        other = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    def with_batches(self, batches: Iterable, *, shared: bool | None = None) -> "Objective":
        """The same function of the parameters on other data."""
        _first_images(batches)
        return self._with(batches=batches, shared=self.shared if shared is None else shared)

    def at(self, theta: Float[Tensor, " p"]) -> "Objective":
        """The same objective of a model that has `theta` as its parameters."""
        return self._with(tensors=self.tensors | self.unflatten(theta.detach()))

    def with_run(self, run: Run | None) -> "Objective":
        """The same objective with another run, on the device where its tensors are."""
        if run is None:
            return self
        run.require_full_precision("derivatives of the loss")
        return self._with(run=replace(run, compute=self.run.compute))

    def unflatten(self, theta: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """Views of `theta` in the shapes of the parameters, by name."""
        if theta.shape != (len(self),):
            raise InputError(
                f"a vector must have one entry per parameter ({len(self)}), got shape "
                f"{tuple(theta.shape)}"
            )
        chunks = theta.split([self.tensors[name].numel() for name in self.names])
        return {n: c.view_as(self.tensors[n]) for n, c in zip(self.names, chunks, strict=True)}

    def logits(self, leaves: Mapping[str, Tensor], images: Images) -> Tensor:
        """Logits of the images, with `leaves` in place of parameters."""
        values = self.tensors | dict(leaves)
        tensors = {f"model.{name}": values[first] for name, first in tied_names(self.model)}
        with self.run.compute.arithmetic(), differentiable(self.model, self.batch_norm):
            images = on_device(images, self.run.compute)
            # Where torch ties them itself, a module with two names keeps the replaced tensors.
            return functional_call(
                LogitsModule(self.model), tensors, (images,), tie_weights=False
            )

    def losses(self, logits: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """The loss of each example of a batch."""
        with self.run.compute.arithmetic():
            return losses_of(self.loss, logits, targets.to(self.run.compute.torch_device))

    def nll(self, theta: Float[Tensor, " p"] | None = None) -> float:
        """Mean of the loss over the examples, by default at the parameters of the model."""
        leaves = self.unflatten(self.theta if theta is None else theta)
        total = torch.zeros(2, dtype=torch.float64)
        for images, targets in self._local_batches():
            self.run.check_time()
            losses = self.losses(self.logits(leaves, images), targets).detach().cpu().double()
            total += torch.tensor([float(losses.sum()), len(losses)], dtype=total.dtype)
        loss, examples = self.add_up(total).tolist()
        return loss / examples

    def l2(self, theta: Float[Tensor, " p"] | None = None) -> float:
        """wd/2 |theta|^2 over the parameters that decay."""
        theta = self.theta if theta is None else theta
        return float((self.decay.cpu().double() * theta.cpu().double() ** 2).sum() / 2)

    def value(self, theta: Float[Tensor, " p"] | None = None) -> float:
        """NLL + L2."""
        return self.nll(theta) + self.l2(theta)

    def gradient(self, theta: Float[Tensor, " p"] | None = None) -> Float[Tensor, " p"]:
        """Gradient of NLL + L2; one pass forward and one backward."""
        theta = self.theta if theta is None else theta
        total, examples = torch.zeros_like(theta), 0
        with self.run.compute.arithmetic():
            for graph in self.graphs(theta):
                gradients = torch.autograd.grad(
                    graph.loss, graph.leaves, materialize_grads=True
                )
                total += flatten(gradients)
                examples += graph.examples
        return self.mean_of(total, examples) + self.decay * theta

    def graphs(
        self, theta: Float[Tensor, " p"] | None = None, *, skip: int = 0
    ) -> Iterator[BatchGraph]:
        """The graph of each batch of this process, without the first `skip` batches."""
        parts = self.unflatten(self.theta if theta is None else theta)
        batches = islice(self._local_batches(), skip, None)
        for number, (images, targets) in enumerate(batches):
            self.run.check_time()
            leaves = {name: part.clone().requires_grad_() for name, part in parts.items()}
            with torch.enable_grad():
                losses = self.losses(self.logits(leaves, images), targets)
                loss = losses.sum()
            if not torch.isfinite(losses).all():
                bad = int((~torch.isfinite(losses)).sum())
                raise InputError(
                    f"losses must be finite, got {bad} of {len(losses)} in batch "
                    f"{skip + number} that are not. Check the weights and the images."
                )
            yield BatchGraph(list(leaves.values()), loss, len(losses))

    def add_up(self, value: Tensor) -> Tensor:
        """The sum over the processes that share the batches."""
        return add_up(value) if self.shared else value

    def mean_of(self, total: Tensor, examples: int) -> Tensor:
        """A sum over the examples of this process, as the mean over all examples; in place."""
        number = float(self.add_up(torch.tensor(examples, dtype=torch.float64)))
        return self.add_up(total).div_(number)

    def _local_batches(self) -> Iterator[tuple[Images, Tensor]]:
        yield from map(with_targets, share(self.batches) if self.shared else self.batches)


def tied_names(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Each parameter and buffer of each module: its name, and the first name of its tensor.

    A module that the model holds under several names has the first of them; a tensor that
    several modules share has one name in each.
    """
    tensors = (*model.named_parameters(), *model.named_buffers())
    first = {id(tensor): name for name, tensor in tensors}
    for prefix, module in model.named_modules():
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield f"{prefix}.{key}" if prefix else key, first[id(tensor)]


def check_weight_decay(weight_decay: float) -> None:
    """Require a finite weight decay of at least 0."""
    if not 0 <= weight_decay < float("inf"):
        raise InputError(f"weight_decay must be at least 0, got {weight_decay}")


def _first_images(batches: Iterable) -> Images:
    if isinstance(batches, Iterator):
        raise InputError(
            "batches must be re-iterable, got an iterator. Pass a list or a loader."
        )
    first = next(iter(batches), None)
    if first is None:
        raise InputError("batches must hold at least one batch of (images, targets), got none")
    return with_targets(first)[0]
