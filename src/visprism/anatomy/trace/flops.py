"""Multiply-accumulate operations of whatever torch runs, counted below the torch functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


def recurrence_macs(operands: Sequence[Tensor]) -> int:
    """Multiply-accumulates of an LSTM, GRU or RNN: each weight matrix once for each token.

    Args:
        operands: the tokens (B, N, C) or (N, B, C), the states, and the parameters.
    """
    tokens = operands[0].shape[:-1].numel()
    matrices = [w for w in operands if isinstance(w, nn.Parameter) and w.ndim == 2]
    return tokens * sum(w.numel() for w in matrices)


class MacCounter(TorchDispatchMode):
    """Counts the multiply-accumulates of matrix products, convolutions and attention.

    One is half of what torch's own counter calls two FLOPs; it is what the field's tables mean
    by "FLOPs" (4.1 G for ResNet-50). Elementwise operations count nothing, as there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.macs = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch would import its compiler, 4 seconds, and traces run eagerly anyway."""
        return False

    def __enter__(self) -> "MacCounter":
        super().__enter__()
        return self

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        count = flop_registry.get(getattr(func, "_overloadpacket", func))
        if count is not None:
            self.macs += count(*args, **kwargs, out_val=out) // 2
        return out
