"""Any value of any argument of a public function is accepted, or refused in one sentence."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import hostile_arguments
import pytest
from public_calls import EXEMPT, EXEMPT_CLASSES
from public_methods import CLASSES, has_arguments

import visprism as vp

SAMPLE = 450  # of the cases, without -m slow; 0: all


def outcomes(sample):
    """Counts of accepted and refused values, faults, and the names of what was called."""
    source = str(Path(vp.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, hostile_arguments.__file__, str(sample)],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def sampled():
    return outcomes(SAMPLE)


def check(made):
    assert not made["faults"], "\n".join(made["faults"])
    assert made["counts"]["refused"] > made["counts"]["accepted"] > 0


def test_sampled_values_are_accepted_or_refused(sampled):
    check(sampled)


@pytest.mark.slow
def test_every_value_is_accepted_or_refused():
    check(outcomes(0))


def test_every_public_function_is_called(sampled):
    functions = {name for name in vp.__all__ if inspect.isfunction(getattr(vp, name))}
    assert functions == {name for name in sampled["calls"] if name[0].islower()} | set(EXEMPT)


def test_every_public_class_is_called(sampled):
    classes = {name for name in vp.__all__ if inspect.isclass(getattr(vp, name))}
    called = {name for name in sampled["calls"] if name[0].isupper() and "." not in name}
    assert classes == called | EXEMPT_CLASSES


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_method_with_arguments_is_called(kind, sampled):
    methods = {name for name in vars(kind) if has_arguments(kind, name)}
    assert {f"{kind.__name__}.{name}" for name in methods} <= set(sampled["calls"])
