"""Pretrained weights of the zoo that ship inside the package, named ``architecture.tag``.

Next to each weight file, 16-bit safetensors, is its card, a JSON file of the same name with
the data, the recipe and the accuracy. ``benchmarks/trained.py`` writes both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.models.spec import ModelSpec

_FOLDER = Path(str(files("visprism.models").joinpath("weights")))
_TAGS = ("cifar10", "shapes")  # the first that an architecture has is its default


@dataclass(frozen=True)
class PretrainedCard:
    """A network with pretrained weights: what it was trained on, how, and how accurate it is.

    Accuracy, NLL and ECE are of the 16-bit weights on all test images.
    """

    name: str  # architecture.tag
    arguments: Mapping[str, Any]  # of the architecture
    parameters: int
    data: str  # such as "cifar10"
    data_description: str
    data_license: str
    train_images: int
    recipe: str
    recipe_changes: Mapping[str, Any]  # fields that differ from the recipe's
    seed: int
    epochs: int  # completed
    recipe_epochs: int  # of the full schedule
    minutes: float  # of training, evaluation after each epoch not included
    machine: str
    test_images: int
    accuracy: float
    accuracy_low: float  # 95% Wilson interval
    accuracy_high: float
    accuracy_fp32: float  # of the weights before rounding to 16 bits
    nll: float
    ece: float
    subset_images: int  # the first test images that a test evaluates
    subset_correct: int  # how many of them are classified correctly
    preprocessing: Preprocessing
    class_names: tuple[str, ...]  # in the order of the logits
    sha256: str  # of the weight file
    created: str  # ISO date
    versions: Mapping[str, str]

    @property
    def architecture(self) -> str:
        """The name in the zoo."""
        return self.name.partition(".")[0]

    @property
    def tag(self) -> str:
        """What distinguishes these weights from others of the architecture."""
        return self.name.partition(".")[2]

    @property
    def weights(self) -> Path:
        """The weight file."""
        return _FOLDER / f"{self.name}.safetensors"


@cache
def pretrained_cards() -> Mapping[str, PretrainedCard]:
    """The card of each network with pretrained weights, by name, ``architecture.tag``."""
    files = _FOLDER.glob("*.json")
    cards = [msgspec.json.decode(path.read_bytes(), type=PretrainedCard) for path in files]
    return {card.name: card for card in sorted(cards, key=_order)}


def default_card(architecture: str) -> PretrainedCard | None:
    """The card of the default weights of a network of the zoo; None if it has no weights."""
    cards = pretrained_cards().values()
    return next((card for card in cards if card.architecture == architecture), None)


def with_pretrained_weights(spec: ModelSpec, *, pretrained: bool) -> ModelSpec:
    """`spec` with the weight file that its tag names, or that `pretrained` stands for.

    A specification of another library is returned as it is. A checkpoint that
    `spec` names replaces the weights of the tag; the tag's arguments stay. With
    `pretrained`, an architecture without a tag gets its default weights.
    """
    if spec.source == "file" and pretrained and spec.checkpoint is None:
        raise InputError(
            f"pretrained must be False for {spec.text}, as a model of a Python file has no "
            f"published weights. Write {spec.text}@CHECKPOINT, or load them in the file."
        )
    tagged = "." in spec.name
    if spec.source != "zoo" or not (tagged or (pretrained and spec.checkpoint is None)):
        return spec
    card = pretrained_cards().get(spec.name) if tagged else default_card(spec.name)
    if card is None and tagged:
        raise InputError(f"unknown pretrained weights {spec.name!r}. {_available(spec.name)}")
    if card is None:
        raise InputError(
            f"pretrained must be False for {spec.name}, which has no pretrained weights. "
            f"{_available(spec.name)}"
        )
    return replace(
        spec,
        name=card.architecture,
        arguments={**card.arguments, **spec.arguments},
        checkpoint=spec.checkpoint or card.weights,
    )


def names_weights(text: str) -> bool:
    """Whether `text` names weights: ``NAME@FILE``, or a tag as in ``resnet20.cifar10``."""
    spec = ModelSpec.parse(text)
    return spec.checkpoint is not None or (spec.source == "zoo" and "." in spec.name)


def card_table(pattern: str | None = None) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table of all networks with pretrained weights.

    `pattern` is a name with wildcards, or a part of a name; None lists all.
    """
    accuracy = "test accuracy [95% interval]"
    header = ["model", "parameters", "data", accuracy, "recipe", "epochs", "minutes"]
    rows = [
        [
            card.name,
            f"{card.parameters:,}",
            card.data,
            f"{card.accuracy:.1%} [{card.accuracy_low:.1%}, {card.accuracy_high:.1%}]",
            " ".join([card.recipe, *(f"{k}={v}" for k, v in card.recipe_changes.items())]),
            epochs_in_words(card),
            f"{card.minutes:.1f}",
        ]
        for card in matching_cards(pattern)
    ]
    return header, rows


def matching_cards(pattern: str | None = None) -> list[PretrainedCard]:
    """The networks with pretrained weights whose names match `pattern`, as in `card_table`."""
    wildcards = f"*{pattern or ''}*" if not set("*?[") & set(pattern or "") else str(pattern)
    cards = [card for card in pretrained_cards().values() if fnmatch(card.name, wildcards)]
    if not cards:
        raise InputError(f"no pretrained weights match {pattern!r}. {_available('')}")
    return cards


def epochs_in_words(card: PretrainedCard) -> str:
    """How many epochs were completed, and of how many if training was stopped early."""
    stopped = card.epochs < card.recipe_epochs
    return f"{card.epochs} of {card.recipe_epochs}" if stopped else str(card.epochs)


def _available(name: str) -> str:
    """Which pretrained weights there are: of the architecture of `name`, or of any."""
    architecture = name.partition(".")[0]
    cards = pretrained_cards().values()
    names = [card.name for card in cards if card.architecture == architecture]
    if names:
        return f"Weights of {architecture}: {', '.join(names)}."
    return f"Pretrained weights: {', '.join(pretrained_cards()) or 'none'}."


def _order(card: PretrainedCard) -> tuple[str, int, str]:
    listed = card.tag in _TAGS
    return card.architecture, _TAGS.index(card.tag) if listed else len(_TAGS), card.tag
