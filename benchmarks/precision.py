"""Speed of training in fp32 and bf16, with and without channels last, for four networks.

python benchmarks/precision.py [--updates 5] [--write]
"""

import time
from statistics import median

import timm
import torch
from harness import RESULTS, made_with, options, write
from timm.models import VisionTransformer
from torch import nn

import visprism as vp
from visprism.core.devices import Compute
from visprism.training.engine import Engine
from visprism.training.losses import task_loss

FILE = RESULTS / "precision.json"
# Name: side and batch size.
NETWORKS = {
    "resnet18": (32, 32),
    "vit_tiny_patch4_32, 6 blocks": (32, 32),
    "convnext_atto": (96, 8),
    "mobilenetv3_small_100": (96, 16),
}
WAYS = [(precision, last) for precision in ("fp32", "bf16") for last in (False, True)]


def network(name: str) -> nn.Module:
    """A network with 10 classes and the same random weights in each call."""
    torch.manual_seed(0)
    if name.startswith("vit"):
        return VisionTransformer(
            img_size=32, patch_size=4, embed_dim=192, depth=6, num_heads=3, num_classes=10
        )
    return timm.create_model(name, num_classes=10)


def rates(name: str, updates: int) -> list[dict]:
    """Images per second of updates in each way; the ways take turns."""
    side, batch = NETWORKS[name]
    images, targets = torch.randn(batch, 3, side, side), torch.eye(10)[torch.arange(batch) % 10]
    engines = []
    for precision, last in WAYS:
        recipe = vp.Recipe(epochs=1, batch_size=batch, lr=1e-3, channels_last=last).replace(
            precision=precision
        )
        compute = Compute(device="cpu", precision=recipe.precision)
        engines.append(Engine(network(name), recipe, compute, None, task_loss))
    times: list[list[float]] = [[] for _ in engines]
    for step in range(updates):
        for engine, seconds in zip(engines, times, strict=True):
            with engine.training():
                begin = time.perf_counter()
                engine.update(step, 1e-3, (images, targets), batch)
                seconds.append(time.perf_counter() - begin)
    return [
        {
            "network": name,
            "precision": precision,
            "channels_last": last,
            "images_per_second": batch / median(seconds[1:]),
        }
        for (precision, last), seconds in zip(WAYS, times, strict=True)
    ]


def run() -> None:
    """Measure, print, and write the results."""
    given = options(str(__doc__), FILE, updates=5).parse_args()
    rows = [row for name in NETWORKS for row in rates(name, given.updates)]
    for row in rows:
        print(row)
    if given.write:
        write(FILE, made_with("timm", updates=given.updates), rows)


if __name__ == "__main__":
    run()
