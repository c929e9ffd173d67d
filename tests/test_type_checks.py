"""Calls with other types or shapes than annotated raise, in the package as in the tests."""

from collections.abc import Iterator
from dataclasses import dataclass

import beartype
import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from internals import stream
from jaxtyping import Float, TypeCheckError
from torch import Tensor

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
def zeros(rows: Float[Tensor, "n m"], count: int) -> Float[Tensor, "n {count}"]:
    return torch.zeros(len(rows), count + count // 3)


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
    "an axis as long as an argument says": lambda: zeros(torch.zeros(2, 1), 3),
    "generator, before its first value": lambda: characters(3),
    "field": lambda: Point("one"),
    "axes of fields": lambda: Pair(torch.zeros(2), torch.zeros(3)),
    "function of the package": lambda: stream("zero"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_against_its_annotations_raises(call):
    with pytest.raises(VIOLATION):
        call()


def test_a_call_has_axes_of_its_own():
    """Not those of the call before, nor of the call that it is made in."""

    @checked
    def scaled_by_its_halves(a: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return inner(a[::2], a[1::2]) * a

    assert [inner(torch.ones(n), torch.ones(n)) for n in (2, 3)] == [2, 3]
    assert scaled_by_its_halves(torch.ones(4)).tolist() == [2] * 4
    with pytest.raises(VIOLATION):
        inner(torch.ones(2), torch.ones(3))
    assert inner(torch.ones(3), torch.ones(3)) == 3  # after an error too
