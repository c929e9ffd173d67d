"""The machine that measures, as results and bug reports state it."""

import os
import platform

import torch


def machine() -> str:
    """Processor and threads, such as ``4-core x86_64 CPU (AVX512), 2 threads``."""
    instructions = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return (
        f"{os.cpu_count()}-core {platform.machine()} CPU ({instructions}), {threads} "
        f"thread{'' if threads == 1 else 's'}"
    )
