"""The Python of every page about an analysis runs, with the names that the pages assume."""

import os
import re
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import visprism as vp
from visprism import corrupt

PROJECT = Path(__file__).parent.parent
PAGES = sorted((PROJECT / "docs" / "analyses").glob("*.md"))
FENCE = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
NUMBER = 32  # images of a study here; the pages leave their number to the time budget
OTHER_NUMBER = {
    "attribution": 4,
    "hessian-by-block": 4,
    "intrinsic-dimension": 64,
    "out-of-distribution": 64,
    "quantization": 4,
    "readout": 64,
}
SHALLOW = {  # pages of many passes, which have a model of one block
    "adversarial",
    "fourier-sensitivity",
    "hessian",
    "landscape",
    "sharpness",
    "trajectory",
}
OTHER_MODEL = {
    "attention-maps": "timm:vit_tiny_patch16_224?img_size=64",
    "relative-scores": "timm:swin_tiny_patch4_window7_224?img_size=64&window_size=2",
}
FOLDERS = {"distribution-shift": "needs copies of ImageNet-R and ImageNet-A"}

pytestmark = pytest.mark.slow


def names_of(page):
    """What a page assumes: a model, images, batches, and what some pages need besides."""
    name = OTHER_MODEL.get(page, "vit_pico_patch4_32.shapes")
    loaded = vp.load_model(name, pretrained=False)
    model, preprocessing = loaded.model.eval(), loaded.preprocessing
    if page in SHALLOW:
        del model.blocks[1:]
    data = vp.load_data("shapes", limit=NUMBER)
    batches = vp.batches(data, preprocessing, 8)
    names = {
        "model": model,
        "preprocessing": preprocessing,
        "mean": preprocessing.mean,
        "std": preprocessing.std,
        "data": "shapes",
        "class_names": data.class_names,
        "images": next(iter(batches))[0],
        "batches": batches,
    }
    return names | EXTRA.get(page, lambda _: {})(names)


def of_corruptions(names):
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    foggy = {
        severity: vp.batches(
            vp.load_data("shapes", limit=NUMBER),
            names["preprocessing"],
            32,
            change=lambda x, _, s=severity: corrupt(x, "fog", s, seed=0),
        )
        for severity in range(1, 6)
    }
    return {"images": pixels, "foggy": foggy}


def of_training(names):
    optimizer = torch.optim.SGD(names["model"].parameters(), lr=0.01)
    batches = list(names["batches"])
    return {
        "optimizer": optimizer,
        "fixed_batches": batches[:1],
        "loader": batches,
        "loss": torch.nn.functional.cross_entropy,
    }


def of_surface(names):
    return {"batches": list(names["batches"])[:1]}


def of_trajectory(names):
    state = names["model"].state_dict()
    noise = torch.Generator().manual_seed(0)
    return of_surface(names) | {
        "snapshots": [
            {
                name: v + 0.01 * k * torch.randn(v.shape, generator=noise)
                if v.is_floating_point()
                else v
                for name, v in state.items()
            }
            for k in (3, 2, 1, 0)
        ]
    }


def of_stability(_names):
    data = vp.load_data("shapes", limit=8)
    pixels = np.stack([np.asarray(image) for image, _ in data]).transpose(0, 3, 1, 2)
    return {"pixel_batches": lambda: iter([(range(8), torch.from_numpy(pixels))])}


def of_density(names):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    return {
        "model": model.eval(),
        "batches": list(names["batches"])[:1],
        "v": torch.ones(sum(p.numel() for p in model.parameters())),
    }


def of_calibration(names):
    dropping = torch.nn.Sequential(torch.nn.Dropout(0.1), names["model"])
    dropping.preprocessing = names["model"].preprocessing
    return {"model": dropping.eval(), "other": names["model"]}


def of_connectivity(_names):
    loaded = vp.load_model("resnet20.cifar10")
    vp.save_checkpoint(loaded.model, "other.safetensors")
    return {}


EXTRA = {
    "calibration": of_calibration,
    "cka": lambda _: {"other": vp.load_model("resnet20.shapes").model.eval()},
    "corruptions": of_corruptions,
    "density": of_density,
    "landscape": of_surface,
    "mode-connectivity": of_connectivity,
    "stability": of_stability,
    "training-curvature": of_training,
    "trajectory": of_trajectory,
}


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    """The CIFAR-10 of the pages in the current folder, where there is one."""
    monkeypatch.chdir(tmp_path)
    real = os.environ.get("VISPRISM_DATA")
    if real:
        Path("cifar10").symlink_to(Path(real) / "cifar10")
    yield real
    plt.close("all")


def test_every_page_shows_python():
    assert len(PAGES) > 40
    assert all(len(FENCE.findall(page.read_text("utf-8"))) == 1 for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, cifar10, monkeypatch):
    (block,) = FENCE.findall(page.read_text("utf-8"))
    if page.stem in FOLDERS:
        pytest.skip(FOLDERS[page.stem])
    if "parquet:cifar10" in block and not cifar10:
        pytest.skip("VISPRISM_DATA is not set")
    number = OTHER_NUMBER.get(page.stem, NUMBER)
    few = partial(vp.examine, limit=number, minutes=None)
    monkeypatch.setattr(vp, "examine", few)
    names = names_of(page.stem)
    exec(compile(block, page.name, "exec"), names)
