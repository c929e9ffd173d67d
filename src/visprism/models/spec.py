"""Model specifications: one line of text that names a model, its arguments and its weights.

    [SOURCE:]NAME[?key=value&...][@FILE]

SOURCE is ``timm``, ``torchvision`` or ``hf``; without one, NAME is a model of the zoo or
``path/to/file.py:function``; a name of the zoo may end in the tag of pretrained weights, as
``resnet20.cifar10``. A value is a Python literal (``32``, ``(7, 7)``, ``True``) or,
where it is not one, the text itself. FILE is a checkpoint. The key ``output`` names the output
that holds the logits, of a model that returns several tensors. The key ``classes`` names a text
file with the name of each output in a separate line.
"""

import ast
import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from visprism.core.errors import InputError

Source = Literal["timm", "torchvision", "hf", "file", "zoo"]

_SPEC = re.compile(r"(?P<name>[^?@]*[^?@:])(\?(?P<arguments>[^@]*))?(@(?P<checkpoint>.+))?")
_PREFIXES = ("timm", "torchvision", "hf")


@dataclass(frozen=True)
class ModelSpec:
    """A model as a user names it."""

    text: str  # as the user wrote it
    source: Source
    name: str  # in its source; for a file "path/to/file.py:function"
    arguments: dict[str, Any] = field(default_factory=dict)
    checkpoint: Path | None = None

    @classmethod
    def parse(cls, text: str) -> "ModelSpec":
        """Parse a specification.

        Example:
            >>> spec = ModelSpec.parse("timm:vit_tiny_patch16_224?img_size=32@best.safetensors")
            >>> spec.source, spec.name, spec.arguments, str(spec.checkpoint)
            ('timm', 'vit_tiny_patch16_224', {'img_size': 32}, 'best.safetensors')
        """
        parts = _SPEC.fullmatch(text)
        if parts is None:
            raise InputError(
                f"{text!r} must name a model, such as timm:resnet18, "
                "timm:resnet18?num_classes=10 or timm:resnet18@weights.safetensors"
            )
        source, name = _source(parts["name"])
        checkpoint = Path(parts["checkpoint"]) if parts["checkpoint"] else None
        return cls(text, source, name, _arguments(parts["arguments"] or ""), checkpoint)

    @property
    def label(self) -> str:
        """Only the name, short enough for the title of a figure."""
        return self.name.rpartition(":")[2].rstrip("/").rpartition("/")[2]


def _source(name: str) -> tuple[Source, str]:
    prefix, colon, rest = name.partition(":")
    if prefix in _PREFIXES and colon:
        return cast(Source, prefix), rest
    if re.fullmatch(r".+\.py:\w+", name):
        return "file", name
    if name.endswith(".py"):
        raise InputError(
            f"{name} must name the function that builds the model, as {name}:FUNCTION"
        )
    if colon:
        raise InputError(
            f"unknown prefix {prefix + ':'!r} in {name!r}. A model is timm:NAME, "
            "torchvision:NAME, hf:NAME-OR-FOLDER, path/to/file.py:function or a name that "
            "`visprism models` lists."
        )
    return "zoo", name


def _arguments(text: str) -> dict[str, Any]:
    arguments = {}
    for pair in filter(None, text.split("&")):
        key, equals, value = pair.partition("=")
        if not (equals and key.isidentifier()):
            raise InputError(f"an argument of a model must be key=value, got {pair!r}")
        if key in arguments:
            raise InputError(
                f"the argument {key!r} of a model must be given once, got it twice in {text!r}"
            )
        arguments[key] = _literal(value)
    return arguments


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: deep nesting
        return text


def unknown_model(spec: ModelSpec, available: Iterable[str]) -> InputError:
    """The error for an unknown model name; `available`: full names with prefix."""
    bare = spec.name
    bare_of = {name: name.rpartition(":")[2] for name in available}
    longer = [name for name, other in bare_of.items() if other.startswith(bare)]
    close = difflib.get_close_matches(bare, set(bare_of.values()))
    similar = [name for word in close for name, other in bare_of.items() if other == word]
    best = list(dict.fromkeys(similar[:3] + longer[:3]))
    remedy = f"Did you mean {', '.join(best)}?" if best else "`visprism models` lists names."
    return InputError(f"unknown model {spec.text!r}. {remedy}")


@contextmanager
def explain_unknown_argument(spec: ModelSpec, builder: Callable[..., Any]) -> Iterator[None]:
    """Raise an error that names the unknown argument and the available ones.

    timm and torchvision hand arguments on to a class in the builder's module, so only the call
    itself shows which ones are unknown.
    """
    try:
        yield
    except TypeError as error:
        called = r"(?:(\w+)(?:\.__init__)?\(\) )?"  # not named where a signature is bound
        parts = re.match(called + r"got an unexpected .*? '(\w+)'", str(error))
        if parts is None or parts[2] not in spec.arguments:
            raise
        owner = getattr(sys.modules[builder.__module__], parts[1] or "", builder)
        taken = [k for k in inspect.signature(owner).parameters if not k.startswith("_")]
        close = difflib.get_close_matches(parts[2], taken, cutoff=0.7)
        remedy = (
            f"Did you mean {' or '.join(close)}?" if close else f"It takes {', '.join(taken)}."
        )
        raise InputError(f"{spec.text} takes no argument {parts[2]!r}. {remedy}") from error
