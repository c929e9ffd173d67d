"""How a measurement runs: device, precision, seed, progress, provenance, and a deadline."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import nn

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.interruption import check_interruption
from visprism.core.processes import rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.core.tasks import CLASSIFICATION, Task

T = TypeVar("T")


@runtime_checkable
class Progress(Protocol):
    """Wraps an iterable and shows its progress; ``tqdm.tqdm`` is one.

    The only protocol of progress: measurements, studies and training take the same.
    """

    def __call__(self, items: Iterable[T], label: str, /) -> Iterable[T]:
        """The same items in the same order."""
        ...


class TimeBudgetError(RuntimeError):
    """The deadline of a run passed before the measurement was complete."""


@dataclass(frozen=True)
class Run:
    """Settings of a measurement, which every measurement takes as `run`.

    Args:
        compute: device and precision.
        seed: of all random numbers.
        progress: shows how far a measurement is.
        provenance: which the measurement completes.
        deadline: of `time.monotonic`, seconds; None: no limit.
        task: what outputs and targets mean; see `visprism.core.tasks`.

    Example:
        >>> Run(seed=1).named("model", "images").provenance.model
        'model'
    """

    compute: Compute = field(default_factory=Compute)
    seed: int = 0
    progress: Progress | None = None
    provenance: Provenance = field(default_factory=Provenance, repr=False)
    deadline: float | None = None
    task: Task = CLASSIFICATION

    def named(self, model: str, data: str, **changes: Any) -> "Run":
        """The same run with this model and data (and other fields) in its provenance."""
        origin = replace(self.provenance, model=model, data=data, **changes)
        return replace(self, provenance=origin)

    def at(self, device: str | None) -> "Run":
        """The same run on this device, if one is named."""
        if device is None:
            return self
        return replace(self, compute=replace(self.compute, device=device))

    def on(self, model: nn.Module) -> "Run":
        """The same run with a device: where the model lies, if none is named."""
        return replace(self, compute=self.compute.on(model))

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def ending_by(self, deadline: float) -> "Run":
        """The same run with this deadline, or its present one if that is earlier."""
        present = deadline if self.deadline is None else self.deadline
        return replace(self, deadline=min(present, deadline))

    def check_time(self) -> None:
        """Raise `TimeBudgetError` after the deadline, or `KeyboardInterrupt` after Ctrl-C.

        Only a run in one process has a deadline that is checked within a measurement:
        several processes would have to agree at every step.
        """
        check_interruption()
        if world_size() == 1 and self.seconds_left < 0:
            raise TimeBudgetError(
                "the time budget was used up before the measurement was complete"
            )

    def track(self, items: Iterable[T], label: str) -> Iterator[T]:
        """Iterate over all `items` with progress (in the first process) and the deadline."""
        tracked = self.progress(items, label) if self.progress and rank() == 0 else items
        for item in tracked:
            self.check_time()
            yield item

    def track_share(self, items: Iterable[T], label: str) -> Iterator[T]:
        """Like `track`, over the items of this process: every n-th of n processes."""
        return self.track(share(items), label)

    @contextmanager
    def ticks(self, batches: Iterable, steps: int, label: str) -> Iterator[Callable[[], None]]:
        """A function that advances the progress by one and checks the deadline.

        For loops whose body takes long: `steps` ticks for each of the batches of this process.
        """
        try:
            number = steps * len(batches)  # pyrefly: ignore (where there is a length)
        except TypeError:
            number = None
        items = iter(self.track(count() if number is None else range(number), label))

        def tick() -> None:
            next(items, None)
            self.check_time()

        yield tick
        if number is not None:
            for _ in items:  # to the end of the progress
                pass

    def measured(
        self,
        *,
        images: int,
        batch_size: int,
        image_shape: tuple[int, ...],
        **changes: Any,
    ) -> Provenance:
        """The provenance of a measurement that is complete."""
        return replace(
            self.provenance,
            images=images,
            batch_size=batch_size,
            image_shape=tuple(image_shape),
            precision=self.compute.precision,
            device=self.compute.device or str(self.compute.torch_device),
            processes=world_size(),
            seed=self.seed,
            **changes,
        )

    def require_full_precision(self, quantity: str) -> None:
        """Refuse mixed precision where it is not supported."""
        if self.compute.precision != "fp32":
            raise InputError(
                f"precision must be 'fp32' for {quantity}, got {self.compute.precision!r}"
            )


DEFAULT_RUN = Run()


def stream(seed: int, *use: object) -> torch.Generator:
    """A generator for one use of a seed: ``stream(0, "lanczos", run)``.

    Streams of different uses or seeds are unrelated, so repeats with seeds 0, 1, 2 share no
    draws. (``seed + run`` would: run 1 of seed 0 is run 0 of seed 1.)

    Example:
        >>> a, b = stream(0, "lanczos", 1), stream(1, "lanczos", 0)
        >>> bool(torch.equal(torch.randn(3, generator=a), torch.randn(3, generator=b)))
        False
    """
    digest = blake2b(repr((seed, *use)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


@contextmanager
def unchanged_randomness() -> Iterator[None]:
    """On exit, all global states of random numbers are as before; inside, gradients exist."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    with ExitStack() as stack:
        stack.callback(random.setstate, states[0])
        stack.callback(np.random.set_state, states[1])
        stack.enter_context(torch.random.fork_rng(devices))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        yield
