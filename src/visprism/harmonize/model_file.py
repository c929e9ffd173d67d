"""Keeping: a converted network as files that every command takes as a model."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from visprism.core.files import atomic_write
from visprism.models import LoadedModel, save_checkpoint
from visprism.models.spec import ModelSpec

MODULE, WEIGHTS = "alternet.py", "alternet.safetensors"

_TEXT = '''"""{title}, with MSA blocks in the place of {places}.

    visprism examine alternet.py:alternet@{weights} --data DATA --out DIR
"""

import torch

from visprism import harmonize
from visprism.models import load_model


def alternet() -> torch.nn.Module:
    """The network with random weights; its own stand in {weights}."""
    base = load_model({base!r})
    images = torch.zeros(2, 3, {height}, {width})
    placement = {names!r}
    model = harmonize(
        base.model,
        images,
        placement,
        heads={heads!r},
        head_dim={head_dim!r},
        window={window!r},
    )
    model.preprocessing = base.preprocessing
    return model
'''


def _quoted(text: str) -> str:
    """Text that stays text inside of a docstring, whatever is in it."""
    return text.encode("unicode_escape").decode("ascii").replace('"', r"\"")


def save_alternet(
    alternet: nn.Module,
    network: LoadedModel,
    folder: Path,
    *,
    base: str,
    names: Sequence[str],
    heads: int | Sequence[int] | None,
    head_dim: int,
    window: int | None,
) -> None:
    """Write the weights, and a Python file whose function builds the network for them.

    Args:
        alternet: the converted network.
        network: the CNN, which says how images are wanted.
        folder: an existing one, to write into.
        base: the CNN as `load_model` takes it; a checkpoint in it is left out, as the weights
            stand in a file of their own.
        names: of the replaced blocks.
        heads: as `harmonize` was given it.
        head_dim: as `harmonize` was given it.
        window: as `harmonize` was given it.
    """
    spec = ModelSpec.parse(base)
    bare = base.removesuffix(f"@{spec.checkpoint}") if spec.checkpoint else base
    if spec.source == "file":
        path, _, function = spec.name.rpartition(":")
        bare = bare.replace(spec.name, f"{Path(path).expanduser().resolve()}:{function}")
    height, width = network.preprocessing.size
    save_checkpoint(alternet, folder / WEIGHTS, preprocessing=network.preprocessing)
    with atomic_write(folder / MODULE) as scratch:
        scratch.write_text(
            _TEXT.format(
                base=bare,
                title=_quoted(bare),
                places=_quoted(", ".join(names) or "no block"),
                weights=WEIGHTS,
                height=height,
                width=width,
                names=tuple(names),
                heads=tuple(heads) if isinstance(heads, Sequence) else heads,
                head_dim=head_dim,
                window=window,
            ),
            encoding="utf-8",
        )
