"""Calls with other types or shapes than annotated raise, in the package as in the tests."""

from collections.abc import Iterator
from dataclasses import dataclass

import beartype
import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from visprism.core.rng import stream

checked = jaxtyping.jaxtyped(typechecker=beartype.beartype)
VIOLATION = (BeartypeCallHintViolation, TypeCheckError)


@checked
def length(text: str) -> int:
    return len(text) if text else None


@checked
def inner(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    return float(a[: len(b)] @ b[: len(a)])


@checked
def first_row(rows: Float[Tensor, "n m"]) -> Float[Tensor, " m"]:
    return rows[:, 0]


@checked
def characters(text: str) -> Iterator[str]:
    yield from text


@checked
@dataclass
class Point:
    x: float


@checked
@dataclass
class Pair:
    a: Float[Tensor, " n"]
    b: Float[Tensor, " n"]


CALLS = {
    "argument": lambda: length(3),
    "returned value": lambda: length(""),
    "axes of arguments": lambda: inner(torch.zeros(2), torch.zeros(3)),
    "axes of the returned value": lambda: first_row(torch.zeros(2, 3)),
    "generator, before its first value": lambda: characters(3),
    "field": lambda: Point("one"),
    "axes of fields": lambda: Pair(torch.zeros(2), torch.zeros(3)),
    "function of the package": lambda: stream("zero"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_against_its_annotations_raises(call):
    with pytest.raises(VIOLATION):
        call()


def test_a_call_that_agrees_returns_what_the_function_does():
    assert length("abc") == 3
    assert inner(torch.ones(2), torch.ones(2)) == 2
    assert first_row(torch.eye(2)).tolist() == [1, 0]
    assert list(characters("ab")) == ["a", "b"]
    assert Point(1.0) == Point(1.0)
    assert len(Pair(torch.ones(2), torch.ones(2)).a) == 2
