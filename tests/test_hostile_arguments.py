"""Any value of any argument of a public function is accepted, or refused in one sentence."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import hostile_arguments
import pytest
from public_calls import EXEMPT
from public_methods import CLASSES, has_arguments

import visprism as vp

SAMPLE = 450  # of the cases, without -m slow; 0: all


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return hostile_arguments.calls_of(tmp_path_factory.mktemp("calls"))


def test_every_public_function_is_called(calls):
    functions = {name for name in vp.__all__ if inspect.isfunction(getattr(vp, name))}
    assert functions == {name for name in calls if name[0].islower()} | set(EXEMPT)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_method_with_arguments_is_called(kind, calls):
    methods = {name for name in vars(kind) if has_arguments(kind, name)}
    assert {f"{kind.__name__}.{name}" for name in methods} <= calls.keys()


@pytest.mark.slow
def test_the_calls_are_valid(calls):
    outcomes = {name: hostile_arguments.outcome(*call) for name, call in calls.items()}
    assert set(outcomes.values()) == {"accepted"}, outcomes


@pytest.mark.parametrize("sample", [SAMPLE, pytest.param(0, marks=pytest.mark.slow)])
def test_every_value_is_accepted_or_refused(sample):
    script = hostile_arguments.__file__
    source = str(Path(vp.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, script, str(sample)],
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    made = json.loads(process.stdout.splitlines()[-1])
    assert not made["faults"], "\n".join(made["faults"])
    assert made["counts"]["refused"] > made["counts"]["accepted"] > 0
