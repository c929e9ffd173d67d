"""Memory that is reused (src/visprism/core/memory.py)."""

import os
import resource
from pathlib import Path

import pytest
import torch
from forks import forked, forks

from visprism.core import memory
from visprism.core.memory import reused_memory

MIB = 2**20
BLOCK = 64 * MIB  # more than the C library keeps of its own accord
settable = pytest.mark.skipif(
    not memory._settable(), reason="needs the C library of GNU with its own settings"
)


def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.zeros(BLOCK // 4).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])


def allocate(pipe):
    torch.zeros(2).add_(1)
    before, outside = resident(), new_pages()
    with reused_memory():
        new_pages()
        inside, held = new_pages(), resident() - before
    pipe.send((outside, inside, held, resident() - before))


@settable
def test_a_block_that_is_freed_is_reused_inside_and_leaves_at_the_end():
    """In a process of its own: what others have freed is there to be reused."""
    ours, theirs = forks().Pipe(duplex=False)
    forked(__file__, "allocate", theirs)
    assert ours.poll(60)
    outside, inside, held, left = ours.recv()
    pages = BLOCK / os.sysconf("SC_PAGE_SIZE")
    assert outside > 0.9 * 8 * pages
    assert inside < 0.1 * 8 * pages
    assert held > 0.9 * pages
    assert left < 0.1 * pages


@settable
@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_stay(monkeypatch, name):
    made = []
    monkeypatch.setattr(memory, "_set_reuse", lambda: made.append(name))
    with reused_memory():
        pass
    assert made == [name]
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=131072")
    with reused_memory():
        pass
    assert made == [name]
