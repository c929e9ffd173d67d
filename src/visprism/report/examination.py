"""Examinations: everything that was found out about one model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from visprism.anatomy.blocks.cost import Costs
from visprism.core.errors import InputError
from visprism.measure.features import Tally
from visprism.results.base import Result


@runtime_checkable
class Finding(Protocol):
    """A result that says in sentences what was found."""

    def sentences(self) -> list[str]:
        """Each without a full stop."""
        ...


@dataclass(frozen=True)
class Examination:
    """One model: what it is made of, what was measured on it, and what a reader should know."""

    name: str  # as it is shown
    costs: Costs
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()  # sentences

    def tables(self) -> tuple[Result, ...]:
        """All that is known: what the model is made of, and what was measured."""
        return (self.costs, *self.results)

    def tallies(self) -> tuple[Tally, ...]:
        """What was found about kinds of block."""
        return tuple(result for result in self.results if isinstance(result, Tally))

    def findings(self) -> tuple[Finding, ...]:
        """What was found, as results that say it in sentences."""
        return tuple(result for result in self.results if isinstance(result, Finding))


def slug(text: str) -> str:
    """The text with only letters that a file's name can have."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "model"


def check_names(names: Sequence[str]) -> None:
    """The files of models have different names; call it before anything is measured.

    Raises:
        InputError: if two models have one name, or names that differ only in punctuation.
    """
    slugs = [slug(name) for name in names]
    same = [name for name, own in zip(names, slugs, strict=True) if slugs.count(own) > 1]
    if same:
        raise InputError(
            f"the models {', '.join(map(repr, same))} would write the same files; "
            "give each a name of its own"
        )
