"""The model ``alternet``: a harmonized network by the name of its CNN and its blocks.

    alternet?base=resnet20&blocks=layer3.0+layer3.2
    alternet?library=timm&base=resnet26&blocks=alternate&num_classes=10

Options are words and numbers, so that the metadata of a checkpoint can name the network.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.harmonize.blocks import Placement, conv_blocks
from visprism.harmonize.convert import MSAConfig, default_window, harmonize_model
from visprism.models.checkpoints import save_checkpoint
from visprism.models.loading import LoadedModel, load_model
from visprism.models.spec import ModelSpec

WEIGHTS = "alternet.safetensors"

_RULES = ("alternate", "end-of-stage")
_NAME = "alternet"


def alternet(
    *,
    base: str = "resnet20",
    library: str = "",
    blocks: str | int = "alternate",
    heads: str | int | None = None,
    head_dim: int = 64,
    window: int | None = None,
    **options: Any,
) -> nn.Module:
    """A CNN with MSA blocks instead of some of its Conv blocks, for images of its size.

    Args:
        base: name of the CNN: of the zoo, or ``path/to/file.py:function``.
        library: "timm" or "torchvision" for a CNN of theirs.
        blocks: "alternate", "end-of-stage", numbers per stage such as ``0+1+1+2``, names such
            as ``layer3.2+layer4.1``, or "none". Names that are numbers end in ``+``: ``2+4+``.
        heads: number of heads, or numbers per stage such as ``3+6+12+24``; see `harmonize`.
        head_dim: channels of each head.
        window: side of a window in positions of the feature map; by default the side of
            the last stage's feature map, at most 8.
        **options: of the CNN, such as `num_classes`.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.
    """
    if "@" in base or "?" in base:
        raise InputError(
            f"base must be the name of a CNN without options or a checkpoint, got {base!r}. "
            "Name the checkpoint of the harmonized network instead."
        )
    # Both follow the global generator, as the weights of every network of the zoo do.
    base_seed, seed = torch.randint(2**31, (2,)).tolist()
    name = f"{library}:{base}" if library else base
    name = f"{name}?{_query(options)}" if options else name
    cnn = load_model(name, pretrained=False, seed=base_seed)
    model = harmonize_model(
        cnn.model,
        torch.zeros(2, 3, *cnn.preprocessing.size),
        placement_of(blocks),
        heads=_numbers(heads),
        head_dim=head_dim,
        window=window,
        seed=seed,
    )
    setattr(model, "preprocessing", cnn.preprocessing)  # noqa: B010 (not declared by nn.Module)
    return model


def alternet_name(network: LoadedModel, cnn: str, names: Sequence[str], msa: MSAConfig) -> str:
    """The name under which `load_model` builds a harmonized network.

    `cnn` is the name of `network`, of which a checkpoint is left out, and `names` are the
    replaced blocks.
    """
    spec = ModelSpec.parse(cnn)
    spec.arguments.pop("pretrained", None)
    if spec.source == "hf":
        raise InputError(
            f"cnn must be of the zoo, timm, torchvision or a Python file, got {cnn!r}. Use "
            "harmonize in Python."
        )
    window = msa.window
    if window is None:  # stated, as it depends on the size of the images
        blocks = conv_blocks(network.model, torch.zeros(2, 3, *network.preprocessing.size))
        window = default_window(blocks)
    base = spec.name
    if spec.source == "file":
        path, _, function = base.rpartition(":")
        base = f"{Path(path).expanduser()}:{function}"
    options: dict[str, Any] = {
        "library": spec.source if spec.source in ("timm", "torchvision") else "",
        "base": base,
        "blocks": "+".join(names) + "+" * any(map(str.isdecimal, names)) or "none",
        "heads": "+".join(map(str, msa.heads)) if isinstance(msa.heads, tuple) else msa.heads,
        "head_dim": msa.head_dim if msa.head_dim != MSAConfig.head_dim else None,
        "window": window,
        **spec.arguments,
    }
    return f"{_NAME}?{_query({k: v for k, v in options.items() if v not in ('', None)})}"


def save_alternet(
    model: nn.Module,
    network: LoadedModel,
    folder: Path,
    *,
    cnn: str,
    names: Sequence[str],
    msa: MSAConfig,
) -> str:
    """Write a harmonized network as a checkpoint, and return the name by which it is loaded.

    The name is only the file if its metadata can name the network, otherwise the network and
    the file: metadata must not name a Python file. `network` is the CNN,
    whose preprocessing is stored; the other arguments are the same as in `alternet_name`.
    """
    name, path = alternet_name(network, cnn, names, msa), folder / WEIGHTS
    registered = ModelSpec.parse(cnn).source != "file"
    save_checkpoint(
        model,
        path,
        preprocessing=network.preprocessing,
        provenance=Provenance(model=name if registered else ""),
    )
    return str(path) if registered else f"{name}@{path}"


def _query(options: Mapping[str, Any]) -> str:
    return "&".join(f"{name}={value}" for name, value in options.items())


def placement_of(blocks: str | int) -> Placement:
    """A rule, numbers or names from text."""
    text = str(blocks)
    if text in _RULES:
        return text  # pyrefly: ignore (one of the rules)
    if text == "none":
        return ()
    items = [item.strip() for item in text.split("+")]
    if all(item.isdecimal() for item in items):
        return tuple(map(int, items))
    return tuple(filter(None, items))


def _numbers(heads: str | int | None) -> int | tuple[int, ...] | None:
    if heads is None or isinstance(heads, int):
        return heads
    try:
        return tuple(int(number) for number in heads.split("+"))
    except ValueError:
        raise InputError(
            f"heads must be a number, or numbers such as 3+6+12+24, got {heads!r}"
        ) from None
