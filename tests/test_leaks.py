"""Long use leaks nothing: memory, hooks, files, threads, tensors."""

import gc
import os
import threading
from pathlib import Path

import pytest
import torch
from unusual_modules import built

from visprism import Fourier, Objective, Variance, dissect, examine, observe, predict
from visprism.loss.products import hvp

IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def resident():
    """Memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tensors():
    """Number of tensors that are alive."""
    gc.collect()
    return sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects())


def held(model):
    """What a leak would increase, beside memory."""
    hooks = sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in model.modules()
    )
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return hooks, files, threading.active_count(), tensors()


def repeated(work, number):
    """Growth of what is held and of memory, over a number of calls after two."""
    work(), work()
    before, memory = held(MODEL), resident()
    for _ in range(number):
        work()
    return before, held(MODEL), resident() - memory


MODEL = built("attention")
ANATOMY = dissect(MODEL, IMAGES)


def hessian_vector_product():
    """Of the loss of a network with attention."""
    objective = Objective(MODEL, [(IMAGES, torch.tensor([0, 1]))])
    hvp(objective, torch.ones(len(objective.decay)))


CALLS = {
    "dissect": lambda: dissect(MODEL, IMAGES),
    "observe": lambda: observe(ANATOMY, [IMAGES], [Fourier(), Variance()]),
    "predict": lambda: predict(MODEL, [(IMAGES, torch.tensor([0, 1]))]),
    "hvp": hessian_vector_product,  # softmax saves its output for the backward pass
}
# Memory that the allocator keeps in pieces, whatever the number of calls.
SLACK = 16 * 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    ("call", "number"),
    [*((call, 5) for call in CALLS), pytest.param("observe", 300, marks=pytest.mark.slow)],
)
def test_repeated_calls_leak_nothing(call, number):
    before, after, memory = repeated(CALLS[call], number)
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
    assert memory < SLACK


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_a_leak_is_noticed():
    copies = []
    before, after, _ = repeated(lambda: copies.append(IMAGES.clone()), 5)
    assert any(now > then for now, then in zip(after, before, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_a_pass_over_many_images_runs_in_flat_memory():
    """Images are made when they are read; those of 600 batches would take 60 MB."""
    generator = torch.Generator().manual_seed(0)
    sizes = []

    def batches(number):
        for step in range(number):
            if step % 100 == 99:
                sizes.append(resident())
            yield torch.randn(32, 3, 16, 16, generator=generator), torch.arange(32) % 10

    observe(ANATOMY, batches(600), [Fourier(), Variance()])
    assert max(sizes) - sizes[0] < SLACK


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_a_study_of_six_models_runs_in_flat_memory():
    """Beside the results, nothing of one model remains while the next is measured."""
    data = [(torch.randn(8, 3, 16, 16), torch.arange(8)) for _ in range(4)]
    analyses = ["variance", "fourier", "calibration", "ablation"]

    def study(number):
        models = {f"model {i}": built("attention") for i in range(number)}
        examine(models, data, analyses=analyses, minutes=None, on_error="raise")
        gc.collect()
        return resident()

    study(1)
    assert study(6) - study(2) < 2 * SLACK
