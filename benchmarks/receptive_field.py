"""What effective receptive fields of all blocks cost, next to a forward pass.

The forward pass alone and `visprism.ReceptiveField` take turns in one run, so that what else
the machine does hits them alike. Seconds are those of the process, not of the wall; the table
has medians of the ratio. A gradient of each block passes through all blocks before it, so that
n blocks of equal cost need at least 1 + n / 2 forward passes.

    python benchmarks/receptive_field.py            # prints the table
    python benchmarks/receptive_field.py --write    # and writes results/receptive_field.json

Claim: none; 4 forward passes are the target, and less than the arithmetic of most networks.
"""

from pathlib import Path
from statistics import median

import timm
import torch
from harness import in_turns, made_with, options, write

from visprism import dissect
from visprism.analyses.features.receptive_field import ReceptiveField

MODELS = ("resnet18", "resnet50", "convnext_tiny", "vit_tiny_patch16_224")
RESULTS = Path(__file__).parent / "results" / "receptive_field.json"
IMAGES, SIZE = 8, 224


def main() -> None:
    parser = options(__doc__, RESULTS, repeats=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        rows.append(measured(name, arguments.repeats))
        print("{model:<22}{blocks:3} blocks{ratio:7.1f} forward passes".format(**rows[-1]))
    if arguments.write:
        write(RESULTS, setting(arguments.repeats), rows)


def measured(name: str, repeats: int) -> dict:
    """Medians of seconds and of their ratio."""
    torch.manual_seed(0)
    model, images = timm.create_model(name).eval(), torch.randn(IMAGES, 3, SIZE, SIZE)
    anatomy = dissect(model, images[:2])

    def forward() -> None:
        with torch.no_grad():
            model(images)

    taken = in_turns(
        {"forward": forward, "fields": lambda: ReceptiveField().of(anatomy, [images])}, repeats
    )
    pairs = zip(taken["fields"], taken["forward"], strict=True)
    return {
        "model": name,
        "blocks": sum(block.layout is not None for block in anatomy),
        "forward": median(taken["forward"]),
        "receptive fields": median(taken["fields"]),
        "ratio": median(fields / forward for fields, forward in pairs),
    }


def setting(repeats: int) -> dict:
    """Where the numbers are from."""
    return made_with("timm", images=[IMAGES, 3, SIZE, SIZE], repeats=repeats)


if __name__ == "__main__":
    main()
