"""Options: dataclass fields with a type, a default, bounds and help, validated in one place.

The command line, forms and keyword arguments of an analysis are all made from its fields.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from sys import float_info
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from visprism.core.errors import InputError

Bound = int | float | None
Effort = Literal["quick", "standard", "full"]
REQUIRED: Any = MISSING  # default of an argument that must be given
EFFORTS: tuple[Effort, ...] = ("quick", "standard", "full")


@dataclass(frozen=True)
class OptionInfo:
    """Declaration of an option in addition to its type and default."""

    help: str  # a noun phrase, with unit
    minimum: Bound = None  # smallest value
    above: Bound = None  # every value is larger
    maximum: Bound = None  # largest value
    below: Bound = None  # every value is smaller
    # Values in a study of another effort than "standard", whose value is the default.
    by_effort: Mapping[str, Any] = field(default_factory=dict)
    names_data: bool = False  # values are names of data, which may be folders
    form: bool = False  # of a study: whether the form of the app has it


@dataclass(frozen=True)
class Option:
    """One option: name, type, default and declaration."""

    name: str
    type: Any
    default: Any
    info: OptionInfo

    @property
    def choices(self) -> tuple[Any, ...] | None:
        """The values of a `Literal`, also of a tuple of them; None for other types."""
        kind = _element(_without_none(self.type))
        return get_args(kind) if get_origin(kind) is Literal else None

    @property
    def names_files(self) -> bool:
        """Whether values name files or data, as only Python and the command line may."""
        return self.info.names_data or _element(_without_none(self.type)) is Path

    @property
    def help(self) -> str:
        """Help text with the default: ``number of PGD steps (default: 10)``."""
        several = _element(_without_none(self.type)) is not _without_none(self.type)
        values = (
            f": any of {', '.join(map(str, self.choices))}" if several and self.choices else ""
        )
        others = "".join(f"; {_text(v)} at {e} effort" for e, v in self.info.by_effort.items())
        return f"{self.info.help}{values} (default: {_text(self.default)}{others})"

    @property
    def metavar(self) -> str:
        """The form of a value in a help text: ``N``, ``X,...``, ``{linear,rbf}``."""
        kind = _without_none(self.type)
        element = _element(kind)
        if element is not kind:
            return f"{_FORMS.get(element, 'NAME')},..."
        if self.choices is not None:
            return f"{{{','.join(map(str, self.choices))}}}"
        return _FORMS.get(element, "VALUE")

    @property
    def constraint(self) -> str:
        """What a value must be, as a phrase: ``an integer of at least 1``."""
        kind = _without_none(self.type)
        element = _element(kind)
        noun, nouns = _NOUNS.get(element, ("one of", "values of"))
        if self.choices is not None:
            values = ", ".join(map(str, self.choices))
            phrase = f"{nouns} {values}" if element is not kind else f"{noun} {values}"
        else:
            phrase = f"{nouns}" if element is not kind else noun
            phrase += self._range()
        return phrase + (" or None" if kind is not self.type else "")

    def check(self, value: Any) -> None:
        """Check a value against type and bounds."""
        if value is None and _without_none(self.type) is not self.type:
            return
        kind = _without_none(self.type)
        element = _element(kind)
        values = value if element is not kind else (value,)
        if element is not kind and not isinstance(value, tuple | list):
            raise self._error(value)
        for one in values:
            if not self._fits(one, element):
                raise self._error(one)

    def parse(self, text: str) -> Any:
        """A value from text; tuples are separated by commas, fractions may be ``8/255``."""
        kind = _without_none(self.type)
        element = _element(kind)
        if element is not kind and not all(map(str.strip, text.split(","))):
            raise self._error(text)
        if kind is not self.type and text.lower() in {"none", ""}:
            return None
        try:
            if element is not kind:
                value: Any = tuple(_read(part.strip(), element) for part in text.split(","))
            else:
                value = _read(text, element)
        except (ValueError, ZeroDivisionError, OverflowError):
            raise self._error(text) from None
        self.check(value)
        return value

    def _range(self) -> str:
        """The bounds as words: `` from 1 to 5``, `` above 0 and of at most 1``."""
        low, high = self.info.minimum, self.info.maximum
        if low is not None and high is not None:
            return f" from {low:g} to {high:g}"
        bounds = " and ".join(f"{word} {bound:g}" for word, bound in self._bounds())
        return f" {bounds}" if bounds else ""

    def _bounds(self) -> list[tuple[str, int | float]]:
        words = {
            "of at least": self.info.minimum,
            "above": self.info.above,
            "of at most": self.info.maximum,
            "below": self.info.below,
        }
        return [(word, bound) for word, bound in words.items() if bound is not None]

    def _fits(self, value: Any, kind: Any) -> bool:
        if kind is Any:
            return True
        if get_origin(kind) is Literal:
            return value in get_args(kind)
        if kind is float:
            right = isinstance(value, int | float) and not isinstance(value, bool)
            right = right and abs(value) <= float_info.max  # not NaN, and no larger integer
        elif kind is int:
            right = isinstance(value, int) and not isinstance(value, bool)
        elif kind is Path:
            right = isinstance(value, str | Path)
        else:
            right = isinstance(value, kind)
        if not right or kind not in (int, float):
            return right
        if kind is int and abs(value) > _LARGEST:
            return False
        info = self.info
        return (
            (info.minimum is None or value >= info.minimum)
            and (info.above is None or value > info.above)
            and (info.maximum is None or value <= info.maximum)
            and (info.below is None or value < info.below)
        )

    def _error(self, value: Any) -> InputError:
        text = str(value)
        largest = f" of at most {_LARGEST}" if text.isdecimal() and len(text) > 9 else ""
        return InputError(f"{self.name} must be {self.constraint}{largest}, got {value!r}")


_LARGEST = 2**31 - 1  # of any integer: sizes of arrays are counted in 64 bits
_FORMS = {int: "N", float: "X", str: "TEXT", Path: "FILE"}
_NOUNS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bool: ("True or False", "True or False"),
    Path: ("a path", "paths"),
}


def option(
    default: Any,
    help: str,
    *,
    minimum: Bound = None,
    above: Bound = None,
    maximum: Bound = None,
    below: Bound = None,
    quick: Any = None,
    full: Any = None,
    names_data: bool = False,
) -> Any:
    """A dataclass field that is an option; `help` is a noun phrase with its unit.

    `quick` and `full` are its values in studies of these efforts, if not the default.
    Values that name a file have the type `Path`; those that name data state `names_data`. The
    app has no such options.

    Example::

        steps: int = option(10, "number of PGD steps", minimum=1, quick=5)
    """
    efforts = {"quick": quick, "full": full}
    by_effort = {effort: v for effort, v in efforts.items() if v is not None}
    info = OptionInfo(help, minimum, above, maximum, below, by_effort, names_data)
    return field(default=default, metadata={"option": info})


def argument(
    default: Any,
    help: str,
    metavar: str = "",
    *,
    positional: bool = False,
    repeatable: bool = False,
    opposite: tuple[str, str] | None = None,
    **info: Any,
) -> Any:
    """An option that is also an argument of the command line.

    Args:
        default: `REQUIRED` if there is none.
        help: a noun phrase; ``(default: ...)`` is added where it states none.
        metavar: the form of a value; as its type has it where empty.
        positional: whether it is no flag.
        repeatable: whether the flag may be given several times, with one value each.
        opposite: flag that sets False and its help, for a switch that may be left open.
        **info: bounds, as of `option`, and whether the form of the app has it (`form`).
    """
    shape = {"metavar": metavar, "positional": positional, "repeatable": repeatable}
    declared = replace(OptionInfo(help), **info)
    return field(default=default, metadata={"option": declared, **shape, "opposite": opposite})


def with_default(cls: type, name: str, default: Any) -> Any:
    """An option that a class inherits, with another default."""
    declared = next(one for one in fields(cls) if one.name == name)
    return field(default=default, metadata=declared.metadata)


@cache
def options_of(cls: type) -> Mapping[str, Option]:
    """The options of a dataclass by name, in the order of declaration."""
    hints = get_type_hints(cls)
    return {
        f.name: Option(
            f.name,
            hints[f.name],
            None if f.default is MISSING else f.default,
            f.metadata["option"],
        )
        for f in fields(cls)
        if "option" in f.metadata
    }


def check_options(instance: object) -> None:
    """Check every option of a dataclass instance; for its ``__post_init__``."""
    for name, declared in options_of(type(instance)).items():
        declared.check(getattr(instance, name))


def unused(used: Mapping[str, tuple[object, str]]) -> dict[str, str]:
    """Options without effect, with the setting each needs, from whether it is made."""
    return {name: setting for name, (is_made, setting) in used.items() if not is_made}


def check_used(instance: object, unused: Mapping[str, str]) -> None:
    """Refuse options that are set without effect, given the setting that each belongs to."""
    for name, purpose in unused.items():
        value, declared = getattr(instance, name), options_of(type(instance))[name]
        if value not in (declared.default, *declared.info.by_effort.values()):
            raise InputError(
                f"{name} must be {_text(declared.default)} without {purpose}, got "
                f"{_text(value)}, which would have no effect"
            )


def option_values(instance: object) -> dict[str, Any]:
    """The options of an instance with their values, as JSON can hold them."""
    values = {name: getattr(instance, name) for name in options_of(type(instance))}
    return {name: _plain(value) for name, value in values.items()}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        rest = [k for k in get_args(kind) if k is not type(None)]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _element(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is tuple else kind


def _read(text: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        by_text = {str(value): value for value in get_args(kind)}
        return by_text.get(text, text)
    if kind is Any:
        return text
    if kind is bool:
        words = {"true": True, "yes": True, "false": False, "no": False}
        return words.get(text.lower(), text)
    if kind in (int, float) and (not text.isascii() or "_" in text):
        raise ValueError(text)  # Python reads digits of other scripts, and 1_000
    if kind is float:
        above, slash, below = text.partition("/")
        return float(above) / float(below) if slash else float(above)
    return kind(text)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        separator = ", " if value and isinstance(value[0], str) else ","
        return separator.join(_text(one) for one in value) or "none"
    if isinstance(value, float):
        levels = round(255 * value, 9)  # of eight bits, in which perturbations are stated
        exact = float(f"{value:.4g}") == value or levels != int(levels)
        return f"{value:.4g}" if exact else f"{levels:.0f}/255"
    return "none" if value is None else str(value)
