"""Names of optimisers: ours, and those of timm's that training can follow."""

import difflib

from visprism.core.errors import InputError

OURS = ("adamw", "sgd", "muon")


def check_name(optimizer: str) -> None:
    """There is such an optimiser, and it wants nothing but gradients.

    Raises:
        InputError: if not.
    """
    if optimizer in OURS:
        return
    import timm.optim  # takes a second, and ours do not want it

    known = [str(name) for name in timm.optim.list_optimizers()]
    if optimizer not in known:
        close = difflib.get_close_matches(optimizer.lower(), [*OURS, *known]) or ["adamw"]
        raise InputError(f"unknown optimizer {optimizer!r}; did you mean {', '.join(close)}?")
    if timm.optim.get_optimizer_info(optimizer).second_order:
        raise InputError(
            f"optimizer {optimizer!r} wants second derivatives, which training does not take; "
            "choose another, such as adamw"
        )
