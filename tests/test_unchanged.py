"""A measurement gives the model and the process back as they were, however it ends."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from caller_settings import SETTINGS, assert_equal, made
from measurements import measurement
from torch import distributed as dist
from torch import nn
from unusual_modules import NETWORKS, built

from visprism import ANALYSES, InputError, check_unchanged, dissect

BUILT_IN = [n for n, a in ANALYSES.items() if a.__module__.startswith("visprism.")]


pytestmark = pytest.mark.usefixtures("draws_of_python")

# Networks without gradients or second derivatives, or that the images do not fit.
REFUSED = {"scripted", "bf16", "two inputs"}
PATCHING = ["ablation", "hessian", "landscape"]  # one way through each part that patches


# Under settings of torch as a caller may have made them, and with equal results.
@pytest.mark.parametrize("interrupt", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_analysis(tmp_path, name, interrupt):
    model = built("attention")
    measure, results = measurement(name, model, tmp_path), []
    with made(*SETTINGS):
        reason = check_unchanged(
            lambda m: results.append(measure(m)), model, interrupt=interrupt
        )
    assert (reason is None) == (name not in {"position-embeddings", "relative-scores"})
    if results and not interrupt:
        assert_equal(results[0], measure(model))


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", PATCHING)
def test_every_network_through_every_patch(tmp_path, name, network):
    model = built(network)
    reason = check_unchanged(measurement(name, model, tmp_path), model)
    if name == "hessian":
        assert (reason is None) == (network not in REFUSED), reason


def replace_linear(model):
    model.head = nn.Linear(6, 10)


def replace_parameter(model):
    model.head.weight = nn.Parameter(model.head.weight.data)


def move_parameter(model):
    model.head.weight.data = model.head.weight.data.clone()


# Changes of a model, or of the process, that a measurement could leave behind.
CHANGES = {
    "weight": lambda m: m.head.weight.data.add_(1),
    "negative zero": lambda m: m.head.bias.data.neg_(),
    "memory": move_parameter,
    "parameter": replace_parameter,
    "gradient": lambda m: setattr(m.head.weight, "grad", torch.zeros(10, 6)),
    "frozen": lambda m: m.head.weight.requires_grad_(requires_grad=False),
    "buffer": lambda m: m.blocks[1].norm.running_mean.add_(1),
    "mode": lambda m: m.blocks[1].train(),
    "hook": lambda m: m.blocks[1].register_forward_hook(lambda *_: None),
    "hook of a tensor": lambda m: m.head.weight.register_hook(lambda gradient: gradient),
    "method": lambda m: setattr(m.head, "forward", m.head.forward),
    "attribute": lambda m: setattr(m.head, "note", 1),
    "module": replace_linear,
    "random numbers": lambda _: torch.rand(1),
    "random numbers of NumPy": lambda _: np.random.rand(),  # noqa: NPY002
    "mode of gradients": lambda _: torch.set_grad_enabled(False),
    "precision of products": lambda _: torch.set_float32_matmul_precision("medium"),
    "fast path": lambda _: torch.backends.mha.set_fastpath_enabled(False),
    "function": lambda _: setattr(torch.nn.functional, "relu", torch.relu),
    "warnings": lambda _: warnings.simplefilter("ignore"),
}


@pytest.fixture
def process():
    """The state of the process, restored after the test."""
    relu = torch.nn.functional.relu
    numbers = np.random.get_state()  # noqa: NPY002
    with warnings.catch_warnings():
        yield
    torch.set_grad_enabled(True)
    torch.set_float32_matmul_precision("highest")
    torch.backends.mha.set_fastpath_enabled(True)
    torch.nn.functional.relu = relu
    np.random.set_state(numbers)  # noqa: NPY002


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_named(change):
    model = built("attention")
    model.head.bias.data.zero_()
    with pytest.raises(AssertionError, match="a measurement changed "):
        check_unchanged(change, model)


def test_a_change_that_only_an_interruption_leaves_is_named():
    def measure(model):
        model.head.weight.data.mul_(2)
        dissect(model, torch.zeros(2, 3, 16, 16))
        model.head.weight.data.div_(2)

    with pytest.raises(AssertionError, match=r"in torch function \d+ changed head\.weight"):
        check_unchanged(measure, built("attention"))


def test_a_measurement_that_swallows_an_interruption_is_named():
    def measure(model):
        with suppress(KeyboardInterrupt):
            model(torch.zeros(2, 3, 16, 16))

    with pytest.raises(AssertionError, match="the interruption did not end it"):
        check_unchanged(measure, built("attention"))


def test_the_reason_of_a_refusal_is_returned():
    def refuse(model):
        raise InputError(f"no {type(model).__name__}")

    assert check_unchanged(refuse, nn.Linear(1, 1)) == "no Linear"
    assert check_unchanged(lambda model: model(torch.zeros(1)), nn.Linear(1, 1)) is None


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("network", ["attention", "shared block", "own counter"])
@pytest.mark.parametrize("wrapper", [nn.DataParallel, nn.parallel.DistributedDataParallel])
def test_a_wrapper_is_not_touched_and_its_module_is_measured(tmp_path, wrapper, network):
    model = wrapper(built(network)).eval()
    measure = measurement("variance", model, tmp_path)
    assert check_unchanged(measure, model, interrupt=False) is None
    result, *_ = measure(model)
    expected, *_ = measurement("variance", model.module, tmp_path)(model.module)
    np.testing.assert_array_equal(result.variance, expected.variance)
    assert list(result.block) == list(expected.block)
