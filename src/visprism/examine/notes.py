"""Notes: what a reader of an examination must know, in sentences."""

from collections.abc import Sequence

from visprism.data import ImageSet
from visprism.measure.features import Spectrum, Variances
from visprism.results.base import Result

_NAMED = 3  # of the things that a note counts


def idle(results: Sequence[Result]) -> tuple[str, ...]:
    """Blocks that hand their input on unchanged, as every measurement saw."""
    each = [r for r in results if isinstance(r, Spectrum | Variances)]
    moved = {name for r in each for name in r.block[r.change != 0].tolist()}
    seen = dict.fromkeys(name for r in each for name in r.block.tolist())
    idle = [name for name in seen if name not in moved]
    if not idle:
        return ()
    names = ", ".join(idle[:_NAMED]) + (", ..." if len(idle) > _NAMED else "")
    return (
        f"Blocks that change nothing: {len(idle)} ({names}). Residual branches that still end "
        "in zeros, as many libraries initialise them, do that.",
    )


def left_out(image_set: ImageSet) -> tuple[str, ...]:
    """Images that cannot be read."""
    if not image_set.skipped:
        return ()
    few = "; ".join(image_set.skipped[:_NAMED])
    more = "; ..." if len(image_set.skipped) > _NAMED else ""
    return (f"Left out, because they cannot be read: {len(image_set.skipped)} ({few}{more}).",)
