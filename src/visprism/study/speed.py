"""Speed of the models of a study on this machine: they take turns, for several rounds."""

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from visprism.anatomy.trace.forward import forward
from visprism.core.run import Run
from visprism.kit.model_on_images import Subject, inputs_of
from visprism.passes.batches import on_device

_ROUNDS = 5
_BATCH = 32  # images of the pass that gives the throughput, at most
_LONGEST = 1.0  # seconds that this pass is expected to take of the slowest model, at most
_OF_A_ROUND = 0.03  # seconds of the passes of one image in a round, for short passes
_MOST_PASSES = 10

Speeds = dict[str, dict[str, list[float]]]  # by model and quantity; one value for each round


def speeds_in_turn(
    subjects: Sequence[Subject], seconds: Mapping[str, float], run: Run
) -> Speeds:
    """Latency of one image and throughput of a batch, in 5 rounds in which models take turns.

    Other work on the machine hits all models alike, and its changes widen the range of the
    rounds. Each model of a round runs once before it is timed; short passes are repeated, and
    the median counts.

    Args:
        subjects: models on images.
        seconds: expected of one image, by model; they decide the size of the batch.
        run: device and precision.

    Returns:
        By model: "latency" in seconds, "throughput" in images/s, "running" (the processor's
        time over the elapsed time) in each round; "batch", "threads"; "begun", the same for
        models that took turns; on CUDA "memory", the peak of the batch with the weights in
        bytes.
    """
    fewest = min(s.num_images for s in subjects)
    slowest = max(seconds[s.name] for s in subjects)
    number = int(max(1, min(_BATCH, fewest, _LONGEST / max(slowest, 1e-9))))
    inputs = {
        s.name: [next(iter(map(inputs_of, s.limited(n).batches()))) for n in (1, number)]
        for s in subjects
    }
    device = run.compute.torch_device
    threads = [float(torch.get_num_threads())] * (device.type == "cpu")
    begun = [time.time()]
    speeds: Speeds = {
        s.name: {"begun": begun, "batch": [float(number)], "threads": threads} for s in subjects
    }
    for turn in range(_ROUNDS):
        for subject in subjects:
            model, of_model = subject.model, speeds[subject.name]
            with torch.no_grad(), run.compute.borrow(model), run.compute.autocast():
                one, several = (on_device(x, run.compute) for x in inputs[subject.name])
                warm = _seconds(model, one, device)
                begin, used = time.perf_counter(), time.process_time()
                passes = int(min(max(_OF_A_ROUND / warm, 1), _MOST_PASSES))
                latency = median(_seconds(model, one, device) for _ in range(passes))
                rate = number / _seconds(model, several, device)
                running = (time.process_time() - used) / (time.perf_counter() - begin)
                if device.type == "cuda" and not turn:
                    of_model["memory"] = [_peak(model, several, device)]
            for name, value in (
                ("latency", latency),
                ("throughput", rate),
                ("running", running),
            ):
                of_model.setdefault(name, []).append(value)
    return speeds


def _seconds(model: nn.Module, images: Any, device: torch.device) -> float:
    begin = time.perf_counter()
    forward(model, images)
    if device.type == str(torch.accelerator.current_accelerator()):
        torch.accelerator.synchronize(device)
    return time.perf_counter() - begin


def _peak(model: nn.Module, images: Any, device: torch.device) -> float:
    """Peak memory of a pass on CUDA in bytes, with weights and images."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    forward(model, images)
    taken = torch.cuda.max_memory_allocated(device) - before
    tensors = (*model.parameters(), *model.buffers(), images)
    leaves = [x for x in tree_leaves(tensors) if isinstance(x, torch.Tensor)]
    return float(taken + sum(x.nbytes for x in leaves))
