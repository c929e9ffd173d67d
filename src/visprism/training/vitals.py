"""Vital signs of a training: what every update has, checked at almost no cost.

Each code has a title, a meaning and a heading in docs/findings.md.
"""

import csv
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from visprism.anatomy.trace.forward import Images, batch_size, forward
from visprism.core.errors import InputError
from visprism.core.files import write_text
from visprism.core.processes import gather
from visprism.core.run import unchanged_randomness
from visprism.estimates.findings import CODES
from visprism.estimates.text import number_of, some_of
from visprism.loss.training_curvature import evaluation_mode
from visprism.training.sharding import local

FILE = "alarms.csv"
FAR = 3.0  # times the first loss, or the loss at chance where that is larger
AT_CHANCE = 0.99  # of log(classes)
PART = 0.25  # of the updates of a training, after which a loss at chance is an alarm,
FEWEST, UNKNOWN = 100, 1000  # at least, and where the number of updates is not known
WINDOW = 20  # updates, over which losses are averaged
VANISHED, EXPLODED = 1e-2, 1e2  # norm of all weights over the first norm
LOST = 1e-3  # the same of one weight matrix
STILL = 10  # updates without any change of the parameters
DEAD_UNITS = 0.5  # of the channels of an activation
NEGLIGIBLE = 1e-3  # output of an activation over its largest input
SETTLED = 3.0  # updates times momentum, after which 5% of the first statistics are left
ENOUGH = 256  # values of a channel; with fewer, an alarm needs all channels
_NAMES = "relu relu_ relu6 gelu silu mish hardswish leaky_relu elu selu celu"
ACTIVATIONS = {getattr(functional, name) for name in _NAMES.split()} | {
    torch.relu, torch.relu_, Tensor.relu, Tensor.relu_
}  # fmt: skip


class TrainingStoppedError(InputError):
    """Raised by ``Monitor.step`` at an alarm where ``on_alarm="stop"``."""


@dataclass(frozen=True)
class Alarm:
    """A sign that something is wrong with a training."""

    step: int  # updates before it
    code: str  # "VP207" ...: a heading of docs/findings.md
    text: str

    @property
    def meaning(self) -> str:
        """What the alarm usually means, and where to look."""
        return CODES[self.code].meaning

    def __str__(self) -> str:
        return f"step {self.step}: {self.text} [{self.code}]. {self.meaning}"


@dataclass(frozen=True)
class _Sign:
    """What tells whether a parameter has changed, and how large it is."""

    norm: float
    part: Tensor  # the first row
    is_matrix: bool

    def differs(self, other: "_Sign") -> bool:
        return self.norm != other.norm or not torch.equal(self.part, other.part)


class Vitals:
    """Checks the losses of each update, and weights now and then; each code once.

    Weights are checked after 1, 2, 4, 8, ... updates, after every `every` of them, and at the
    end. A check reads each parameter once, and keeps a copy of a part of each.

    Args:
        every: updates between checks of the weights.
        classes: of a classifier, by which a loss at chance is recognized; 0: not known.
        updates: of the whole training; None: not known.
    """

    def __init__(self, every: int, classes: int = 0, updates: int | None = None) -> None:
        self.every, self.classes, self.updates = every, classes, updates
        self.raised: list[Alarm] = []
        self._losses: deque[tuple[int, float]] = deque()
        self._first_loss: tuple[int, float] | None = None
        self._last = self._calls = 0
        self._start: tuple[int, dict[str, _Sign]] | None = None  # of the first check
        self._recent: tuple[int, dict[str, _Sign]] | None = None  # of one before
        self._moved: set[str] = set()

    def after(
        self,
        model: nn.Module,
        step: int,
        optimizers: Sequence[Optimizer] = (),
        losses: Iterable[tuple[int, float]] = (),
    ) -> list[Alarm]:
        """The new alarms after an update, with the losses since the call before by step."""
        self._last, self._calls = step, self._calls + 1
        found = [pair for at, loss in losses for pair in self._of_loss(at, loss)]
        if self._calls & (self._calls - 1) == 0 or step % self.every == 0:
            found += self._of_weights(model, step, optimizers)
        return self.new(step, found)

    def end(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> list[Alarm]:
        """The new alarms after the last update."""
        found = [*self._of_weights(model, self._last, optimizers), *self._of_chance(ended=True)]
        return self.new(self._last, found)

    def new(self, step: int, signs: Iterable[tuple[str, str]]) -> list[Alarm]:
        """Alarms of codes that were not raised before; `signs` has codes and sentences."""
        known = {alarm.code for alarm in self.raised}
        by_code = {code: text for code, text in reversed(list(signs)) if code not in known}
        alarms = [Alarm(step, code, text) for code, text in sorted(by_code.items())]
        self.raised += alarms
        return alarms

    def _of_loss(self, step: int, loss: float) -> Iterator[tuple[str, str]]:
        if not math.isfinite(loss):
            yield "VP207", f"the loss is {loss}"
            return
        self._first_loss = self._first_loss or (step, loss)
        self._losses.append((step, loss))
        while len(self._losses) > 3 and step - self._losses[0][0] > WINDOW:
            self._losses.popleft()
        first_step, first = self._first_loss
        if len(self._losses) < 3 or step - first_step < WINDOW - 1:
            return
        usual, start = median(x for _, x in self._losses), max(first, self._chance)
        if usual > FAR * start > 0:
            yield (
                "VP208",
                f"the loss is {usual:.4g} (median of the last {WINDOW} updates), and was "
                f"{first:.4g} at the start",
            )
        yield from self._of_chance(ended=False)

    @property
    def _chance(self) -> float:
        return math.log(self.classes) if self.classes > 1 else 0.0

    def _of_chance(self, *, ended: bool) -> Iterator[tuple[str, str]]:
        """Nothing for a loss that begins above twice the chance level: it is another loss."""
        enough = UNKNOWN if self.updates is None else max(FEWEST, PART * self.updates)
        if not self._losses or self._first_loss is None or not self._chance:
            return
        since = self._losses[-1][0] - self._first_loss[0] + 1
        loss = mean(x for _, x in self._losses)
        late = since >= (FEWEST if ended else enough)
        if late and loss >= AT_CHANCE * self._chance and self._first_loss[1] < 2 * self._chance:
            yield (
                "VP209",
                f"after {since} updates the loss is {loss:.4g}, and the same probability for "
                f"each of {self.classes} classes has {self._chance:.4g}",
            )

    def _of_weights(
        self, model: nn.Module, step: int, optimizers: Sequence[Optimizer]
    ) -> Iterator[tuple[str, str]]:
        now = _signs(model)
        broken = [name for name, sign in now.items() if not math.isfinite(sign.norm)]
        if broken:
            yield "VP207", f"weights are not finite: {some_of(broken)}"
        elif self._start is None or self._recent is None or now.keys() != self._start[1].keys():
            self._start = self._recent = (step, now)
        else:
            yield from self._of_norms(now, *self._start)
            yield from self._of_changes(step, now, *self._recent)
            yield from self._of_idle(model, step, now, optimizers)

    def _of_norms(
        self, now: dict[str, _Sign], first: int, before: dict[str, _Sign]
    ) -> Iterator[tuple[str, str]]:
        total = math.hypot(*(sign.norm for sign in before.values()))
        ratio = math.hypot(*(sign.norm for sign in now.values())) / (total or math.inf)
        since = f"of the norm after update {first}"
        if total and not VANISHED <= ratio <= EXPLODED:
            yield "VP210", f"the norm of the weights is {ratio:.3g} {since}"
        lost = [n for n, s in now.items() if s.is_matrix and s.norm < LOST * before[n].norm]
        if lost:
            yield "VP210", f"matrices have less than {LOST:g} {since}: {some_of(lost)}"

    def _of_changes(
        self, step: int, now: dict[str, _Sign], begin: int, before: dict[str, _Sign]
    ) -> Iterator[tuple[str, str]]:
        assert self._start is not None
        self._moved |= {n for n, sign in now.items() if sign.differs(self._start[1][n])}
        if step - begin >= STILL:
            self._recent = (step, now)
            if not any(sign.differs(before[name]) for name, sign in now.items()):
                of = f"none of {number_of(len(now), 'parameter tensor')}"
                yield "VP211", f"{of} changed in {step - begin} updates ({some_of([*now])})"

    def _of_idle(
        self,
        model: nn.Module,
        step: int,
        now: dict[str, _Sign],
        optimizers: Sequence[Optimizer],
    ) -> Iterator[tuple[str, str]]:
        """Matrices that never changed, although others did and the optimizer should have them.

        Parameters that an optimizer was not given are frozen on purpose, unless it has some
        that are not the model's, as of a head that was replaced later.
        """
        assert self._start is not None
        trained = dict(model.named_parameters())
        given = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
        strange = bool(given - {id(p) for p in trained.values()})
        never = [
            name
            for name, sign in now.items()
            if name not in self._moved and sign.is_matrix
            if not given or strange or id(trained[name]) in given
        ]
        if never and self._moved and step - self._start[0] >= max(STILL, self.every):
            why = "; the optimizer has parameters that are not the model's" if strange else ""
            yield "VP211", f"{len(never)} of {len(now)} never changed: {some_of(never)}{why}"


def dead_activations(model: nn.Module, images: Images) -> list[tuple[str, str]]:
    """The activations of which more than half of the channels are 0 for all images.

    They are found where they are computed, so that no shortcut hides them. The model is in
    evaluation mode, and BatchNorm has the statistics of the images, since its running ones may
    be of a few updates. Costs a forward pass; the model stays as it is.
    """
    seen = _Activations()
    with ExitStack() as stack:
        stack.enter_context(unchanged_randomness())
        stack.enter_context(evaluation_mode(model))
        for name, module in model.named_modules():
            if isinstance(module, _NormBase) and module.track_running_stats:
                module.training = True
                stack.callback(setattr, module, "track_running_stats", True)
                module.track_running_stats = False
            before = module.register_forward_pre_hook(lambda *_, n=name: seen.names.append(n))
            after = module.register_forward_hook(lambda *_: _nothing(seen.names.pop()))
            stack.callback(before.remove)
            stack.callback(after.remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(seen)
        forward(model, images)
    if not seen.dead:
        return []
    parts = [f"{name} {share:.0%}" for name, share in seen.dead.items()]
    return [
        ("VP212", f"channels are 0 for all of {batch_size(images)} images: {some_of(parts)}")
    ]


def young_statistics(model: nn.Module) -> bool:
    """Whether running statistics of BatchNorm are of too few updates to replace the batch's."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase)]
    counts = [(m.num_batches_tracked, m.momentum or 1.0) for m in norms]
    return any(n is not None and int(n) * momentum < SETTLED for n, momentum in counts)


class _Activations(TorchFunctionMode):
    """Finds the activations that are 0 in most channels, by the name of their module."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.dead: dict[str, float] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func not in ACTIVATIONS or not args or args[0].ndim < 2:
            return func(*args, **(kwargs or {}))
        values = args[0]
        largest = values.abs().amax()
        result = func(*args, **(kwargs or {}))
        images_first = values.ndim == 4 and values.shape[2] == values.shape[3]
        axis = 1 if images_first or values.ndim == 2 else values.ndim - 1
        rest = [i for i in range(values.ndim) if i != axis]
        share = (result.abs().amax(rest) <= NEGLIGIBLE * largest).float().mean().item()
        enough = values.numel() / values.shape[axis] >= ENOUGH
        if share == 1 or (enough and share > DEAD_UNITS):
            self.dead[self.names[-1] if self.names else "model"] = share
        return result


def _nothing(_: object) -> None:
    """For a hook, whose value would replace an output."""


def _signs(model: nn.Module) -> dict[str, _Sign]:
    """The signs of the trainable parameters, or of all if none is trainable."""
    kept = {
        n: p for n, p in model.named_parameters() if p.is_floating_point() and not p.is_meta
    }
    kept = {n: p for n, p in kept.items() if p.requires_grad} or kept
    if not kept:
        return {}
    with torch.no_grad():
        tensors = [local(p.detach()) for p in kept.values()]
        norms = torch._foreach_norm(tensors)
        values = torch.stack([n.to(norms[0].device, torch.float32) for n in norms]).tolist()
        parts = [(t[0] if t.ndim and len(t) else t).clone() for t in tensors]
    if any(isinstance(p, DTensor) for p in kept.values()):  # each process has a part
        values = [math.hypot(*of) for of in zip(*gather(values), strict=True)]
    matrices = [p.ndim > 1 for p in kept.values()]
    return dict(zip(kept, map(_Sign, values, parts, matrices), strict=True))


def stored_alarms(folder: Path) -> list[Alarm]:
    """The alarms that a training has stored in a folder, in order of their steps."""
    if not (folder / FILE).is_file():
        return []
    rows = csv.DictReader(StringIO((folder / FILE).read_text("utf-8")))
    return [Alarm(int(row["step"]), row["code"], row["text"]) for row in rows]


def store_alarms(folder: Path, alarms: Iterable[Alarm]) -> None:
    """Write ``alarms.csv``: step, code and text of each alarm."""
    text = StringIO()
    rows = [("step", "code", "text"), *((a.step, a.code, a.text) for a in alarms)]
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(folder / FILE, text.getvalue())
