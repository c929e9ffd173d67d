"""What a measurement within a training needs, and leaves as it is."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn

from visprism.core.errors import InputError


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


def check_whole(model: nn.Module) -> None:
    """Require that this process has the whole of each parameter."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    sharded = any(isinstance(m, FullyShardedDataParallel) for m in model.modules())
    if sharded or any(isinstance(p, DTensor) for p in model.parameters()):
        raise InputError(
            "the model must not be sharded, as by FSDP: each process has a part of its "
            "parameters. Measure its checkpoints with vp.evolve."
        )
