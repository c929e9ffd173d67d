"""Memory that leaves the process (src/visprism/core/memory.py)."""

import logging
import os
import resource
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from unusual_modules import NETWORKS, SIDE, built

from visprism.core import memory
from visprism.core.memory import map_weights, reused_memory

pytestmark = pytest.mark.skipif(not memory._LINUX, reason="needs Linux")

MIB = 2**20


@pytest.fixture
def every_size(monkeypatch):
    """Small models are mapped too."""
    monkeypatch.setattr(memory, "_SMALLEST", 1)


def large(mebibytes):
    """A linear layer with this memory."""
    return nn.Linear(1024, 256 * mebibytes, bias=False).eval()


def resident():
    """Memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tensors(model):
    return [*model.parameters(), *model.buffers()]


def layout(model):
    """Objects, strides and which tensors share memory, of all tensors of a model."""
    addresses = [t.untyped_storage().data_ptr() if t.is_leaf else 0 for t in tensors(model)]
    return [
        (id(t), t.dtype, t.stride(), t.storage_offset(), addresses.index(a), t.requires_grad)
        for t, a in zip(tensors(model), addresses, strict=True)
    ]


# ---------------------------------------------------------------- what it does


def test_weights_leave_memory_and_come_back():
    model = large(64)
    expected = model.weight.detach().clone()
    weights = map_weights(model)
    for _ in range(2):
        weights.release()
        released = resident()
        assert torch.equal(model.weight, expected)
        assert resident() - released > 60 * MIB
    weights.release()
    assert resident() - released < 4 * MIB


def test_what_is_changed_is_kept_and_what_is_not_leaves():
    model = large(64)
    expected = model.weight.detach().clone()
    weights = map_weights(model)
    weights.release()
    released = resident()
    for tensor in (expected, model.weight.data):
        tensor[10_000, 7] = torch.nan
        tensor[-1, -1] = -0.0
    weights.release()
    assert resident() - released < 12 * MIB  # two chunks of 4 MiB
    assert torch.equal(model.weight.view(torch.int32), expected.view(torch.int32))


def test_freed_memory_returns_to_the_system():
    pieces = [torch.empty(2**14) for _ in range(2**11)]  # 128 MiB in pieces of 64 KiB
    for piece in pieces:
        piece.fill_(1.0)
    full, last = resident(), pieces[-1]
    del pieces, piece
    memory.return_free_memory()
    assert full - resident() > 100 * MIB
    assert last.sum() == 2**14


def test_no_file_is_left_while_the_weights_are_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert map_weights(large(8)) is not None
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- what it leaves unchanged


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.usefixtures("every_size")
def test_a_network_computes_the_same_bits_with_the_same_tensors(name):
    model = built(name)
    images = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    images = images.bfloat16() if name == "bf16" else images
    arguments = (images, torch.tensor(2.0)) if name == "two inputs" else (images,)
    before, state = layout(model), [t.detach().clone() for t in tensors(model)]
    expected = torch.utils._pytree.tree_leaves(model(*arguments))
    with torch.no_grad():
        for tensor, value in zip(tensors(model), state, strict=True):
            tensor.copy_(value)  # networks that count their passes
    weights = map_weights(model)
    weights.release()
    assert layout(model) == before
    assert all(torch.equal(t, s) for t, s in zip(tensors(model), state, strict=True))
    outputs = torch.utils._pytree.tree_leaves(model(*arguments))
    assert all(torch.equal(o, e) for o, e in zip(outputs, expected, strict=True))


@pytest.mark.parametrize("kind", [torch.float16, torch.complex64, torch.int8, torch.bool])
@pytest.mark.usefixtures("every_size")
def test_tensors_of_any_type_keep_their_values(kind):
    model = nn.Module()
    model.register_buffer("table", torch.randn(5, 7).mul(3).to(kind), persistent=False)
    model.register_buffer("rows", model.table[1:4, ::2])
    expected = model.table.clone()
    map_weights(model).release()
    assert torch.equal(model.table, expected)
    assert torch.equal(model.rows, expected[1:4, ::2])
    model.table[1, 0] = 0
    assert model.rows[0, 0] == 0  # still a view


# ---------------------------------------------------------------- what stays in memory


@pytest.mark.usefixtures("every_size")
def test_unusual_tensors_stay_where_they_are():
    model = nn.Module()
    model.register_buffer("sparse", torch.eye(4).to_sparse())
    model.register_buffer("empty", torch.empty(0))
    model.register_buffer("elsewhere", torch.empty(4, device="meta"))
    model.register_buffer("complex", torch.ones(4, dtype=torch.complex64))
    model.register_buffer("conjugate", model.complex.conj())  # shares its memory
    model.lazy = nn.LazyLinear(3)
    model.plain = nn.Linear(3, 3)
    with torch.inference_mode():
        model.register_buffer("inference", torch.ones(3))
    addresses = {
        n: model.get_buffer(n).data_ptr() for n in ("complex", "conjugate", "inference")
    }
    moved = model.plain.weight.data_ptr()
    map_weights(model).release()
    assert {name: model.get_buffer(name).data_ptr() for name in addresses} == addresses
    assert model.plain.weight.data_ptr() != moved
    assert model.sparse.is_sparse


def test_a_small_model_stays_in_memory():
    model = nn.Linear(3, 3)
    address = model.weight.data_ptr()
    assert map_weights(model) is None
    assert model.weight.data_ptr() == address


def test_a_full_disk_leaves_the_weights_in_memory_with_a_warning(caplog, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = large(8)
    address, (soft, hard) = model.weight.data_ptr(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))  # a write beyond it is refused
    try:
        with caplog.at_level(logging.WARNING):
            assert map_weights(model, "large") is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "the weights of large stay in memory" in caplog.text
    assert "File too large" in caplog.text
    assert model.weight.data_ptr() == address
    assert not list(tmp_path.iterdir())


def test_without_a_folder_for_temporary_files_the_weights_stay_in_memory(
    caplog, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with caplog.at_level(logging.WARNING):
        assert map_weights(large(8), "large") is None
    assert "No usable temporary directory" in caplog.text


# ---------------------------------------------------------------- memory that is reused

BLOCK = 64 * MIB  # more than the C library keeps of its own accord
settable = pytest.mark.skipif(
    not memory._settable(), reason="needs the C library of GNU with its own settings"
)


@pytest.fixture
def settings(monkeypatch):
    """The settings of the C library, in the order in which they are made."""
    made = []
    monkeypatch.setattr(memory, "_set", made.append)
    return made


BLOCKS = f"""
import resource, torch
from visprism.core.memory import reused_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.zeros({BLOCK // 4}).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

torch.zeros(2).add_(1)
before = resident()
print(pages())
with reused_memory():
    pages()
    print(pages(), resident() - before)
print(resident() - before)
"""


@settable
def test_a_block_that_is_freed_is_reused_inside_and_leaves_at_the_end():
    """In a process of its own: what others have freed is there to be reused."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS], capture_output=True, text=True, check=True
    )
    outside, inside, held, left = map(int, done.stdout.split())
    pages = BLOCK / os.sysconf("SC_PAGE_SIZE")
    assert outside > 0.9 * 8 * pages
    assert inside < 0.1 * 8 * pages
    assert held > 0.9 * pages
    assert left < 0.1 * pages


@settable
def test_the_outermost_call_decides_in_all_threads(settings):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with reused_memory():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with reused_memory():
        thread.start()
        inside.wait()
        with reused_memory():
            pass
    before = list(settings)
    leave.set()
    thread.join()
    assert before == [memory._REUSE]
    assert settings == [memory._REUSE, memory._USUAL]


@settable
def test_an_error_ends_it(settings):
    with pytest.raises(ValueError, match="wrong"), reused_memory():
        raise ValueError("wrong")
    assert settings == [memory._REUSE, memory._USUAL]


@settable
@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1")],
)
def test_settings_of_the_user_stay(monkeypatch, settings, name, value):
    monkeypatch.setenv(name, value)
    with reused_memory():
        pass
    assert settings == []


def test_large_blocks_of_other_threads_are_allocated():
    with reused_memory(), ThreadPoolExecutor(2) as threads:
        sums = threads.map(lambda n: torch.ones(BLOCK // 4).sum().item() * n, range(1, 5))
        assert list(sums) == [BLOCK / 4 * n for n in range(1, 5)]
