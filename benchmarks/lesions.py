"""What a lesion study costs: resumed passes beside running the whole model for each lesion.

Both ways take turns in one run, on noise, with the same lesions; `study` is resumed passes with
the pass that is kept, `naive` one whole pass for each lesion under `lesion`, and one without.
Seconds are CPU time of one thread, medians; `difference` is the largest of any logit.

    python benchmarks/lesions.py            # prints the table
    python benchmarks/lesions.py --write    # and writes benchmarks/results/lesions.json

Claim: a study takes about half of the naive time or less, and gives the same logits.
"""

import argparse
from pathlib import Path

import timm
import torch
from harness import in_turns, made_with, medians, options, write
from torch import Tensor

from visprism import Anatomy, dissect, forward
from visprism.anatomy.run.ablations import Ablation, block_ablations
from visprism.anatomy.run.cached_forward import cache_cuts

RESULTS = Path(__file__).parent / "results" / "lesions.json"
MODELS = {
    "resnet50": {},
    "vit_tiny_patch16_224": {},
    "swin_tiny_patch4_window7_224": {},
    "convnext_tiny": {},
    "mixer_s32_224": {},
}


def main() -> None:
    parser = options(__doc__, RESULTS, images=8, repeats=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':<32}{'lesions':>8}{'naive':>9}{'study':>9}{'ratio':>7}{'difference':>12}")
    rows = []
    for name in arguments.models:
        row = measured(name, arguments.images, arguments.repeats)
        rows.append(row)
        print(
            f"{name:<32}{row['lesions']:8}{row['naive']:9.2f}{row['study']:9.2f}"
            f"{row['study'] / row['naive']:7.2f}{row['difference']:12.1e}",
            flush=True,
        )
    if arguments.write:
        write(RESULTS, setting(arguments), rows)


@torch.no_grad()
def measured(name: str, number: int, repeats: int) -> dict:
    torch.manual_seed(0)
    model = timm.create_model(name, **MODELS.get(name, {})).eval()
    images = torch.randn(number, 3, 224, 224)
    anatomy = dissect(model, images)
    removals = block_ablations(anatomy)
    study(anatomy, removals, images[:1])  # warms up
    logits: dict[str, list[Tensor]] = {}
    ways = {
        "naive": lambda: logits.update(naive=naive(anatomy, removals, images)),
        "study": lambda: logits.update(study=study(anatomy, removals, images)),
    }
    taken = medians(in_turns(ways, repeats, warm=0))
    both = zip(logits["naive"], logits["study"], strict=True)
    difference = max(float((a - b).abs().max()) for a, b in both)
    return {"model": name, "lesions": len(removals), **taken, "difference": difference}


def naive(anatomy: Anatomy, removals: list[Ablation], images: Tensor) -> list[Tensor]:
    return [forward(anatomy.model, images), *(r.full_pass(anatomy, images) for r in removals)]


def study(anatomy: Anatomy, removals: list[Ablation], images: Tensor) -> list[Tensor]:
    recording = cache_cuts(anatomy, images, {r.cut for r in removals})
    return [recording.logits, *(r.from_cut(anatomy, images, recording) for r in removals)]


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with("timm", images=arguments.images, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
