"""Laws of options (src/visprism/core/options.py): one declaration, validated in one place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from visprism import InputError, option
from visprism.core.options import check_options, options_of


@dataclass(frozen=True)
class Attack:
    """Options of every type."""

    steps: int = option(10, "number of steps", minimum=1)
    epsilon: tuple[float, ...] = option((1 / 255, 8 / 255), "radii in pixel units", above=0)
    norm: Literal["linf", "l2"] = option("linf", "norm of the perturbation")
    kinds: tuple[Literal["fgsm", "pgd"], ...] = option(("fgsm",), "attacks")
    limit: int | None = option(None, "largest number of images", minimum=1)
    targeted: bool = option(False, "whether a class is aimed at")
    file: Path | None = option(None, "file to write")  # noqa: RUF009 (it is a field)

    def __post_init__(self):
        check_options(self)


def parse(name, text):
    return options_of(Attack)[name].parse(text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("steps", "3", 3),
        ("epsilon", "0.5, 1/4", (0.5, 0.25)),
        ("norm", "l2", "l2"),
        ("kinds", "fgsm,pgd", ("fgsm", "pgd")),
        ("limit", "none", None),
        ("targeted", "true", True),
        ("file", "a/b.npz", Path("a/b.npz")),
    ],
)
def test_text_is_parsed_by_the_declared_type(name, text, value):
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("steps", "0", "steps must be an integer of at least 1, got 0"),
        ("steps", "1.5", "steps must be an integer of at least 1, got '1.5'"),
        ("epsilon", "1/0", "epsilon must be numbers above 0, got '1/0'"),
        ("epsilon", "1e400", "epsilon must be numbers above 0, got inf"),
        ("norm", "l1", "norm must be one of linf, l2, got 'l1'"),
        ("kinds", "fgsm,x", "kinds must be values of fgsm, pgd, got 'x'"),
        ("limit", "-1", "limit must be an integer of at least 1 or None, got -1"),
        ("targeted", "maybe", "targeted must be True or False, got 'maybe'"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_the_constraint(name, text, message):
    with pytest.raises(InputError, match=message):
        parse(name, text)


def test_values_from_python_are_checked_by_the_same_rules():
    for name, value in (("steps", True), ("steps", 2.0), ("epsilon", 0.1), ("norm", 1)):
        with pytest.raises(InputError, match=f"{name} must be"):
            Attack(**{name: value})
