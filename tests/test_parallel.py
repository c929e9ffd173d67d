"""Laws of devices, precision and processes (src/visprism/core).

What several processes do together is tested in analyses/features/test_processes.py.
"""

import copy
import os

import pytest
import torch
from accelerate import cpu_offload
from caller_settings import SETTINGS, made
from torch import nn
from torch.nn.functional import cross_entropy

from visprism import Compute, Fourier, InputError, Objective, examine, predict, processes
from visprism.core.devices import BatchNormOfXla, settings_of_products
from visprism.core.processes import RankSlice, world_size
from visprism.loss.products import hvp


@pytest.fixture
def model():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()


def named(model):
    return [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_on_another_device_gets_its_own_tensors_back(model, fails):
    model[0].twin = model[0].weight  # two names of one parameter
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[0].bias.requires_grad_(False)
    before = {name: (t, t.data_ptr(), t.requires_grad) for name, t in named(model)}
    compute = Compute("cpu")
    object.__setattr__(compute, "device", "meta")  # the one other device of every machine
    try:
        with compute.borrow(model):
            assert {t.device.type for _, t in named(model)} == {"meta"}
            assert model[0].twin is model[0].weight
            assert compute.torch_device.type == "meta"
            assert 1 / (not fails)
    except ZeroDivisionError:
        assert fails
    for name, tensor in named(model):
        original, pointer, requires_grad = before[name]
        assert tensor is original
        assert (tensor.data_ptr(), tensor.requires_grad) == (pointer, requires_grad)
    assert model[0].weight.grad.eq(1).all()


def test_a_model_that_accelerate_offloads_is_refused(model):
    assert Compute().on(model).device == "cpu"
    cpu_offload(model, execution_device=torch.device("cpu"))
    with pytest.raises(InputError, match=r"must be in memory, .* Load the model whole"):
        predict(model, [(torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.long))])


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("precision", "products"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_float32_is_float32_inside_and_settings_are_restored(
    model, setting, precision, products
):
    backends = torch.backends
    with made(setting):
        before = settings_of_products()
        with Compute(precision=precision).borrow(model):
            operations = [backends.cudnn.conv, backends.cuda.matmul]
            assert {operation.fp32_precision for operation in operations} == {products}
            assert backends.mkldnn.matmul.fp32_precision == "ieee"
            # Torch reads these for products, and raises where they contradict the newer ones.
            allowed = [backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32]
            assert allowed == [precision == "tf32"] * 2
            assert backends.cudnn.deterministic
            assert not backends.cudnn.benchmark
            assert model(torch.zeros(1, 3, 8, 8)).dtype == torch.float32
        assert settings_of_products() == before
        assert torch.is_autocast_enabled("cpu") == (setting == "autocast")


def test_derivatives_are_in_float32_too(model):
    products, seen = torch.backends.cuda.matmul, set()

    def loss(logits, targets):
        seen.add(products.fp32_precision)
        return cross_entropy(logits, targets, reduction="none")

    batches = [(torch.randn(4, 3, 8, 8), torch.arange(4))]
    objective = Objective(nn.Sequential(model, nn.Flatten()).eval(), batches, loss=loss)
    before = products.fp32_precision
    try:
        products.fp32_precision = "tf32"
        objective.gradient()
        hvp(objective, objective.theta)
        assert products.fp32_precision == "tf32"
    finally:
        products.fp32_precision = before
    assert seen == {"ieee"}


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_by_elementary_operations_is_that_of_torch(model, training, noise):
    norm, x = model[1].train(training), noise(3, 4, 5, 5).float().requires_grad_()
    with torch.no_grad():
        for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
            tensor.uniform_(0.5, 1.5)
    other = copy.deepcopy(norm)
    expected = norm(x)
    with BatchNormOfXla():
        out = other(x)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(dict(other.named_buffers()), dict(norm.named_buffers()))
    gradients = (torch.autograd.grad(y.square().sum(), x)[0] for y in (out, expected))
    torch.testing.assert_close(*gradients)


def test_parameters_that_are_there_already_are_not_copied_and_buffers_are(model):
    parameters, buffers = (
        [t.data_ptr() for t in ts()] for ts in (model.parameters, model.buffers)
    )
    with Compute("cpu").borrow(model):
        assert [p.data_ptr() for p in model.parameters()] == parameters
        assert not {b.data_ptr() for b in model.buffers()} & set(buffers)
        for buffer in model.buffers():
            buffer.zero_()  # as a forward pass may change them
    assert [b.data_ptr() for b in model.buffers()] == buffers
    assert any(buffer.any() for buffer in model.buffers())


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_precision_is_that_of_the_arithmetic_and_leaves_the_weights(model, precision, dtype):
    with Compute(precision=precision).autocast(), torch.no_grad():
        assert model[0](torch.zeros(1, 3, 8, 8)).dtype == dtype
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_tensor_that_a_model_keeps_elsewhere_is_said(model):
    kept = torch.ones(8, device="meta")
    model.register_forward_pre_hook(lambda _, x: (x[0] * kept,))
    with pytest.raises(InputError, match="The model may keep a device, or a tensor"):
        Fourier()(model, [torch.rand(4, 3, 8, 8)])


def test_torch_makes_tensors_on_the_cpu_by_default(model):
    for measure in (Fourier(), examine):
        with (
            torch.device("meta"),
            pytest.raises(InputError, match="default device must be the CPU, got meta"),
        ):
            measure(model, [torch.rand(4, 3, 16, 16)])


@pytest.mark.parametrize(("local_rank", "gpu"), [(0, 0), (3, 3), (5, 1)])  # 5: more than GPUs
def test_each_process_of_a_machine_takes_a_gpu_of_its_own(monkeypatch, local_rank, gpu):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # as if there were GPUs
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    assert Compute("cuda").torch_device == torch.device("cuda", gpu)
    assert Compute("cuda:2").torch_device == torch.device("cuda", 2)
    assert Compute("cpu").torch_device == torch.device("cpu")


@pytest.mark.parametrize("device", ["meta", "hpu", "privateuseone", "xla", "", "cpu:"])
def test_a_device_that_cannot_compute_is_refused(device):
    with pytest.raises(
        InputError, match=rf"device must be available .*, got '{device}' \(.*\)\. Use 'cpu'"
    ):
        Compute(device)


def test_without_torchrun_no_processes_are_joined(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with processes():
        assert world_size() == 1
    assert "MASTER_ADDR" not in os.environ


@pytest.mark.parametrize("world", [1, 2, 3, 10])
@pytest.mark.parametrize("make", [list, iter], ids=["sequence", "iterator"])
def test_shares_are_a_partition_in_turns(world, make):
    shares = [list(RankSlice(make(range(7)), r, world)) for r in range(world)]
    assert sorted(item for part in shares for item in part) == list(range(7))
    assert shares[0] == list(range(0, 7, world))
