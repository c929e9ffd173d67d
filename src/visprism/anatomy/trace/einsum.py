"""TokenPositions of what an Einstein sum gives."""

from collections import Counter
from collections.abc import Sequence

import torch

from visprism.anatomy.trace.token_positions import TokenPositions, constant_along


def through_einsum(
    equation: str, operands: Sequence[TokenPositions | None], shape: torch.Size
) -> TokenPositions | None:
    """TokenPositions of the first operand that has all its places in the output too.

    So the scores ``b i d, b j d -> b i j`` have the queries' places, and so has what the
    attention ``b i j, b j d -> b i d`` gives.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if not arrow:  # letters that stand once, in alphabetical order
        output = "".join(
            sorted(c for c, n in Counter(inputs).items() if n == 1 and c.isalpha())
        )
        output = f"...{output}" if "." in inputs else output
    output = _spelled(output, len(shape))
    for letters, positions in zip(inputs.split(","), operands, strict=True):
        if positions is not None and positions.some:
            found = _kept(_spelled(letters, positions.shadow.ndim), output, positions, shape)
            if found is not None:
                return found
    return None


def _spelled(letters: str, axes: int) -> str:
    """The letters with characters of their own for the axes that dots stand for."""
    hidden = axes - len(letters.replace(".", ""))
    return letters.replace("...", "".join(str(n) for n in range(hidden, 0, -1)))


def _kept(
    letters: str, output: str, positions: TokenPositions, shape: torch.Size
) -> TokenPositions | None:
    shadow = positions.shadow
    for axis, letter in enumerate(letters):
        if letter not in output:
            if not constant_along(shadow, axis):
                return None
            shadow = shadow.narrow(axis, 0, 1)
    kept = [letter for letter in letters if letter in output]
    if len(set(letters)) < len(letters):  # a diagonal
        return None
    order = [kept.index(letter) for letter in output if letter in kept]
    shadow = shadow.reshape([shadow.shape[letters.index(letter)] for letter in kept])
    sizes = [n if letter in kept else 1 for letter, n in zip(output, shape, strict=True)]
    return TokenPositions(shadow.permute(order).reshape(sizes).expand(shape), positions.grid)
