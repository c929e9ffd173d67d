"""Calls every public function with values that its arguments were not made for.

    python hostile_arguments.py SAMPLE    # prints the counts and the faults as JSON

Without a limit (0), calls with valid values must be accepted.

In a process of its own: the type checks of the tests would refuse the values first.
"""

import inspect
import json
import math
import os
import random
import signal
import sys
import tempfile
import traceback
import warnings
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from public_calls import valid_calls
from public_methods import valid_method_calls
from torch import nn
from unusual_modules import SIDE

import visprism as vp
from visprism.core.errors import OutputError

REFUSED = (vp.InputError, OutputError, vp.TimeBudgetError)
SECONDS = 30  # in which every call ends

INTEGERS = (0, -1, 10**30, 2.5, math.nan, "3", "\u0663", None, [], True, np.int64(1))
NUMBERS = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, "x", None, [], 10**400)
TEXTS = ("", "nonsense", "\u0663", "a" * 5000, "\0", 3, None, b"x")
SWITCHES = ("yes", None, 2, [])
SEQUENCES = ((), (math.nan,), ("x",), None, "abc", 5, [None], (-1,), (10**30,), [[]])
# None leads out of the folder that the script runs in; "occupied" is a file in it.
PATHS = ("", None, 3, "occupied/x", "missing/x", "\0", Path(), "a" * 5000)
OBJECTS = (None, "x", 3, [], {})
ARRAYS = (
    np.zeros(0),
    np.array([10**6]),
    np.array(["a"]),
    np.array([math.nan]),
    np.zeros((2, 2)),
)
MODULES = ("resnet20", None, 3, [], nn.Module(), nn.Identity(), nn.Linear(3, 3))


def tensors():
    x = torch.zeros(2, 3, SIDE, SIDE)
    empty, wrong = (torch.zeros(0), x[:0]), (x[0], x[:, :1], x.long(), x[:, :, :1, :1])
    return (*empty, *wrong, torch.full_like(x, math.nan), None, "x", x.numpy())


def batches():
    x, y = torch.zeros(4, 3, SIDE, SIDE), torch.arange(4)
    pairs = [(x,), (x, y[:3]), (x, y + 100), (x, y.float()), (x[:0], y[:0]), (x * math.nan, y)]
    single = [None, "x", (), *pairs, (x[:, :1], y), (x.double(), y)]
    return [[], None, 3, "x", *([batch] for batch in single), [x, None]]


def values(name, parameter, given):
    """Values that the argument was not made for, by its name, its value and its annotation."""
    by_name = {"batches": batches, "batches_b": batches, "model": lambda: MODULES}
    if name in by_name:
        return by_name[name]()
    by_type = {
        torch.Tensor: tensors(),
        bool: SWITCHES,
        int: INTEGERS,
        float: NUMBERS,
        str: TEXTS,
        Path: PATHS,
        tuple | list: SEQUENCES,
        np.ndarray: (*ARRAYS, *OBJECTS),
    }
    for kind, listed in by_type.items():
        if isinstance(given, kind):
            return listed
    annotation = str(parameter.annotation)
    words = {
        "Tensor": tensors(),
        "bool": SWITCHES,
        "int": INTEGERS,
        "float": NUMBERS,
        "str": TEXTS,
        "Literal": TEXTS,
        "Path": PATHS,
        "ndarray": ARRAYS,
        "Sequence": SEQUENCES,
        "Iterable": SEQUENCES,
        "tuple": SEQUENCES,
    }
    chosen = [v for word, listed in words.items() if word in annotation for v in listed]
    return [*chosen, *OBJECTS]


def calls_of(folder):
    """Functions, classes and methods by name, each with valid keyword arguments."""
    functions = {n: (getattr(vp, n), kwargs) for n, kwargs in valid_calls(folder).items()}
    return functions | valid_method_calls(folder)


def cases(calls):
    """Every argument of every call and each value, in random order."""
    listed = []
    for name, (function, arguments) in calls.items():
        for key, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            given = arguments.get(key, parameter.default)
            listed += [(name, key, value) for value in values(key, parameter, given)]
    return random.Random(0).sample(listed, len(listed))


def run(function, arguments):
    arguments = dict(arguments)
    positional = [arguments.pop("result")] if function is vp.plot else []
    result = function(*positional, **arguments)
    if isinstance(result, AbstractContextManager):
        with result:
            pass


def ran_the_model(error):
    """Whether the error was raised in a `forward`, so that it is that of the model."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(f.name == "forward" and "visprism" not in f.filename for f in frames) or (
        "missing the required" in str(error)
    )


def outcome(function, arguments):
    """Whether a call is accepted or refused, or else its error."""

    def too_long(*_):
        raise TimeoutError(f"not ended after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings(action="ignore"):
            run(function, arguments)
    except REFUSED as error:
        return "refused" if str(error).strip() else "refused without a reason"
    except Exception as error:
        return "of the model" if ran_the_model(error) else f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        plt.close("all")
    return "accepted"


def main():
    sample = int(sys.argv[1]) or None
    counts, faults = {"accepted": 0, "refused": 0, "of the model": 0}, []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("occupied").touch()
        calls = calls_of(Path(folder))
        valid = {n: outcome(*call) for n, call in calls.items()} if sample is None else {}
        for name, key, value in cases(calls)[:sample]:
            function, arguments = calls[name]
            result = outcome(function, arguments | {key: value})
            if result in counts:
                counts[result] += 1
            else:
                faults.append(f"{name}({key}={str(value)[:60]!r}): {result[:200]}")
        os.chdir("/")
    faults += [f"{name}: {result}" for name, result in valid.items() if result != "accepted"]
    made = {"counts": counts, "faults": faults, "calls": list(calls)}
    sys.stdout.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
