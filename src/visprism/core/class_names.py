"""Names of a model's outputs: what states them, as models and images share it."""

from collections.abc import Sequence
from dataclasses import dataclass

CLASS_NAMES = "class_names"  # attribute of a module: the names of its outputs, in order


@dataclass(frozen=True)
class ModelClasses:
    """The names of a model's outputs, each with its synonyms; the first one is shown."""

    names: Sequence[Sequence[str]] = ()
    stated: bool = True  # False: concluded from the number of outputs
