"""Models that wait in a study: their weights leave memory, and nothing else differs."""

from pathlib import Path

import pytest
import torch

from visprism import Finished, Started, dissect, examine, load_model
from visprism.core import memory

pytestmark = pytest.mark.skipif(not memory._LINUX, reason="needs Linux")

NAMED = {
    "a": "resnet20?num_classes=5",
    "b": "timm:vit_tiny_patch16_224?img_size=16&patch_size=8&depth=2&num_classes=5",
}
ANALYSES = [
    *("fourier", "variance", "cka", "calibration", "ablation", "quantization"),
    *("hessian", "landscape", "sharpness", "patch-filters"),
]
OPTIONS = {
    "landscape": {"points": 3, "angles": 4, "ring_planes": 1},
    "hessian": {"k": 1},
    "quantization": {"bits": (4,), "trace_probes": 1},
    "ablation": {"parts": ("blocks",)},
    "sharpness": {"directions": 1},
}


@pytest.fixture
def images():
    """Batches of 8 and 4 images with targets."""
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(12, 3, 16, 16, generator=generator)
    targets = torch.randint(5, (12,), generator=generator)
    return list(zip(images.split(8), targets.split(8), strict=True))


@pytest.fixture
def mapped(monkeypatch):
    """The modules whose weights are mapped; small ones too."""
    modules = []
    monkeypatch.setattr(memory, "_SMALLEST", 1)

    def spy(model, name=""):
        modules.append(model)
        return memory.map_weights(model, name)

    monkeypatch.setattr("visprism.study.subjects.map_weights", spy)
    return modules


def test_results_are_equal_bit_for_bit_with_weights_that_wait_and_without(
    images, mapped, monkeypatch, tmp_path
):
    settings = {"analyses": ANALYSES, "options": OPTIONS, "minutes": None}
    waiting = examine(NAMED, images, out=tmp_path, **settings)
    assert len(mapped) == 2
    assert not [f for f in waiting.failures if f.kind == "failed"]
    monkeypatch.setattr(memory, "_SMALLEST", 2**40)
    staying = examine(NAMED, images, **settings)
    assert [e.key for e in waiting.entries] == [e.key for e in staying.entries]
    assert [e.results for e in waiting.entries] == [e.results for e in staying.entries]
    events = []
    resumed = examine(NAMED, images, out=tmp_path, listener=events.append, **settings)
    assert all(event.resumed for event in events if isinstance(event, Finished))
    assert [e.results for e in resumed.entries] == [e.results for e in staying.entries]


def resident_maps():
    """Bytes in memory of maps of files without a name."""
    total, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *_ = line.split()
        if not first.endswith(":"):
            counted = line.endswith("(deleted)")
        elif counted and first == "Rss:":
            total += 1024 * int(line.split()[1])
    return total


def test_at_most_the_model_that_is_measured_is_in_memory(images, mapped):
    models = {name: "resnet20?num_classes=5" for name in "abcd"}
    resident = []

    def listener(event):
        if isinstance(event, Started):
            resident.append(resident_maps())

    examine(models, images, analyses=["fourier", "calibration"], listener=listener)
    size = sum(t.nbytes for t in (*mapped[0].parameters(), *mapped[0].buffers()))
    assert len(resident) == 8
    assert max(resident) < 1.5 * size
    assert resident_maps() - resident[0] < 1.5 * size


def test_modules_of_the_user_are_never_mapped(images, mapped, net):
    loaded = load_model("resnet20?num_classes=5")
    models = {
        "module": net(0),
        "anatomy": dissect(net(1), images[0][0][:2]),
        "loaded": loaded,
        "named": "resnet20?num_classes=5",
    }
    modules = [models["module"], models["anatomy"].model, loaded.model]
    tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    addresses = [t.data_ptr() for t in tensors]
    landscape = {"points": 3, "angles": 4, "ring_planes": 1}
    chosen = ["fourier", "calibration", "landscape"]
    examine(models, images, analyses=chosen, options={"landscape": landscape})
    assert [t.data_ptr() for t in tensors] == addresses
    assert len(mapped) == 1
    assert all(mapped[0] is not module for module in modules)


@pytest.mark.parametrize("models", ["resnet20?num_classes=5", ["resnet20?num_classes=5"]])
def test_a_single_model_does_not_wait(models, images, mapped):
    examine(models, images, analyses=["fourier"])
    assert mapped == []
