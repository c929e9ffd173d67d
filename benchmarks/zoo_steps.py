"""One real training step of every network of the zoo, at the size that it is made for.

    python benchmarks/zoo_steps.py                      # a line for each network
    python benchmarks/zoo_steps.py --write              # and writes results/zoo_steps.json
    python benchmarks/zoo_steps.py 'alter_*' '*_32'     # those that fit a pattern; with --write
                                                        # the stored rows of others stay

Each is built twice with one seed. Then it learns one step from two images of noise: forward and
backward under bfloat16 autocast, AdamW. A parameter counts as reached if its gradient is finite
and not all zero; parameters that start at zero (timm's heads, which hide all before them) get
noise first. Last it judges the images in evaluation mode. The whole zoo took 31
minutes on one busy core.

Claim: every network of the zoo has the same weights from the same seed, every parameter of it
is reached, and its loss and its logits behind the step are finite (results/zoo_steps.json).
"""

import json
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import torch
from harness import made_with, options, write
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from visprism import MODELS, load_model
from visprism.core.run import stream
from visprism.models.zoo_registry import image_size

RESULTS = Path(__file__).parent / "results" / "zoo_steps.json"
BATCH = 2
SEED = 0
LR = 1e-4


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("patterns", nargs="*", default=["*"], help="of names, as 'alter_*'")
    arguments = parser.parse_args()
    names = [n for n in MODELS if any(fnmatch(n, pattern) for pattern in arguments.patterns)]
    rows = []
    for name in names:
        rows.append(row := stepped(name))
        print(
            f"{name:<36} {'same weights' if row['same_weights'] else 'OTHER WEIGHTS'}"
            f"  {row['reached']:>4} of {row['tensors']:>4} reached"
            f"  loss {row['loss']:7.3f}  {row['seconds']:6.1f} s",
            flush=True,
        )
    complete = sum(is_whole(row) for row in rows)
    print(f"{complete} of {len(rows)} networks: same weights, all reached, all finite")
    if arguments.write:
        rows = with_stored(rows)
        write(RESULTS, setting(), rows)


def with_stored(rows: Sequence[dict]) -> list[dict]:
    """These rows, and the stored ones of all other networks of the zoo."""
    stored = json.loads(RESULTS.read_text("utf-8"))["rows"] if RESULTS.is_file() else []
    by_name = {row["name"]: row for row in (*stored, *rows)}
    return [by_name[name] for name in MODELS if name in by_name]


def is_whole(row: dict) -> bool:
    reached = row["reached"] == row["tensors"]
    return row["same_weights"] and reached and row["finite_loss"] and row["finite_logits"]


def stepped(name: str) -> dict:
    start, side = time.perf_counter(), image_size(name)
    model, twin = (load_model(name, seed=SEED).model for _ in range(2))
    same = equal(model, twin)
    del twin
    images = torch.randn(BATCH, 3, side, side, generator=stream(SEED, "images"))
    awaken(model)
    model.train()
    step = torch.optim.AdamW(model.parameters(), lr=LR, foreach=False)
    with torch.random.fork_rng(devices=[]):  # of dropout in the classifiers of VGGs
        torch.random.manual_seed(SEED)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model(images))
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    reached = [g for g in gradients if g is not None and g.isfinite().all() and g.any()]
    step.step()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = model.eval()(images)
    return {
        "name": name,
        "img_size": side,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tensors": len(gradients),
        "reached": len(reached),
        "same_weights": same,
        "loss": loss.item(),
        "finite_loss": bool(loss.isfinite()),
        "finite_logits": bool(logits.isfinite().all()),
        "logits": list(logits.shape),
        "seconds": round(time.perf_counter() - start, 2),
    }


def equal(model: nn.Module, other: nn.Module) -> bool:
    """Whether all tensors are the same, bit for bit."""
    theirs = other.state_dict()
    return all(torch.equal(tensor, theirs[key]) for key, tensor in model.state_dict().items())


def awaken(model: nn.Module) -> None:
    """Noise for the parameters that start at zero."""
    for key, parameter in model.named_parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02, generator=stream(SEED, key))


def loss_of(logits: Tensor | Sequence[Tensor]) -> Tensor:
    """Cross-entropy; the mean over the two classifiers of a DeiT."""
    outputs = [logits] if isinstance(logits, Tensor) else list(logits)
    losses = [cross_entropy(one.float(), torch.arange(BATCH)) for one in outputs]
    return torch.stack(losses).mean()


def setting() -> dict:
    """Where the numbers are from."""
    return made_with(
        "timm",
        precision="bfloat16 autocast",
        batch=BATCH,
        seed=SEED,
        optimizer=f"AdamW, learning rate {LR:g}",
    )


if __name__ == "__main__":
    main()
